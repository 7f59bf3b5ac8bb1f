"""`refloat changes` against a fake console."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fleet.cli.changes import changes
from tests.fakes.console import TOKEN, FakeConsole, run_console
from tests.fleet.cli.test_campaign import CHANGE, PROGRESS

LISTED = {**CHANGE, "kind": "reconnect", "actor_name": "alice"}


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    """A console with one campaign."""
    with run_console() as fake_console:
        fake_console.responses = {
            "/api/v1/changes": (
                200,
                {"changes": [LISTED], "busy_reason": "one change at a time: alice has default"},
            ),
            "/api/v1/changes/7": (200, {**CHANGE, "revision": "7-2"}),
            "/api/v1/changes/7/progress": (200, PROGRESS),
            **{f"/api/v1/changes/7/{command}": (200, CHANGE) for command in ("confirm", "approve", "cancel")},
        }
        yield fake_console


def _run(console: FakeConsole, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(changes, [*arguments, "--url", console.url, "--token", TOKEN], input=stdin)


def test_list_shows_the_running_change(console: FakeConsole) -> None:
    """The list of changes; with --json the response of the API."""
    output = _run(console, "list").output
    assert "Reconnect 3 agents: off proxy-1" in output
    assert "alice has default" in output
    assert json.loads(_run(console, "list", "--json").output)["changes"][0]["actor_name"] == "alice"


@pytest.mark.parametrize("command", ["approve", "cancel"])
def test_approve_and_cancel_send_the_revision(console: FakeConsole, command: str) -> None:
    """The revision that was read is sent."""
    assert _run(console, command, "7").exit_code == 0
    path, _, headers = console.posts[0]
    assert (path, headers["If-Match"]) == (f"/api/v1/changes/7/{command}", '"7-2"')


def test_conflict_is_shown(console: FakeConsole) -> None:
    """The console's sentence, and exit code 2."""
    console.responses["/api/v1/changes/7/cancel"] = (412, {"detail": "The change is running by now."})
    outcome = _run(console, "cancel", "7")
    assert (outcome.exit_code, "nothing was changed: The change is running" in outcome.output) == (2, True)


def test_earlier_plan_is_confirmed_and_watched(console: FakeConsole) -> None:
    """The same question, and the same watching."""
    outcome = _run(console, "confirm", "7", stdin="y\nit is full\n")
    assert outcome.exit_code == 0, outcome.output
    assert console.posts[0][1] == {"reason": "it is full", "confirmation": ""}
    assert "verified: 3 of 3 agents finished (100 %)" in outcome.output
    assert "2 leave proxy-1" in outcome.output
    assert "verified" in _run(console, "watch", "7").output


def test_declined_change_stays_planned(console: FakeConsole) -> None:
    """It may be a colleague's: only `cancel` cancels it."""
    outcome = _run(console, "confirm", "7", stdin="n\n")
    assert (outcome.exit_code, console.posts) == (2, [])
    assert "change 7 is still planned. To cancel it: refloat changes cancel 7" in outcome.output
    assert "No such option" in _run(console, "confirm", "7", "--dry-run").output
