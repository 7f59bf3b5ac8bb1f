"""The API against its own OpenAPI document: whatever is sent, the answer is one that the document describes."""

from __future__ import annotations

import io
import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
import schemathesis
from django.core.management import call_command
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from dashboards.api_v1 import api
from fleet.changes.networking import revisions
from fleet.models.access import Permission
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.protocol.networking.config import (
    ORIGIN_LABEL,
    NetworkingConfig,
    NetworkingResource,
    Strategy,
    with_defaults,
)
from fleet.vocabulary.verdicts import State
from tests.fakes import incident_rows
from tests.fakes.history_rows import create_agent_change
from tests.fakes.record import fill
from tests.flow.web import USERNAME, Console, database, web_console

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: Every state, and more agents than the smallest pages hold.
STATES = [*State, *State]
#: Seconds that the record is ahead of now, so that it is fresh for as long as the tests run.
AHEAD = 10_000.0
#: Requests for one operation in one mode.
EXAMPLES = 8
#: Requests for an operation of which nothing varies.
REPEATS = 3
CHECKS: list[Any] = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
#: Values of Authorization that are no token of Refloat.
NO_TOKEN = ({}, {"Authorization": "Bearer rfl_wrong"}, {"Authorization": "Basic YTpi"})
#: Statuses of the guard in front of every handler.
REFUSED = {401, 403}
#: Statuses that only a handler gives, never the guard or the validation in front of it.
FROM_HANDLERS = {200, 201, 202, 409}

#: Ends of the paths of clusters themselves.
_OF_CLUSTERS = tuple(
    f"/clusters/{{cluster}}{action}" for action in ("", "/pause", "/resume", "/delete", "/test")
)
#: The number of an incident that exists.
NUMBER = 7
#: A gateway that exists.
EDGE_INSTANCE = "edge-1"


