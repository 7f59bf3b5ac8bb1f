"""Commands that show the fleet in the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.console import format_instances
from fleet.cli.main import main
from fleet.vocabulary.verdicts import State
from tests.fakes.console import TOKEN, FakeConsole, run_console

DATED = {"cluster": "default", "as_of": "2026-01-02T03:04:05Z", "age_ms": 400, "is_stale": False}
PROXY = {"id": "p", "name": "proxy-1", "group": "blue", "generation": 3}
AGENT: dict[str, Any] = {
    "id": "a",
    "name": "agent-1",
    "state": "at_risk",
    "explanation": "Its proxy does not answer.",
    "cause": "p",
    "recovery": "by-itself",
    "recovers_at": "2026-01-02T03:05:00Z",
    "strands_at": None,
    "since": "2026-01-02T03:04:00Z",
    "auth": None,
    "mode": "reconnect",
    "health_check": True,
    "policy_read_at": None,
    "proxies": [PROXY],
    "home_proxy": PROXY,
    "version": "18.2.1",
    "labels": {"env": "prod", "site": "oslo"},
    "heartbeat_at": None,
    "expires_at": None,
}
SUMMARY = {
    **DATED,
    "interval_ms": 600,
    "agent_count": 200,
    "instance_count": 7,
    "counts": {**{state.slug: 0 for state in State}, "healthy": 198, "at_risk": 2},
}
INSTANCES = {
    **DATED,
    "instances": [
        {
            "name": "proxy-1",
            "kind": "proxy",
            "state": "silent",
            "address": "127.0.0.1:5",
            "agent_count": 50,
            "group": "blue",
            "generation": 3,
            "drain": {"reason": "kernel update", "since": "2026-01-02T03:04:00Z"},
            "explanation": "It does not answer.",
        },
        {
            "name": "proxy-2",
            "kind": "proxy",
            "state": "silent",
            "address": "127.0.0.1:6",
            "agent_count": 0,
            "group": "",
            "generation": 0,
            "drain": None,
            "is_drain_requested": True,
            "explanation": "It does not answer.",
        },
    ],
}


@pytest.fixture
def fake() -> Iterator[FakeConsole]:
    with run_console() as console:
        console.responses = {
            "/api/v1/fleet/summary": (200, SUMMARY),
            "/api/v1/instances": (200, INSTANCES),
            "/api/v1/agents?limit=100": (200, {**DATED, "total_count": 1, "next": None, "agents": [AGENT]}),
            "/api/v1/agents/a%2Fb": (200, AGENT),
        }
        yield console


def refloat(fake: FakeConsole, *arguments: str) -> Result:
    return CliRunner(env={"REFLOAT_URL": fake.url, "REFLOAT_TOKEN": TOKEN}).invoke(main, arguments)


def test_summary_counts_every_state_and_says_its_age(fake: FakeConsole) -> None:
    """Words of the page, and how old they are."""
    lines = refloat(fake, "summary").output.splitlines()
    assert "at risk          2" in lines
    assert "stranded         0" in lines
    assert lines[-1] == "data is 0.4 s old"


def test_summary_says_how_long_it_is_to_recovery(fake: FakeConsole) -> None:
    """From the end of the round, on a line below the headline. An older console sends no deadline."""
    headline = {
        "state": "at_risk", "text": "3 agents at risk.", "recovers_at": "2026-09-21T14:02:00Z", "actions": [],
        "preventions": [], "incidents": [],
    }  # fmt: skip
    response = {**SUMMARY, "as_of": "2026-09-21T13:50:00.123456Z", "headline": headline}
    fake.responses["/api/v1/fleet/summary"] = (200, response)
    assert refloat(fake, "summary").output.splitlines()[1] == "Recovery in about 12 min."
    headline["strands_at"] = "2026-09-21T13:50:48Z"
    assert refloat(fake, "watch", "--once").output.splitlines()[2] == (
        "First stranding in about 50 s. Recovery in about 12 min."
    )


def test_actions_have_whole_urls(fake: FakeConsole) -> None:
    """A path alone cannot be opened from a terminal."""
    action = {"label": "Repair proxy-1", "path": "/alerts/runbooks/proxy/?instance=a"}
    headline = {
        "state": "at_risk",
        "text": "3 agents at risk.",
        "actions": [action],
        "preventions": [],
        "incidents": [],
    }
    fake.responses["/api/v1/fleet/summary"] = (200, {**SUMMARY, "headline": headline})
    line = f"Action: Repair proxy-1 ({fake.url}/alerts/runbooks/proxy/?instance=a)"
    assert line in refloat(fake, "summary").output.splitlines()
    assert line in refloat(fake, "watch", "--once").output.splitlines()


def test_summary_shows_that_data_is_stale(fake: FakeConsole) -> None:
    """Old data is never shown as new."""
    fake.responses["/api/v1/fleet/summary"] = (200, {**SUMMARY, "is_stale": True})
    assert "STALE" in refloat(fake, "summary").output
    fake.responses["/api/v1/fleet/summary"] = (200, {**SUMMARY, "age_ms": None})
    assert "no data yet" in refloat(fake, "summary").output


def test_lists_show_names_and_reasons(fake: FakeConsole) -> None:
    """One line each."""
    agents = " ".join(refloat(fake, "agents").output.split())
    assert (
        "agent-1 at risk 18.2.1 env=prod site=oslo reconnect, health check proxy-1 (blue 3) Its proxy does not answer."
        in agents
    )
    instances = " ".join(refloat(fake, "instances").output.split())
    assert (
        "proxy-1 not responding 127.0.0.1:5 50 (last known) blue 3 kernel update It does not answer."
        in instances
    )
    assert "proxy-2 not responding 127.0.0.1:6 0 (last known) requested It does not answer." in instances


def test_lists_leave_out_unknown_values(fake: FakeConsole) -> None:
    """An agent without a heartbeat has no mode, a proxy without a group no generation."""
    proxy = {**PROXY, "group": "", "generation": 0}
    silent = {**AGENT, "mode": "unknown", "health_check": None, "proxies": [proxy]}
    fake.responses["/api/v1/agents/a%2Fb"] = (200, silent)
    lines = refloat(fake, "agent", "a/b").output.splitlines()
    assert "tunnels to      proxy-1" in lines
    assert {"version         18.2.1", "labels          env=prod site=oslo"} <= set(lines)
    assert not any(line.startswith("mode") for line in lines)
    fake.responses["/api/v1/agents/a%2Fb"] = (200, {**silent, "mode": "pick_first", "health_check": False})
    assert "mode            pick_first" in refloat(fake, "agent", "a/b").output.splitlines()


def test_agent_is_shown_by_id(fake: FakeConsole) -> None:
    """The id is escaped in the path; unknown values are left out."""
    lines = refloat(fake, "agent", "a/b").output.splitlines()
    assert "recovery        automatic at 2026-01-02 03:05:00 UTC" in lines
    assert not any(line.startswith("auth") for line in lines)


def test_agent_is_shown_by_name(fake: FakeConsole) -> None:
    """If several agents have the name, the error lists their ids."""
    fake.responses["/api/v1/agents/a"] = (200, AGENT)
    agents_response = {
        **DATED,
        "total_count": 2,
        "next": None,
        "agents": [{**AGENT, "id": "x", "name": "agent-10"}, AGENT],
    }
    fake.responses["/api/v1/agents?q=agent-1&limit=500"] = (200, agents_response)
    assert "agent           agent-1 (a)" in refloat(fake, "agent", "agent-1").output
    ambiguous_response = {**agents_response, "agents": [AGENT, {**AGENT, "id": "z"}]}
    fake.responses["/api/v1/agents?q=agent-1&limit=500"] = (200, ambiguous_response)
    refused_outcome = refloat(fake, "agent", "agent-1")
    assert refused_outcome.exit_code == 2
    assert "2 agents have the name agent-1; use an id: a, z" in refused_outcome.output
    missing_outcome = refloat(fake, "agent", "nobody")
    assert (missing_outcome.exit_code, missing_outcome.output.count("HTTP 404")) == (2, 1)


@pytest.mark.parametrize(
    "arguments", [("summary",), ("agents",), ("instances",), ("agent", "a/b")], ids=" ".join
)
def test_json_is_the_response_of_the_api(fake: FakeConsole, arguments: tuple[str, ...]) -> None:
    """For scripts."""
    outcome = refloat(fake, *arguments, "--json")
    assert outcome.exit_code == 0
    assert json.loads(outcome.output)


def test_wrong_token_is_one_line_and_exit_code_2(fake: FakeConsole) -> None:
    """As everywhere."""
    outcome = CliRunner(env={"REFLOAT_URL": fake.url, "REFLOAT_TOKEN": "wrong"}).invoke(main, ["summary"])
    assert outcome.exit_code == 2
    assert len(outcome.stderr.splitlines()) == 1


def test_table_of_instances_has_the_tunnels_that_proxies_count() -> None:
    """Of products that do not name the agents; an older console sends no counts."""
    instance = {
        "name": "proxy-1",
        "kind": "proxy",
        "state": "ok",
        "address": "",
        "agent_count": 0,
        "generation": 0,
        "group": "",
        "drain": None,
        "explanation": "",
    }
    counts = {
        "counted_at": "2026-11-28T10:00:00Z",
        "connection_counts": {"app": 12, "node": 397},
        "counts_text": "3 of 400 SSH tunnels are missing at proxy-1.",
    }
    table = format_instances([instance, {**instance, **counts}])
    [_, older_row, row] = table.splitlines()
    assert older_row.split() == ["proxy-1", "OK", "0"]
    assert row.split()[:3] == ["proxy-1", "OK", "409"]
    assert row.endswith("3 of 400 SSH tunnels are missing at proxy-1.")
