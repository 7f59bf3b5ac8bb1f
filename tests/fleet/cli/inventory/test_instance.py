"""`refloat instance` in the terminal."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from fleet.cli.inventory.instance import format_instance
from fleet.cli.main import main
from tests.fakes.console import TOKEN, run_console

RESPONSE: dict[str, Any] = {
    "cluster": "default",
    "as_of": "2026-01-02T03:04:05Z",
    "age_ms": 400,
    "is_stale": False,
    "instance": {
        "id": "p",
        "name": "proxy-1",
        "kind": "proxy",
        "label": "OK",
        "explanation": "",
        "health": "healthy",
        "drain": None,
        "version": "18.2.1",
        "address": "127.0.0.1:5",
        "expires_at": None,
    },
    "since": "2026-01-02T03:04:00Z",
    "agent_counts": {"healthy": 37, "at_risk": 1},
    "failure_forecast": {
        "text": "If proxy-1 fails now, 37 agents lose their only tunnel.",
        "details": [],
        "agent_count": 37,
        "agent_query": "only-proxy:proxy-1",
        "automatic_count": None,
        "waiting_count": None,
    },
    "forecast_reason": "",
    "history": [
        {
            "lane": "state",
            "label": "not responding",
            "since": "2026-01-02T01:00:00Z",
            "until": "2026-01-02T02:00:00Z",
        }
    ],
    "incidents": [{"number": 4, "summary": "proxy-1 expired", "is_resolved": True, "severity": "warning"}],
    "changes": [{"number": 9, "title": "Drain proxy-1", "state": "verified", "at": "2026-01-02T01:00:00Z"}],
}


def test_text_has_what_the_page_has() -> None:
    """Facts, forecast with the command that lists its agents, history, incidents and changes."""
    text = format_instance(RESPONSE)
    for line in (
        "agents             37 healthy, 1 at risk",
        "If proxy-1 fails now, 37 agents lose their only tunnel.",
        "List them: refloat agents --search 'only-proxy:proxy-1'",
        "  state: not responding, 2026-01-02 01:00:00 UTC to 2026-01-02 02:00:00 UTC",
        "  4: proxy-1 expired (resolved)",
        "  9: Drain proxy-1 (verified), 2026-01-02 01:00:00 UTC",
    ):
        assert line in text.splitlines()


def test_text_without_a_forecast() -> None:
    """The reason stands in its place; parts without rows are left out."""
    text = format_instance(
        {
            **RESPONSE,
            "failure_forecast": None,
            "forecast_reason": "No tunnels.",
            "history": [],
            "incidents": [],
        }
    )
    assert "No tunnels." in text.splitlines()
    assert "Incidents:" not in text


def test_command_asks_by_name() -> None:
    """The console finds the id; `--json` prints the whole response."""
    with run_console() as console:
        console.responses = {"/api/v1/instances/web%2Fproxy": (200, RESPONSE)}
        runner = CliRunner(env={"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN})
        response = runner.invoke(main, ["instance", "web/proxy", "--json"])
    assert response.exit_code == 0
    assert json.loads(response.output)["failure_forecast"]["agent_count"] == 37