@dataclass
class Fuzzed:
    """A console with objects to refer to, a token that only reads, and one with every scope."""

    console: Console
    all_scopes: str
    session: requests.Session = field(default_factory=requests.Session)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def headers(self, *, all_scopes: bool) -> dict[str, str]:
        """The headers of a request with one of the tokens."""
        return {"Authorization": f"Bearer {self.all_scopes if all_scopes else self.console.token}"}

    def send(self, operation: str, headers: dict[str, str], body: Any = None) -> requests.Response:
        """Send one request; every parameter of the path is 1."""
        method, path = operation.split()
        url = self.console.url + re.sub(r"{\w+}", "1", path)
        return self.session.request(method, url, headers=headers, json=body, timeout=60)

    def existing(self, path: str) -> dict[str, str]:
        """Return the parameters of a path that lead to something; changes, silences and clusters are new ones."""
        make = {
            "cluster": lambda: self._cluster() if path.endswith(_OF_CLUSTERS) else "default",
            "agent_id": lambda: "agent-1-id",
            "instance_id": lambda: "proxy-1-id",
            "change_id": lambda: self._create("reconnect/plan", {"proxy": "proxy-1"})["id"],
            "entry_id": self._newest_entry,
            "cause": lambda: "auth",
            "name": lambda: EDGE_INSTANCE,
            "username": self._user,
            "number": lambda: self._number(path),
        }
        return {name: str(make[name]()) for name in _parameters(path)}

    def _number(self, path: str) -> int:
        """Return the number of something that the path names by number; all but incidents are new ones."""
        if "/incidents/" in path:
            return NUMBER
        if "/deliveries/" in path:
            return self._queued_delivery()
        name = f"name {next(self.numbers)}"
        bodies: dict[str, dict[str, Any]] = {
            "maintenance-windows": self._window(),
            "channels": {"name": name, "kind": "email", "values": {"to": "ops@example.com"}},
            "routes": {"name": name, "matchers": self._matchers()},
            "alert-rules": {"name": name, "kind": "stranded", "severity": "info"},
            "agent-views": {"name": name, "q": "agent"},
            "silences": {"matchers": self._matchers(), "reason": "upgrade"},
        }
        resource = next(resource for resource in bodies if f"/{resource}/" in path)
        response = self._create(resource, bodies[resource])
        return int(response["id" if resource == "agent-views" else "number"])

    def _matchers(self) -> str:
        """Return matchers that no other silence has: a second one of the same is refused."""
        return f"cause=proxy-{next(self.numbers)}"

    def _window(self) -> dict[str, Any]:
        """Return the values of a window that no other has."""
        return {
            "name": f"window {next(self.numbers)}",
            "matchers": self._matchers(),
            "rule": "FREQ=WEEKLY;BYDAY=SU",
            "first_day": "2026-01-04",
            "start_time": "02:00",
            "duration_seconds": 7200,
            "reason": "upgrade",
        }

    def etag(self, path: str, parameters: dict[str, str]) -> dict[str, str]:
        """Return the If-Match of a write: the ETag of the object in its path."""
        above = path.rpartition("/")[0].format(**parameters)
        answer = self.session.get(self.console.url + above, headers=self.headers(all_scopes=True), timeout=60)
        return {"If-Match": answer.headers["ETag"]}

    def _cluster(self) -> str:
        """Return the id of a new cluster: what happens to it happens to nothing else."""
        number = next(self.numbers)
        body = {"id": f"cluster-{number}", "name": f"Cluster {number}", "auths": [f"auth-{number}.example:1"]}
        return str(self._create("clusters", body)["id"])

    def _user(self) -> str:
        """Return the name of a new user: what happens to it happens to nobody else."""
        body = {"username": f"user-{next(self.numbers)}", "role": "viewer"}
        return str(self._create("users", body)["user"]["username"])

    def _queued_delivery(self) -> int:
        """Return the number of a test notification that waits in the outbox: nothing sends it here."""
        headers, channel = self.headers(all_scopes=True), self._number("/channels/{number}")
        url = f"{self.console.url}/api/v1"
        answer = self.session.post(f"{url}/channels/{channel}/test", headers=headers, json={}, timeout=60)
        assert answer.status_code == 200, answer.text
        log = self.session.get(f"{url}/deliveries?channel={channel}", headers=headers, timeout=60).json()
        return int(log["deliveries"][0]["number"])

    def _newest_entry(self) -> int:
        """Return the id of an entry of the audit log, which has one after a plan."""
        self._create("reconnect/plan", {"proxy": "proxy-1"})
        headers = self.headers(all_scopes=True)
        answer = self.session.get(f"{self.console.url}/api/v1/audit?limit=1", headers=headers, timeout=60)
        return int(answer.json()["entries"][0]["id"])

    def _create(self, path: str, body: Any) -> Any:
        answer = self.send(f"POST /api/v1/{path}", self.headers(all_scopes=True), body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    """A web process with a record of some agents in every state."""
    with web_console(tmp_path_factory.mktemp("web")) as console:
        token = _prepare(console)
        fill(console.writer(), STATES, as_of=time.time() + AHEAD)
        yield Fuzzed(console, token)


@pytest.fixture(scope="module")
def document(fuzzed: Fuzzed) -> Any:
    """The API's description of itself, as schemathesis understands it.

    Without its security: schemathesis would negate little else than the token, and every answer would be the same 401.
    """
    raw = fuzzed.session.get(f"{fuzzed.console.url}/api/v1/openapi.json", timeout=60).json()
    for methods in raw["paths"].values():
        for operation in methods.values():
            assert operation.pop("security")
    return schemathesis.openapi.from_dict(raw)


def _parameters(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)


def _operations() -> dict[str, Any]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in api.get_openapi_schema(path_prefix="/api/v1/")["paths"].items()
        for method, operation in methods.items()
    }


