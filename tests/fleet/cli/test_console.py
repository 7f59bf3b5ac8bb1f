"""What a console sees, in the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from fleet.vocabulary.verdicts import State
from tests.fakes.console import TOKEN, FakeConsole, answering

DATED = {"cluster": "default", "as_of": "2026-01-02T03:04:05Z", "age_ms": 400, "stale": False}
PROXY = {"id": "p", "name": "proxy-1", "group": "blue", "generation": 3}
AGENT: dict[str, Any] = {
    "id": "a",
    "name": "agent-1",
    "state": "at_risk",
    "sentence": "Its proxy does not answer.",
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
    "home": PROXY,
    "heartbeat_at": None,
    "expires_at": None,
}
SUMMARY = {
    **DATED,
    "interval_ms": 600,
    "agents": 200,
    "instances": 7,
    "counts": {**{state.slug: 0 for state in State}, "healthy": 198, "at_risk": 2},
}
INSTANCES = {
    **DATED,
    "instances": [
        {
            "name": "proxy-1",
            "state": "silent",
            "address": "127.0.0.1:5",
            "agents": 50,
            "group": "blue",
            "generation": 3,
            "draining": {"reason": "kernel update", "since": "2026-01-02T03:04:00Z"},
            "sentence": "It does not answer.",
        }
    ],
}


@pytest.fixture
def fake() -> Iterator[FakeConsole]:
    with answering() as console:
        console.answers = {
            "/api/v1/fleet/summary": (200, SUMMARY),
            "/api/v1/instances": (200, INSTANCES),
            "/api/v1/agents?limit=100": (200, {**DATED, "total": 1, "next": None, "agents": [AGENT]}),
            "/api/v1/agents/a%2Fb": (200, AGENT),
        }
        yield console


def refloat(fake: FakeConsole, *words: str) -> Result:
    return CliRunner(env={"REFLOAT_URL": fake.url, "REFLOAT_TOKEN": TOKEN}).invoke(main, words)


def test_summary_counts_every_state_and_says_its_age(fake: FakeConsole) -> None:
    """Words of the page, and how old they are."""
    lines = refloat(fake, "summary").output.splitlines()
    assert "at risk          2" in lines
    assert "stranded         0" in lines
    assert lines[-1] == "data is 0.4 s old"


def test_summary_stale_says_so(fake: FakeConsole) -> None:
    """Old data is never shown as new."""
    fake.answers["/api/v1/fleet/summary"] = (200, {**SUMMARY, "stale": True})
    assert "STALE" in refloat(fake, "summary").output
    fake.answers["/api/v1/fleet/summary"] = (200, {**SUMMARY, "age_ms": None})
    assert "no data yet" in refloat(fake, "summary").output


def test_lists_show_names_and_reasons(fake: FakeConsole) -> None:
    """One line each."""
    agents = " ".join(refloat(fake, "agents").output.split())
    assert "agent-1 at risk reconnect, health check proxy-1 (blue 3) Its proxy does not answer." in agents
    instances = " ".join(refloat(fake, "instances").output.split())
    assert "proxy-1 not responding 127.0.0.1:5 50 blue 3 kernel update It does not answer." in instances


def test_lists_leave_out_what_nobody_stated(fake: FakeConsole) -> None:
    """An agent without a heartbeat has no mode, a proxy without a group no generation."""
    proxy = {**PROXY, "group": "", "generation": 0}
    silent = {**AGENT, "mode": "unknown", "health_check": None, "proxies": [proxy]}
    fake.answers["/api/v1/agents/a%2Fb"] = (200, silent)
    lines = refloat(fake, "agent", "a/b").output.splitlines()
    assert "tunnels to      proxy-1" in lines
    assert not any(line.startswith("mode") for line in lines)
    fake.answers["/api/v1/agents/a%2Fb"] = (200, {**silent, "mode": "pick_first", "health_check": False})
    assert "mode            pick_first" in refloat(fake, "agent", "a/b").output.splitlines()


def test_agent_is_explained_by_id(fake: FakeConsole) -> None:
    """Whatever is in the id, it is one piece of the path; what is unknown takes no line."""
    lines = refloat(fake, "agent", "a/b").output.splitlines()
    assert "recovery        automatic at 2026-01-02T03:05:00Z" in lines
    assert not any(line.startswith("auth") for line in lines)


def test_agent_is_explained_by_name(fake: FakeConsole) -> None:
    """The list shows names, so a name is what is at hand; where several agents have it, their ids are named."""
    fake.answers["/api/v1/agents/a"] = (200, AGENT)
    found = {**DATED, "total": 2, "next": None, "agents": [{**AGENT, "id": "x", "name": "agent-10"}, AGENT]}
    fake.answers["/api/v1/agents?q=agent-1&limit=500"] = (200, found)
    assert "agent           agent-1 (a)" in refloat(fake, "agent", "agent-1").output
    twice = {**found, "agents": [AGENT, {**AGENT, "id": "z"}]}
    fake.answers["/api/v1/agents?q=agent-1&limit=500"] = (200, twice)
    refused = refloat(fake, "agent", "agent-1")
    assert refused.exit_code == 2
    assert "2 agents have the name agent-1; use an id: a, z" in refused.output
    nobody = refloat(fake, "agent", "nobody")
    assert (nobody.exit_code, nobody.output.count("404")) == (2, 1)


@pytest.mark.parametrize("words", [("summary",), ("agents",), ("instances",), ("agent", "a/b")], ids=" ".join)
def test_json_is_the_apis_answer(fake: FakeConsole, words: tuple[str, ...]) -> None:
    """For scripts."""
    done = refloat(fake, *words, "--json")
    assert done.exit_code == 0
    assert json.loads(done.output)


def test_console_unknown_is_one_line_and_code_2(fake: FakeConsole) -> None:
    """As everywhere."""
    done = CliRunner(env={"REFLOAT_URL": fake.url, "REFLOAT_TOKEN": "wrong"}).invoke(main, ["summary"])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
