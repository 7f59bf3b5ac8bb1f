from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli import plan_and_confirm
from fleet.cli.config import config
from tests.fakes.console import TOKEN, FakeConsole, run_console

PLAN: dict[str, Any] = {
    "previous_rule": "no rule", "notes": ["A note."], "data_age_seconds": 1.0, "agent_count": 9,
    "closing": {
        "rule_label": "RFD 226",
        "closing_count": [2, 3], "agent_count": [2, 2], "excess_count": [2, 3], "expired_count": [0, 0],
        "in_use_count": [0, 1], "single_tunnel_agent_count": 2,
        "steps": [{"nth": 1, "tunnel_count": 2, "earliest_seconds": 1800.0, "latest_seconds": 3600.0}],
        "proxies": [{"name": "proxy-1", "tunnels_before": 5, "tunnels_after": [2, 3]}],
    },
}  # fmt: skip
CHANGE = {
    "id": 7, "revision": "7-1", "kind": "networking-config",
    "title": "Turn on graceful tunnel closing", "question": "Close 2 to 3 tunnels of 2 agents?", "plan": PLAN,
    "confirmation_required": "", "review_required": False, "approved_by": "", "state": "planned", "detail": "",
}  # fmt: skip
PROGRESS = {
    "id": 7, "revision": "7-4", "kind": "networking-config", "state": "verifying", "detail": "written as revision r2",
    "total_count": 3, "finished_count": 0, "failed_count": 0, "percent": 0,
}  # fmt: skip


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    """Run a console with a config, a plan and its progress."""
    with run_console() as fake_console:
        fake_console.responses = {
            "/api/v1/networking-config": (200, {
                "revision": "r1", "document": {"spec": {"keep_alive_interval": "5m0s"}},
            }),
            "/api/v1/networking-config/plan": (201, CHANGE),
            "/api/v1/changes/7/confirm": (202, CHANGE),
            "/api/v1/changes/7/cancel": (200, CHANGE),
            "/api/v1/changes/7/progress": (200, PROGRESS),
            "/api/v1/changes/3": (200, {**CHANGE, "id": 3, "revision": "3-4"}),
            "/api/v1/changes/3/undo": (201, CHANGE),
        }  # fmt: skip
        yield fake_console