OPERATIONS = _operations()
#: Operations that a token with the scope view_fleet may not use.
BEYOND_VIEWERS = [
    endpoint
    for endpoint in OPERATIONS
    if not endpoint.startswith("GET ")
    or endpoint.endswith(
        ("/audit", "/audit/{entry_id}", "/drain", "/alerting", "/users", "/users/{username}")
    )
]
#: Ends of operations that take the values of an alerting setting.
_SETTINGS = tuple(
    f"/{resource}{number}"
    for resource in ("maintenance-windows", "channels", "routes", "alert-rules")
    for number in ("", "/{number}")
)
#: Ends of operations that may succeed in no request: an invented plan, matcher or selection is valid JSON for the
#: document, and its values are refused by the handler with 400.
_OF_INVENTED_VALUES = (
    *("/plan", "/reconnect/forecast", "/apply", "/silences", "/retirements", "/agent-sets", "/clusters"),
    *_SETTINGS,
    *_OF_CLUSTERS,
)
FOR_VIEWERS = [endpoint for endpoint in OPERATIONS if endpoint not in BEYOND_VIEWERS]


def _has_if_match(operation: str) -> bool:
    return any(parameter["name"] == "If-Match" for parameter in OPERATIONS[operation]["parameters"])


def _finds_everything(operation: str, *, existing: bool) -> bool:
    """Return whether requests name nothing that is missing: their path and ETag are of objects, or they have none."""
    return existing or not (_parameters(operation) or _has_if_match(operation))


def _varies(operation: str, *, existing: bool, wrongly: bool = False) -> bool:
    """Return whether requests can differ from each other; `wrongly`: whether they can differ from the document."""
    # What exists has a fixed path and If-Match; any text is a valid name in a path.
    free = [
        parameter
        for parameter in OPERATIONS[operation]["parameters"]
        if not (existing and parameter["in"] in ("path", "header"))
        and not (wrongly and parameter["in"] == "path" and parameter["schema"]["type"] == "string")
    ]
    return bool(free) or "requestBody" in OPERATIONS[operation]


def _is_second_address(operation: str) -> bool:
    """Return whether an operation is the same handler as a shorter path has, which means the default cluster."""
    return operation.replace("/clusters/{cluster}/", "/", 1) in OPERATIONS.keys() - {operation}


def _call_sequences(operations: list[str]) -> list[Any]:
    """Call each operation with valid and invalid requests, for existing and missing objects.

    The second address of a handler gets valid requests for what exists: their cluster is read from the path.
    """
    return [
        pytest.param(operation, mode, existing, id=f"{operation}-{mode.value}{'-existing' * existing}")
        for operation in operations
        for existing in (False, True)
        if not existing or _parameters(operation) or _has_if_match(operation)
        for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or _varies(operation, existing=existing, wrongly=True)
        if not _is_second_address(operation) or (existing and mode is GenerationMode.POSITIVE)
    ]


@pytest.mark.parametrize(
    ("operation", "mode", "existing"),
    _call_sequences(FOR_VIEWERS),
)
def test_any_read_gets_a_documented_response(
    fuzzed: Fuzzed, document: Any, operation: str, mode: GenerationMode, existing: bool
) -> None:
    """No 5xx, no status, type or shape that the document does not name, and no way around the token.

    The handler itself answers: no request is refused for its token, and one for what exists finds it.
    """
    statuses = _fuzz(fuzzed, document, operation, mode, existing=existing, all_scopes=False)
    assert statuses
    assert not statuses & REFUSED
    if _finds_everything(operation, existing=existing) and mode is GenerationMode.POSITIVE:
        assert 200 in statuses, "no request found what exists"


@pytest.mark.parametrize(("operation", "mode", "existing"), _call_sequences(BEYOND_VIEWERS))
def test_any_write_gets_a_documented_response(
    fuzzed: Fuzzed, document: Any, operation: str, mode: GenerationMode, existing: bool
) -> None:
    """The same, with a token that may do everything: no guard stands before the handler and its validation."""
    statuses = _fuzz(fuzzed, document, operation, mode, existing=existing, all_scopes=True)
    assert statuses
    assert not statuses & REFUSED
    invented = operation.endswith(_OF_INVENTED_VALUES)
    if _finds_everything(operation, existing=existing) and mode is GenerationMode.POSITIVE:
        assert statuses & FROM_HANDLERS or (invented and statuses == {400}), statuses


