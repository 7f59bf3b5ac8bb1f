"""`refloat drain` and `undrain`, against a console that answers on a real port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, answering

_ROW: dict[str, Any] = {"state": "ok", "address": "", "agents": 0, "sentence": ""}


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with answering() as console:
        listed = [
            {**_ROW, "id": "p/1", "name": "proxy-1"},
            {**_ROW, "id": "p0", "name": "proxy-1", "state": "gone"},
            {**_ROW, "id": "a1", "name": "auth-1"},
            {**_ROW, "id": "a2", "name": "auth-1"},
        ]
        console.answers["/api/v1/instances"] = (200, {"instances": listed})
        console.answers["/api/v1/instances/p%2F1/drain"] = (200, {"id": "p/1", "name": "proxy-1"})
        console.answers["/api/v1/instances/a1/drain"] = (200, {"id": "a1", "name": "auth-1"})
        yield console


def refloat(console: FakeConsole, *words: str) -> Result:
    return CliRunner(env={"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN}).invoke(main, words)


def test_instances_by_name_and_id(console: FakeConsole) -> None:
    """A name means the instance that is still registered; the reason goes with every request."""
    done = refloat(console, "drain", "proxy-1", "a1", "--reason", "kernel update", "--even-last")
    assert done.output == "proxy-1 will accept no new connections\nauth-1 will accept no new connections\n"
    body = {"drained": True, "reason": "kernel update", "even_last": True}
    assert [(path, sent) for path, sent, _ in console.sent] == [
        ("/api/v1/instances/p%2F1/drain", body),
        ("/api/v1/instances/a1/drain", body),
    ]
    back = refloat(console, "undrain", "proxy-1", "--reason", "updated", "--json")
    assert '"name": "proxy-1"' in back.output
    assert console.sent[-1][1] == {"drained": False, "reason": "updated"}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("proxy-9", "instance proxy-9 was not found"),
        ("auth-1", "2 instances have the name auth-1; use an id: a1, a2"),
    ],
)
def test_wrong_name_drains_nothing(console: FakeConsole, name: str, sentence: str) -> None:
    """Every name is looked up before the first request."""
    refused = refloat(console, "drain", "proxy-1", name, "--reason", "kernel update")
    assert (refused.exit_code, console.sent) == (2, [])
    assert sentence in refused.output


def test_refusal_of_the_console_is_shown(console: FakeConsole) -> None:
    """As one line, with exit code 2."""
    detail = "No other auth accepts connections."
    console.answers["/api/v1/instances/a1/drain"] = (409, {"detail": detail})
    refused = refloat(console, "drain", "a1", "--reason", "kernel update")
    assert refused.exit_code == 2
    assert detail in refused.output
