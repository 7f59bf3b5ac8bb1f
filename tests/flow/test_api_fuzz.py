"""The API against its own OpenAPI document: whatever is sent, the answer is one that the document describes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from dashboards.api.v1 import api
from fleet.domain.verdicts import State
from tests.fakes.record import fill
from tests.fakes.waiting import eventually_sync
from tests.flow.web import Console, web_console

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: Every state, and more agents than the smallest pages hold.
STATES = [*State, *State]
#: Seconds that the record is ahead of now, so that it is fresh for as long as the tests run.
AHEAD = 10_000.0
#: Invented requests for one operation in one way; all together take about five minutes.
EXAMPLES = 60
#: Path parameters that lead to something; `fill` gives these names.
KNOWN = {"cluster": "default", "agent_id": "agent-1-id"}
#: No auth was asked for its config, and a viewer may not read the log.
NOT_THERE = ("/networking-config", "/audit")
CHECKS: list[Any] = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.ignored_auth,
]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A web process with a record of some agents in every state."""
    with web_console(tmp_path_factory.mktemp("web")) as running:
        eventually_sync(lambda: _answers(running), seconds=180)
        fill(running.writer(), STATES, as_of=time.time() + AHEAD)
        yield running


@pytest.fixture(scope="module")
def document(console: Console) -> Any:
    """The API's description of itself, as schemathesis understands it."""
    return schemathesis.openapi.from_url(f"{console.url}/api/v1/openapi.json")


def _operations() -> list[str]:
    return [
        f"{method.upper()} {path}"
        for path, methods in api.get_openapi_schema(path_prefix="/api/v1/")["paths"].items()
        for method in methods
    ]


def _wanderings() -> Iterator[Any]:
    """Each operation, asked as the document says and otherwise, for what is there and for what is not."""
    for operation in _operations():
        named = {name: value for name, value in KNOWN.items() if f"{{{name}}}" in operation}
        for mode in GenerationMode:
            yield pytest.param(operation, mode, {}, id=f"{operation}-{mode.value}")
            if named:
                yield pytest.param(operation, mode, named, id=f"{operation}-{mode.value}-known")


@pytest.mark.parametrize(("operation", "mode", "known"), list(_wanderings()))
def test_any_request_gets_a_described_answer(
    console: Console, document: Any, operation: str, mode: GenerationMode, known: dict[str, str]
) -> None:
    """No 5xx, no status, type or shape that the document does not tell of, and no way around the token."""
    method, path = operation.split()
    token = {"Authorization": f"Bearer {console.token}"}
    seen: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=document[path][method].as_strategy(generation_mode=mode, path_parameters=known))
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(headers=token)
        seen.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS, headers=token)

    ask()
    # What is asked for may be there only if every name leads to something; and the token only reads.
    there = all(name in known for name in re.findall(r"{(\w+)}", path))
    if (
        known
        and there
        and mode is GenerationMode.POSITIVE
        and method == "GET"
        and not path.endswith(NOT_THERE)
    ):
        assert 200 in seen, "nothing that is there was found"


@pytest.mark.parametrize("operation", _operations())
@pytest.mark.parametrize("sent", [{}, {"Authorization": "Bearer rfl_wrong"}, {"Authorization": "Basic YTpi"}])
def test_nobody_gets_in_without_a_token(console: Console, operation: str, sent: dict[str, str]) -> None:
    """No token, a wrong one, or none of ours: 401 with a sentence, whatever else is asked."""
    method, path = operation.split()
    answer = requests.request(method, console.url + re.sub(r"{\w+}", "1", path), headers=sent)
    assert answer.status_code == 401
    assert "token" in answer.json()["detail"]


def _answers(console: Console) -> bool:
    try:
        return requests.get(f"{console.url}/readyz", timeout=30).status_code == 200
    except requests.RequestException:
        return False