def _run(console: FakeConsole, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(config, [*arguments, "--url", console.url, "--token", TOKEN], input=stdin)


def _posted_body(console: FakeConsole, path: str) -> Any:
    return next((body for post_path, body, _ in console.posts if post_path == f"/api/v1{path}"), None)


def test_get_prints_yaml(console: FakeConsole) -> None:
    """As `refloat fleet config get` does."""
    assert "keep_alive_interval: 5m0s" in _run(console, "get").output


def test_set_plans_confirms_and_waits(console: FakeConsole) -> None:
    """The revision is sent, the plan is shown before the question, and a reason is required."""
    outcome = _run(console, "set", "graceful_tunnel_closing=true", stdin="y\ntoo many\n")
    assert outcome.exit_code == 0, outcome.output
    for text in (
        "closes 2 to 3 tunnels of 2 agents",
        "2 tunnels close 30 min to 1 h after the change",
        "proxy-1: 5 tunnels now, 2 to 3 afterwards",
    ):
        assert text in outcome.output
    assert outcome.output.index("closes 2") < outcome.output.index("Close 2 to 3 tunnels of 2 agents?")
    assert "verifying: 0 of 3 tunnels (0 %) · written as revision r2" in outcome.output
    assert "undo with: refloat config undo 7" in outcome.output
    assert _posted_body(console, "/networking-config/plan") == {"fields": {"graceful_tunnel_closing": "true"}}
    assert console.posts[0][2]["If-Match"] == '"r1"'
    assert _posted_body(console, "/changes/7/confirm") == {"reason": "too many", "confirmation": ""}
    assert console.posts[1][2]["If-Match"] == '"7-1"'


def test_forecast_makes_no_plan(console: FakeConsole) -> None:
    """The fields are sent as they were typed; the text has what would close, open and stay open."""
    closing = {**PLAN["closing"], "opening_count": 1, "opening_agent_count": 1, "opening_seconds": 3.14}
    path = "/api/v1/networking-config/forecast?field=agent_connection_count%3D1&field=a%3Db"
    forecast = {
        **PLAN,
        "changes": [{"key": "agent_connection_count", "before": "2", "after": "1"}],
        "closing": closing,
        "closing_if_on": None,
    }
    console.responses[path] = (200, forecast)
    outcome = _run(console, "forecast", "agent_connection_count=1", "a=b")
    assert outcome.output == (
        "agent_connection_count: 2 → 1\n"
        "tunnel closing: RFD 226 (now: no rule)\n"
        "closes 2 to 3 tunnels of 2 agents: 2 to 3 excess tunnels, 0 to expired proxies; 0 to 1 carry user "
        "connections; 2 agents keep one tunnel\n"
        "  closing 1 of each agent: 2 tunnels close 30 min to 1 h after the change\n"
        "opens 1 tunnel from 1 agent, within about 3.1 s\n"
        "  proxy-1: 5 tunnels now, 2 to 3 afterwards\n"
        "A note.\n"
        "based on data of 9 agents, 1 s old\n"
    )
    assert not console.posts
    assert (
        json.loads(_run(console, "forecast", "agent_connection_count=1", "a=b", "--json").output) == forecast
    )


def test_forecast_of_the_current_config(console: FakeConsole) -> None:
    """Nothing moves, and tunnels that a rule would close stay open."""
    closing = {**PLAN["closing"], "closing_count": [0, 0], "opening_count": 0}
    forecast = {**PLAN, "changes": [], "closing": closing, "closing_if_on": PLAN["closing"], "notes": []}
    console.responses["/api/v1/networking-config/forecast"] = (200, forecast)
    assert _run(console, "forecast").output == (
        "no field differs from the current config\n"
        "tunnel closing: RFD 226 (now: no rule)\n"
        "leaves open 2 to 3 tunnels of 2 agents, because no closing rule is on (with graceful_tunnel_closing=true: "
        "closed 30 min to 1 h after the change)\n"
        "no agent opens or closes a tunnel\n"
        "based on data of 9 agents, 1 s old\n"
    )


def test_refused_forecast_names_its_fields(console: FakeConsole) -> None:
    """Without the words about a change, which nobody made."""
    problem = "9h is out of range. Use 1s to 1h"
    response = {"detail": f"keep_alive_interval: {problem}.", "problems": {"keep_alive_interval": problem}}
    console.responses["/api/v1/networking-config/forecast?field=keep_alive_interval%3D9h"] = (400, response)
    outcome = _run(console, "forecast", "keep_alive_interval=9h")
    assert (outcome.exit_code, outcome.output) == (2, f"refloat: keep_alive_interval: {problem}\n")
    assert ": expected KEY=VALUE" in _run(console, "forecast", "a").output


def test_declined_confirmation_cancels_the_change(console: FakeConsole) -> None:
    """And exits as what was not done."""
    outcome = _run(console, "set", "a=b", stdin="n\n")
    assert outcome.exit_code == 2
    assert _posted_body(console, "/changes/7/confirm") is None
    assert _posted_body(console, "/changes/7/cancel") == {}


def test_dry_run_only_shows_the_plan(console: FakeConsole) -> None:
    """Nothing is stored: there is nothing to cancel; of an undo, too."""
    outcome = _run(console, "revert", "r0", "--dry-run")
    assert "RFD 226" in outcome.output
    assert _run(console, "undo", "3", "--dry-run").exit_code == 0
    assert [(path, body) for path, body, _ in console.posts] == [
        ("/api/v1/networking-config/plan?dry_run=true", {"revision": "r0"}),
        ("/api/v1/changes/3/undo?dry_run=true", {}),
    ]


def test_refusals_name_their_fields(console: FakeConsole) -> None:
    """With the message of the console and exit code 2."""
    console.responses["/api/v1/networking-config/plan"] = (
        400, {"detail": "Out of range.", "problems": {"keep_alive_interval": "9h is out of range. Use 1s to 1h"}},
    )  # fmt: skip
    outcome = _run(console, "set", "keep_alive_interval=9h", "--yes")
    assert outcome.exit_code == 2
    assert "keep_alive_interval: 9h is out of range" in outcome.output
    response = {"detail": "Type it.", "problems": {"confirmation": "type it"}}
    console.responses["/api/v1/networking-config/plan"] = (400, response)
    assert "nothing was changed: --confirm-cluster: type it\n" in _run(console, "set", "a=b", "--yes").output
    console.responses["/api/v1/networking-config/plan"] = (412, {"detail": "Somebody wrote r2."})
    assert "nothing was changed: Somebody wrote r2." in _run(console, "set", "a=b", "--yes").output
    assert ": expected KEY=VALUE" in _run(console, "set", "a").output


def test_failed_change_exits_with_its_detail(console: FakeConsole) -> None:
    """The worker's words."""
    console.responses["/api/v1/changes/7/progress"] = (
        200,
        {**PROGRESS, "state": "failed", "detail": "no auth could be reached"},
    )
    outcome = _run(console, "set", "a=b", "--yes", "--reason", "because")
    assert outcome.exit_code == 2
    assert "no auth could be reached" in outcome.output


def test_undo_sends_the_revision_and_verifies(console: FakeConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it goes the way of every change; --verify waits until it was held against the plan."""
    responses = iter(
        [
            PROGRESS,
            {**PROGRESS, "finished_count": 3},
            {**PROGRESS, "finished_count": 3, "state": "verified", "detail": "3 tunnels closed, as foreseen"},
        ]
    )
    monkeypatch.setattr(plan_and_confirm, "_POLL_INTERVAL", 0.01)
    console.responses["/api/v1/changes/7/progress"] = (200, responses)
    outcome = _run(console, "undo", "3", "--yes", "--reason", "it was wrong", "--verify")
    assert outcome.exit_code == 0, outcome.output
    assert [
        (path.removeprefix("/api/v1/changes/"), headers["If-Match"]) for path, _, headers in console.posts
    ] == [
        ("3/undo", '"3-4"'),
        ("7/confirm", '"7-1"'),
    ]
    assert "verified: 3 of 3 tunnels (100 %) · 3 tunnels closed, as foreseen" in outcome.output


def test_history_and_audit_log(console: FakeConsole) -> None:
    """As tables."""
    at = "2026-01-01T12:00:00+00:00"
    console.responses["/api/v1/networking-config/revisions"] = (
        200, {"revisions": [{"revision": "r1", "at": at, "author": "", "reason": ""}]},
    )  # fmt: skip
    entry = {
        "at": at,
        "actor_name": "alice",
        "action": "x.plan",
        "outcome": "succeeded",
        "reason": "because",
        "detail": "",
    }
    console.responses["/api/v1/audit?limit=50"] = (200, {"entries": [entry]})
    assert "outside Refloat" in _run(console, "history").output
    assert "alice" in _run(console, "audit-log").output