def test_read_only_token_is_refused_by_every_write(fuzzed: Fuzzed) -> None:
    """403 with a sentence that names the scope, whatever else is wrong with the request."""
    wrong = []
    for operation in BEYOND_VIEWERS:
        answer = fuzzed.send(operation, fuzzed.headers(all_scopes=False))
        if answer.status_code != 403 or "does not have the scope" not in answer.json()["detail"]:
            wrong.append(f"{operation}: {answer.status_code} {answer.text[:200]}")
    assert BEYOND_VIEWERS
    assert not wrong, "\n".join(wrong)


def test_requests_without_a_token_are_refused(fuzzed: Fuzzed) -> None:
    """No token, a wrong one, or none of Refloat: 401 with a sentence, for every operation."""
    wrong = []
    for operation in OPERATIONS:
        for headers in NO_TOKEN:
            answer = fuzzed.send(operation, headers)
            if answer.status_code != 401 or "token" not in answer.json()["detail"]:
                wrong.append(f"{operation} with {headers}: {answer.status_code} {answer.text[:200]}")
    assert OPERATIONS
    assert not wrong, "\n".join(wrong)


def _fuzz(
    fuzzed: Fuzzed, document: Any, operation: str, mode: GenerationMode, *, existing: bool, all_scopes: bool
) -> set[int]:
    """Send invented requests for one operation; return the statuses of the answers."""
    method, path = operation.split()
    parameters = fuzzed.existing(path) if existing else {}
    headers = fuzzed.headers(all_scopes=all_scopes)
    matches = existing and _has_if_match(operation)
    if matches:
        headers |= fuzzed.etag(path, parameters)
    statuses: set[int] = set()

    @settings(
        max_examples=EXAMPLES if _varies(operation, existing=existing) else REPEATS,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=document[path][method].as_strategy(generation_mode=mode, path_parameters=parameters))
    def send(case: schemathesis.Case) -> None:
        answer = case.call(base_url=fuzzed.console.url, headers=headers, session=fuzzed.session)
        succeeded = answer.status_code < 300
        if succeeded and not any(status < 300 for status in statuses):
            # The guard does not read the request: the first that succeeds stands for all.
            for no_token in NO_TOKEN:
                refusal = case.call(base_url=fuzzed.console.url, headers=no_token, session=fuzzed.session)
                assert refusal.status_code == 401
        statuses.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS, headers=headers)
        if matches and (succeeded or answer.status_code == 412):
            headers.update(fuzzed.etag(path, parameters))

    send()
    return statuses


def _prepare(console: Console) -> str:
    """Add objects that requests can refer to, and return a token with every scope."""
    stored = with_defaults(
        NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)
    )
    scopes = [scope for permission in Permission for scope in ("--scope", permission.value)]
    output = io.StringIO()
    with database(console.home):
        revisions.record_revision(
            "default", NetworkingResource(stored, {ORIGIN_LABEL: "dynamic"}, "r1"), datetime.now(UTC)
        )
        cluster = ensure_default_cluster()
        cluster.edge_instances = {EDGE_INSTANCE: "127.0.0.1:1"}
        cluster.save(update_fields=["edge_instances"])
        incident = Incident.objects.create(
            pk=NUMBER,
            cluster=cluster,
            key="proxy/p",
            cause_kind="proxy",
            cause_id="p",
            cause_name="proxy-1",
            generation=1,
            state="firing",
            severity=2,
            opened_at=time.time(),
            affected_count=2,
            peak_count=2,
        )
        incident_rows.write_copy(incident, time.time())
        create_agent_change("agent-1-id", time.time(), State.HEALTHY, State.STRANDED)
        call_command("token", "create", USERNAME, "--name", "fuzz", *scopes, stdout=output)
    return output.getvalue().strip()
