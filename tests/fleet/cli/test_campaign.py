"""`refloat reconnect` against a fake console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fleet.cli.campaign import reconnect
from tests.fakes.console import TOKEN, FakeConsole, run_console

CHANGE = {
    "id": 7, "revision": "7-1", "kind": "reconnect",
    "title": "Reconnect 3 agents: off proxy-1", "question": "Reconnect 3 agents", "confirmation_required": "",
    "review_required": False, "approved_by": "", "state": "planned", "detail": "",
    "plan": {"reconnect_count": 2, "duration_seconds": 7.2, "agents_by_instance": {"proxy-1": 2},
             "skipped_by_reason": {"it is retired": 1}},
}  # fmt: skip
PROGRESS = {
    "id": 7, "revision": "7-4",
    "kind": "reconnect", "state": "verified", "detail": "2 of 3 agents moved", "total_count": 3, "finished_count": 3,
    "percent": 100,
    "succeeded_count": 2, "failed_count": 0, "skipped_count": 1, "pending_count": 0,
    "eta_seconds": None, "waiting_for": "",
}  # fmt: skip
AGENT_ROW = {"id": "a", "name": "agent-1", "state": "succeeded", "reason": "", "from_instance": "proxy-1",
          "new_proxy": "proxy-2", "duration_seconds": 1.5}  # fmt: skip


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    """Run a console with a plan."""
    with run_console() as fake_console:
        fake_console.responses = {
            "/api/v1/reconnect/plan": (201, CHANGE),
            "/api/v1/changes/7/confirm": (202, CHANGE),
            "/api/v1/changes/7/cancel": (200, CHANGE),
            "/api/v1/changes/7/actions": (200, {**PROGRESS, "state": "paused", "detail": "paused by me"}),
            "/api/v1/changes/7/progress": (200, PROGRESS),
            "/api/v1/changes/7/agents?limit=1000": (200, {"next": 0, "agents": [AGENT_ROW]}),
            "/api/v1/changes/7/agents?limit=1000&after=0": (200, {"next": None, "agents": [
                {**AGENT_ROW, "name": "agent-2"}]}),
        }  # fmt: skip
        yield fake_console


def _run(console: FakeConsole, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(reconnect, [*arguments, "--url", console.url, "--token", TOKEN], input=stdin)


def test_start_plans_confirms_and_watches(console: FakeConsole) -> None:
    """The plan is shown before the question; the settings are sent."""
    outcome = _run(
        console, "start", "--proxy", "proxy-1", "--setting", "rate_per_minute=60", stdin="y\nit is full\n"
    )
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.index("1 skipped: it is retired") < outcome.output.index("Reconnect 3 agents?")
    assert "verified: 3 of 3 agents finished (100 %) · 2 succeeded" in outcome.output
    bodies = {path: body for path, body, _ in console.posts}
    assert bodies["/api/v1/reconnect/plan"] == {
        "q": "",
        "proxy": "proxy-1",
        "agents": [],
        "settings": {"rate_per_minute": "60"},
    }
    assert bodies["/api/v1/changes/7/confirm"] == {"reason": "it is full", "confirmation": ""}


def test_help_says_how_to_move_the_agents_of_an_auth() -> None:
    """The flags are those of `start`, which is left out: the help of the group has them, too."""
    text = CliRunner().invoke(reconnect, ["--help"]).output
    assert "refloat reconnect --auth auth-1 " in text
    assert "refloat reconnect --proxy proxy-1 " in text


def test_campaign_of_auth_connections(console: FakeConsole) -> None:
    """The connection kind is sent; the destination auths are shown."""
    load = {"name": "auth-2", "kind": "auth", "before": 40, "after": 42, "is_leaving": False}
    plan = {**CHANGE["plan"], "agents_by_instance": {"auth-1": 2}, "loads": [load]}  # type: ignore[dict-item]
    console.responses["/api/v1/reconnect/plan"] = (201, {**CHANGE, "plan": plan})
    outcome = _run(console, "start", "--auth", "auth-1", "--dry-run")
    assert outcome.exit_code == 0, outcome.output
    assert "2 leave auth-1" in outcome.output
    assert "auth-2: 40 agents now, about 42 afterwards" in outcome.output
    _run(console, "start", "--search", "web", "--connection", "auth", "--dry-run")
    first, second = (body for path, body, _ in console.posts if "/plan" in path)
    assert first == {"q": "", "proxy": "", "auth": "auth-1", "agents": [], "settings": {}}
    assert second == {"q": "web", "proxy": "", "connection": "auth", "agents": [], "settings": {}}
    moved_row = {**AGENT_ROW, "from_instance": "auth-1", "new_proxy": "", "new_auth": "auth-2"}
    console.responses["/api/v1/changes/7/agents?limit=1000"] = (200, {"next": None, "agents": [moved_row]})
    assert "auth-2" in _run(console, "status", "7").output


def test_dry_run_stores_no_change(console: FakeConsole) -> None:
    """One request, of which nothing has to be cancelled; with --json, too."""
    for arguments in ((), ("--json",)):
        assert _run(console, "--search", "web", "--dry-run", *arguments).exit_code == 0  # the same as `start`
    assert [path for path, _, _ in console.posts] == ["/api/v1/reconnect/plan?dry_run=true"] * 2


def test_declined_confirmation_cancels_the_change(console: FakeConsole) -> None:
    """Nothing is confirmed; what was planned is cancelled."""
    refused_outcome = _run(console, "start", "--search", "web", stdin="n\n")
    assert refused_outcome.exit_code != 0
    paths = [path for path, _, _ in console.posts]
    assert "/api/v1/changes/7/confirm" not in paths
    assert paths.count("/api/v1/changes/7/cancel") == 1


def test_status_and_actions(console: FakeConsole) -> None:
    """How far it is, what became of whom, and what one may do to it."""
    output = _run(console, "status", "7").output
    assert "proxy-2" in output
    assert "agent-2" in output  # of the second page
    for action in ("pause", "resume", "stop", "abort"):
        assert "paused by me" in _run(console, action, "7").output
        assert console.posts[-1][1] == {"action": action}
        assert console.posts[-1][2]["If-Match"] == '"7-4"'


def test_resume_warns_of_the_failure_threshold(console: FakeConsole) -> None:
    """Pausing needs no warning."""
    path = "/api/v1/changes/7/progress"
    status, progress = console.responses[path]
    console.responses[path] = (status, {**progress, "resume_warning": "5 of 5 agents failed."})
    assert "5 of 5 agents failed." in _run(console, "resume", "7").output
    assert "5 of 5 agents failed." not in _run(console, "pause", "7").output


def test_start_without_target_agents_names_the_flags(console: FakeConsole) -> None:
    """Nothing is sent."""
    outcome = _run(console, "start", "--setting", "rate_per_minute=60")
    assert (outcome.exit_code, console.posts) == (2, [])
    assert "give --search, --proxy, --auth or --agent" in outcome.output


def test_selection_without_agents_is_one_sentence(console: FakeConsole) -> None:
    """The selection is repeated; the key of the API is not a flag, so it is not shown."""
    problem = "there are no agents matching zzz. Select other agents"
    console.responses["/api/v1/reconnect/plan"] = (
        400,
        {"detail": f"{problem.capitalize()}.", "problems": {"target_agents": problem}},
    )
    outcome = _run(console, "start", "--search", "zzz")
    assert outcome.stderr == f"refloat: nothing was changed: {problem}\n"
