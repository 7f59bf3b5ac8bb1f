"""`refloat reconnect` against a console that answers what it is given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fleet.cli.campaign import reconnect
from tests.fakes.console import TOKEN, FakeConsole, answering

CHANGE = {
    "id": 7, "revision": "7-1",
    "title": "Reconnect 3 agents: off proxy-1", "question": "Reconnect 3 agents", "asks_typed": "",
    "asks_second": False, "approved_by": "", "state": "planned", "detail": "",
    "plan": {"asked": 2, "seconds": 7.2, "leaving": {"proxy-1": 2}, "skipped": {"it is retired": 1}},
}  # fmt: skip
PROGRESS = {
    "id": 7, "revision": "7-4",
    "kind": "reconnect", "state": "verified", "detail": "2 of 3 agents moved", "total": 3, "done": 3,
    "percent": 100, "ok": 2, "failed": 0, "skipped": 1, "remaining": 0, "eta_seconds": None, "waits_for": "",
}  # fmt: skip
RESULT = {"id": "a", "name": "agent-1", "state": "ok", "reason": "", "leaves": "proxy-1", "new_proxy": "proxy-2",
          "seconds": 1.5}  # fmt: skip


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    """A console with a plan for whatever is asked."""
    with answering() as running:
        running.answers = {
            "/api/v1/reconnect/plan": (201, CHANGE),
            "/api/v1/changes/7/confirm": (202, CHANGE),
            "/api/v1/changes/7/cancel": (200, CHANGE),
            "/api/v1/changes/7/do": (200, {**PROGRESS, "state": "paused", "detail": "paused by me"}),
            "/api/v1/changes/7/progress": (200, PROGRESS),
            "/api/v1/changes/7/agents?limit=1000": (200, {"next": 0, "agents": [RESULT]}),
            "/api/v1/changes/7/agents?limit=1000&after=0": (200, {"next": None, "agents": [
                {**RESULT, "name": "agent-2"}]}),
        }  # fmt: skip
        yield running


def _run(console: FakeConsole, *words: str, said: str = "") -> Result:
    return CliRunner().invoke(reconnect, [*words, "--url", console.url, "--token", TOKEN], input=said)


def test_start_plans_asks_and_watches(console: FakeConsole) -> None:
    """What is said goes along; the plan is shown before the question."""
    result = _run(console, "start", "--proxy", "proxy-1", "--setting", "rate=60", said="y\nit is full\n")
    assert result.exit_code == 0, result.output
    assert result.output.index("1 skipped: it is retired") < result.output.index("Reconnect 3 agents?")
    assert "verified: 3 of 3 agents (100 %) · 2 succeeded" in result.output
    sent = {path: body for path, body, _ in console.sent}
    assert sent["/api/v1/reconnect/plan"] == {
        "q": "",
        "proxy": "proxy-1",
        "agents": [],
        "pace": {"rate": "60"},
    }
    assert sent["/api/v1/changes/7/confirm"] == {"reason": "it is full", "typed": ""}


def test_help_says_how_to_move_the_agents_of_an_auth() -> None:
    """The flags are those of `start`, which is left out: the help of the group has them, too."""
    text = CliRunner().invoke(reconnect, ["--help"]).output
    assert "refloat reconnect --auth auth-1 " in text
    assert "refloat reconnect --proxy proxy-1 " in text


def test_auth_connections(console: FakeConsole) -> None:
    """What moves goes along where it is said; the auths with room are shown."""
    plan = {**CHANGE["plan"], "leaving": {"auth-1": 2}, "destinations": {"auth-2": 40}}  # type: ignore[dict-item]
    console.answers["/api/v1/reconnect/plan"] = (201, {**CHANGE, "plan": plan})
    result = _run(console, "start", "--auth", "auth-1", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "2 leave auth-1" in result.output
    assert "auth-2 accepts agents, 40 agents now" in result.output
    _run(console, "start", "--search", "web", "--connection", "auth", "--dry-run")
    first, second = (body for path, body, _ in console.sent if path.endswith("/plan"))
    assert first == {"q": "", "proxy": "", "auth": "auth-1", "agents": [], "pace": {}}
    assert second == {"q": "web", "proxy": "", "connection": "auth", "agents": [], "pace": {}}
    moved = {**RESULT, "leaves": "auth-1", "new_proxy": "", "new_auth": "auth-2"}
    console.answers["/api/v1/changes/7/agents?limit=1000"] = (200, {"next": None, "agents": [moved]})
    assert "auth-2" in _run(console, "status", "7").output


def test_plan_only_and_no(console: FakeConsole) -> None:
    """Nothing is confirmed; what was planned is cancelled."""
    assert _run(console, "--search", "web", "--dry-run").exit_code == 0  # the same as `start`
    refused = _run(console, "start", "--search", "web", said="n\n")
    assert refused.exit_code != 0
    paths = [path for path, _, _ in console.sent]
    assert "/api/v1/changes/7/confirm" not in paths
    assert paths.count("/api/v1/changes/7/cancel") == 2


def test_status_and_doings(console: FakeConsole) -> None:
    """How far it is, what became of whom, and what one may do to it."""
    shown = _run(console, "status", "7").output
    assert "proxy-2" in shown
    assert "agent-2" in shown  # of the second page
    for what in ("pause", "resume", "stop", "abort"):
        assert "paused by me" in _run(console, what, "7").output
        assert console.sent[-1][1] == {"do": what}
        assert console.sent[-1][2]["If-Match"] == '"7-4"'
