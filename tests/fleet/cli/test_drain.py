"""`refloat drain` and `undrain`, against a console that answers on a real port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_ROW: dict[str, Any] = {"state": "ok", "address": "", "agent_count": 0, "explanation": ""}


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with run_console() as console:
        rows = [
            {**_ROW, "id": "p/1", "name": "proxy-1"},
            {**_ROW, "id": "p0", "name": "proxy-1", "state": "gone"},
            {**_ROW, "id": "a1", "name": "auth-1"},
            {**_ROW, "id": "a2", "name": "auth-1"},
        ]
        console.responses["/api/v1/instances"] = (200, {"instances": rows})
        console.responses["/api/v1/instances/p%2F1/drain"] = (200, {"id": "p/1", "name": "proxy-1"})
        console.responses["/api/v1/instances/a1/drain"] = (200, {"id": "a1", "name": "auth-1"})
        yield console


def refloat(console: FakeConsole, *arguments: str) -> Result:
    return CliRunner(env={"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN}).invoke(main, arguments)


def test_instances_by_name_and_id(console: FakeConsole) -> None:
    """A name means the instance that is still registered; the reason goes with every request."""
    drain_outcome = refloat(console, "drain", "proxy-1", "a1", "--reason", "kernel update", "--allow-last")
    assert (
        drain_outcome.output
        == "proxy-1 will accept no new connections\nauth-1 will accept no new connections\n"
    )
    body = {"is_drained": True, "reason": "kernel update", "allow_last": True}
    assert [(path, body_sent) for path, body_sent, _ in console.posts] == [
        ("/api/v1/instances/p%2F1/drain", body),
        ("/api/v1/instances/a1/drain", body),
    ]
    undrain_outcome = refloat(console, "undrain", "proxy-1", "--reason", "updated", "--json")
    assert '"name": "proxy-1"' in undrain_outcome.output
    assert console.posts[-1][1] == {"is_drained": False, "reason": "updated"}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("proxy-9", "instance proxy-9 was not found"),
        ("auth-1", "2 instances have the name auth-1; use an id: a1, a2"),
    ],
)
def test_wrong_name_drains_nothing(console: FakeConsole, name: str, sentence: str) -> None:
    """Every name is looked up before the first request."""
    outcome = refloat(console, "drain", "proxy-1", name, "--reason", "kernel update")
    assert (outcome.exit_code, console.posts) == (2, [])
    assert sentence in outcome.output


def test_refusal_of_the_console_is_shown(console: FakeConsole) -> None:
    """As one line, with exit code 2."""
    detail = "No other auth accepts connections."
    console.responses["/api/v1/instances/a1/drain"] = (409, {"detail": detail})
    outcome = refloat(console, "drain", "a1", "--reason", "kernel update")
    assert outcome.exit_code == 2
    assert detail in outcome.output


def test_refusal_names_the_instance_after_an_earlier_one_was_drained(console: FakeConsole) -> None:
    """The words "nothing was changed" would be false."""
    console.responses["/api/v1/instances/a1/drain"] = (409, {"detail": "No other auth accepts connections."})
    outcome = refloat(console, "drain", "proxy-1", "a1", "--reason", "kernel update")
    assert outcome.exit_code == 2
    assert outcome.stdout == "proxy-1 will accept no new connections\n"
    assert outcome.stderr == "refloat: a1 was not changed: No other auth accepts connections.\n"
