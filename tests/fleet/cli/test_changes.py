"""`refloat changes` against a console that answers what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fleet.cli.changes import changes
from tests.fakes.console import TOKEN, FakeConsole, answering
from tests.fleet.cli.test_campaign import CHANGE, PROGRESS

LISTED = {**CHANGE, "kind": "reconnect", "who": "alice"}


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    """A console with one campaign."""
    with answering() as running:
        running.answers = {
            "/api/v1/changes": (
                200,
                {"changes": [LISTED], "busy": "one change at a time: alice has default"},
            ),
            "/api/v1/changes/7": (200, {**CHANGE, "revision": "7-2"}),
            "/api/v1/changes/7/progress": (200, PROGRESS),
            **{f"/api/v1/changes/7/{word}": (200, CHANGE) for word in ("confirm", "approve", "cancel")},
        }
        yield running


def _run(console: FakeConsole, *words: str, said: str = "") -> Result:
    return CliRunner().invoke(changes, [*words, "--url", console.url, "--token", TOKEN], input=said)


def test_list_says_who_has_the_cluster(console: FakeConsole) -> None:
    """And what there is; as JSON what the API says."""
    shown = _run(console, "list").output
    assert "Reconnect 3 agents: off proxy-1" in shown
    assert "alice has default" in shown
    assert json.loads(_run(console, "list", "--json").output)["changes"][0]["who"] == "alice"


@pytest.mark.parametrize("word", ["approve", "cancel"])
def test_second_person_and_calling_off(console: FakeConsole, word: str) -> None:
    """With the step that was just seen."""
    assert _run(console, word, "7").exit_code == 0
    path, _, headers = console.sent[0]
    assert (path, headers["If-Match"]) == (f"/api/v1/changes/7/{word}", '"7-2"')


def test_overtaken_is_said(console: FakeConsole) -> None:
    """The console's sentence, and exit code 2."""
    console.answers["/api/v1/changes/7/cancel"] = (412, {"detail": "The change is running by now."})
    result = _run(console, "cancel", "7")
    assert (result.exit_code, "nothing was changed: The change is running" in result.output) == (2, True)


def test_confirm_a_plan_of_before(console: FakeConsole) -> None:
    """The same question, and the same watching."""
    result = _run(console, "confirm", "7", said="y\nit is full\n")
    assert result.exit_code == 0, result.output
    assert console.sent[0][1] == {"reason": "it is full", "typed": ""}
    assert "verified: 3 of 3 agents (100 %)" in result.output
    assert "verified" in _run(console, "watch", "7").output
