from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli import plan_and_confirm
from fleet.cli.config import config
from tests.fakes.console import TOKEN, FakeConsole, answering

PLAN = {
    "rule_before": "no rule", "notes": ["A note."], "age": 1.0, "size": 9,
    "closing": {
        "rule_label": "RFD 226", "closes": [2, 3], "agents": [2, 2], "excess": [2, 3], "expired": [0, 0],
        "carrying": [0, 1], "left_with_one": 2,
        "steps": [{"nth": 1, "tunnels": 2, "earliest": 1800.0, "latest": 3600.0}],
        "proxies": [{"name": "proxy-1", "before": 5, "after": [2, 3]}],
    },
}  # fmt: skip
CHANGE = {
    "id": 7, "revision": "7-1",
    "title": "graceful_tunnel_closing = true", "question": "Close 2 to 3 tunnels of 2 agents?", "plan": PLAN,
    "asks_typed": "", "asks_second": False, "approved_by": "", "state": "planned", "detail": "",
}  # fmt: skip
DONE = {
    "id": 7, "revision": "7-4", "kind": "networking-config", "state": "verifying", "detail": "written as revision r2",
    "total": 3, "done": 0, "failed": 0, "percent": 0,
}  # fmt: skip


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    """A console with a config, a plan for whatever is asked, and a worker that is quick."""
    with answering() as running:
        running.answers = {
            "/api/v1/networking-config": (200, {
                "revision": "r1", "document": {"spec": {"keep_alive_interval": "5m0s"}},
            }),
            "/api/v1/networking-config/plan": (201, CHANGE),
            "/api/v1/changes/7/confirm": (202, CHANGE),
            "/api/v1/changes/7/cancel": (200, CHANGE),
            "/api/v1/changes/7/progress": (200, DONE),
            "/api/v1/changes/3": (200, {**CHANGE, "id": 3, "revision": "3-4"}),
            "/api/v1/changes/3/undo": (201, CHANGE),
        }  # fmt: skip
        yield running


def _run(console: FakeConsole, *words: str, said: str = "") -> Result:
    return CliRunner().invoke(config, [*words, "--url", console.url, "--token", TOKEN], input=said)


def _sent(console: FakeConsole, path: str) -> Any:
    return next((body for at, body, _ in console.sent if at == f"/api/v1{path}"), None)


def test_get_prints_yaml(console: FakeConsole) -> None:
    """As `refloat fleet config get` does."""
    assert "keep_alive_interval: 5m0s" in _run(console, "get").output


def test_set_plans_asks_and_waits(console: FakeConsole) -> None:
    """The revision that was read goes along; the plan is shown before the question; the reason is asked for."""
    result = _run(console, "set", "graceful_tunnel_closing=true", said="y\ntoo many\n")
    assert result.exit_code == 0, result.output
    for words in (
        "closes 2 to 3 tunnels of 2 agents",
        "2 tunnels close 30 min to 1 h after the change",
        "proxy-1: 5 tunnels now, 2 to 3 afterwards",
    ):
        assert words in result.output
    assert result.output.index("closes 2") < result.output.index("Close 2 to 3 tunnels of 2 agents?")
    assert "verifying: 0 of 3 tunnels (0 %) · written as revision r2" in result.output
    assert "undo with: refloat config undo 7" in result.output
    assert _sent(console, "/networking-config/plan") == {"fields": {"graceful_tunnel_closing": "true"}}
    assert console.sent[0][2]["If-Match"] == '"r1"'
    assert _sent(console, "/changes/7/confirm") == {"reason": "too many", "typed": ""}
    assert console.sent[1][2]["If-Match"] == '"7-1"'


def test_set_said_no_cancels(console: FakeConsole) -> None:
    """And exits as what was not done."""
    result = _run(console, "set", "a=b", said="n\n")
    assert result.exit_code == 2
    assert _sent(console, "/changes/7/confirm") is None
    assert _sent(console, "/changes/7/cancel") == {}


def test_plan_only_shows_and_cancels(console: FakeConsole) -> None:
    """Nothing is left to be confirmed by somebody."""
    result = _run(console, "revert", "r0", "--dry-run")
    assert "RFD 226" in result.output
    assert _sent(console, "/networking-config/plan") == {"revision": "r0"}
    assert _sent(console, "/changes/7/cancel") == {}


def test_refusals_are_sentences_with_their_fields(console: FakeConsole) -> None:
    """What the console said, and exit code 2."""
    console.answers["/api/v1/networking-config/plan"] = (
        400, {"detail": "Out of range.", "problems": {"keep_alive_interval": "9h is out of range. Use 1s to 1h"}},
    )  # fmt: skip
    result = _run(console, "set", "keep_alive_interval=9h", "--yes")
    assert result.exit_code == 2
    assert "keep_alive_interval: 9h is out of range" in result.output
    typed = {"detail": "Type it.", "problems": {"typed": "type it"}}
    console.answers["/api/v1/networking-config/plan"] = (400, typed)
    assert "nothing was changed: --confirm-cluster: type it\n" in _run(console, "set", "a=b", "--yes").output
    console.answers["/api/v1/networking-config/plan"] = (412, {"detail": "Somebody wrote r2."})
    assert "nothing was changed: Somebody wrote r2." in _run(console, "set", "a=b", "--yes").output
    assert ": expected KEY=VALUE" in _run(console, "set", "a").output


def test_failed_change_exits_with_its_sentence(console: FakeConsole) -> None:
    """The worker's words."""
    console.answers["/api/v1/changes/7/progress"] = (
        200,
        {**DONE, "state": "failed", "detail": "no auth could be reached"},
    )
    result = _run(console, "set", "a=b", "--yes", "--reason", "because")
    assert result.exit_code == 2
    assert "no auth could be reached" in result.output


def test_undo_plans_on_the_step_that_was_seen(console: FakeConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it goes the way of every change; --verify waits until it was held against the plan."""
    looks = iter(
        [
            DONE,
            {**DONE, "done": 3},
            {**DONE, "done": 3, "state": "verified", "detail": "3 tunnels closed, as foreseen"},
        ]
    )
    monkeypatch.setattr(plan_and_confirm, "_POLL_INTERVAL", 0.01)
    console.answers["/api/v1/changes/7/progress"] = (200, looks)
    result = _run(console, "undo", "3", "--yes", "--reason", "it was wrong", "--verify")
    assert result.exit_code == 0, result.output
    assert [(path.removeprefix("/api/v1/changes/"), sent["If-Match"]) for path, _, sent in console.sent] == [
        ("3/undo", '"3-4"'),
        ("7/confirm", '"7-1"'),
    ]
    assert "verified: 3 of 3 tunnels (100 %) · 3 tunnels closed, as foreseen" in result.output


def test_history_and_log(console: FakeConsole) -> None:
    """As tables."""
    at = "2026-01-01T12:00:00+00:00"
    console.answers["/api/v1/networking-config/revisions"] = (
        200, {"revisions": [{"revision": "r1", "at": at, "who": "", "reason": ""}]},
    )  # fmt: skip
    entry = {
        "at": at,
        "who": "alice",
        "action": "x.plan",
        "outcome": "done",
        "reason": "because",
        "detail": "",
    }
    console.answers["/api/v1/audit?limit=50"] = (200, {"entries": [entry]})
    assert "outside Refloat" in _run(console, "history").output
    assert "alice" in _run(console, "audit-log").output
