"""`refloat service`, against a console that answers on a real port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_PLAN: dict[str, Any] = {
    "id": 7,
    "revision": "7-1",
    "kind": "service",
    "title": "Take proxy-1 out of service",
    "question": "Take proxy-1 out of service and move 20 agents?",
    "confirmation_required": "",
    "plan": {
        "reconnect_count": 20,
        "duration_seconds": 30.0,
        "agents_by_instance": {"proxy-1": 20},
        "skipped_by_reason": {},
        "loads": [
            {"name": "proxy-1", "kind": "proxy", "before": 20, "after": 0, "is_leaving": True},
            {"name": "proxy-2", "kind": "proxy", "before": 20, "after": 40, "is_leaving": False},
        ],
        "notes": ["proxy-1 accepts no new connections from the start of the change."],
    },
}
_PROGRESS: dict[str, Any] = {
    "id": 7,
    "kind": "service",
    "state": "verified",
    "detail": "20 of 20 agents succeeded",
    "total_count": 20,
    "finished_count": 20,
}


@pytest.fixture
def console() -> Iterator[FakeConsole]:
    with run_console() as console:
        row = {"id": "p/1", "name": "proxy-1", "state": "ok"}
        console.responses["/api/v1/instances"] = (200, {"instances": [row]})
        console.responses["/api/v1/instances/p%2F1/out-of-service/plan"] = (201, _PLAN)
        console.responses["/api/v1/changes/7/confirm"] = (202, _PLAN)
        console.responses["/api/v1/changes/7/cancel"] = (200, _PLAN)
        console.responses["/api/v1/changes/7/progress"] = (200, _PROGRESS)
        console.responses["/api/v1/instances/p%2F1/drain"] = (200, {"name": "proxy-1", "change_id": 7})
        yield console


def refloat(console: FakeConsole, *arguments: str) -> Result:
    return CliRunner(env={"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN}).invoke(main, arguments)


def test_take_out_plans_and_confirms(console: FakeConsole) -> None:
    """The preset and the settings go with the plan; the end names the command that undoes it."""
    outcome = refloat(
        console,
        *("service", "take-out", "proxy-1", "--preset", "fast", "--setting", "canary_size=1"),
        *("--yes", "--reason", "kernel update"),
    )
    assert outcome.exit_code == 0, outcome.output
    path, body, _ = console.posts[0]
    assert (path, body) == (
        "/api/v1/instances/p%2F1/out-of-service/plan",
        {"preset": "fast", "settings": {"canary_size": "1"}, "allow_last": False},
    )
    assert console.posts[1][1]["reason"] == "kernel update"
    assert "undo with: refloat changes undo 7" in outcome.output


def test_dry_run_shows_the_loads(console: FakeConsole) -> None:
    """Before and after; nothing is stored, so there is nothing to cancel."""
    outcome = refloat(console, "service", "take-out", "proxy-1", "--dry-run")
    assert "proxy-2: 20 tunnels now, about 40 afterwards" in outcome.output
    assert "proxy-1: 20 tunnels now, 0 afterwards" in outcome.output
    assert [path for path, _, _ in console.posts] == [
        "/api/v1/instances/p%2F1/out-of-service/plan?dry_run=true"
    ]


def test_bring_back_waits_for_the_instance(console: FakeConsole) -> None:
    """With the reason; a failed change is an error."""
    outcome = refloat(console, "service", "bring-back", "proxy-1", "--reason", "updated")
    assert console.posts[0][1] == {"is_drained": False, "reason": "updated"}
    assert outcome.output.startswith("proxy-1: verified: 20 of 20")
    failed_progress = {**_PROGRESS, "state": "failed", "detail": "proxy-1 was deregistered"}
    console.responses["/api/v1/changes/7/progress"] = (200, failed_progress)
    outcome = refloat(console, "service", "bring-back", "proxy-1", "--reason", "updated")
    assert outcome.exit_code
    assert "change 7 failed: proxy-1 was deregistered" in outcome.output
