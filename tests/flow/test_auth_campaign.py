"""A campaign over a real fleet: agents leave a sick auth that holds their connections, and keep their tunnels."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.waiting import eventually_sync
from tests.flow.running import Demo, start_demo
from tests.meta.house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
AGENTS = 12
PATIENCE = 300.0


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Two auths and two proxies with short TTLs; agents do not leave sick auths by themselves."""
    shape = ("--auths", "2", "--proxies", "2", "--agents", str(AGENTS))
    ttls = ("--announce-ttl", "10s", "--agent-announce-ttl", "12s")
    demo_process = start_demo(tmp_path_factory.mktemp("demo"), *shape, *ttls)
    try:
        yield demo_process
    finally:
        demo_process.stop()


def _agents(demo: Demo) -> dict[str, dict[str, Any]]:
    return {agent["id"]: agent for agent in demo.get(f"agents?limit={AGENTS}")["agents"]}


def _agent_ids_at(demo: Demo, auth: str) -> set[str]:
    """Agents whose heartbeats an auth wrote last."""
    return {
        agent_id
        for agent_id, agent in _agents(demo).items()
        if agent["auth"] and agent["auth"]["name"] == auth
    }


def _proxies(demo: Demo) -> dict[str, list[str]]:
    """The proxies to which agents have tunnels, by agent."""
    return {
        agent_id: sorted(proxy["name"] for proxy in agent["proxies"])
        for agent_id, agent in _agents(demo).items()
    }


def _reconnect(demo: Demo, *args: str) -> dict[str, Any]:
    """Run `refloat reconnect` to its end; return the change."""
    argv = [sys.executable, "-m", "fleet.cli", "reconnect", "start", *args]
    argv += ["--yes", "--reason", "the auth is sick", "--json", "--home", str(demo.home)]
    process = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    output: dict[str, Any] = json.loads(process.stdout)
    return output


def test_agents_leave_a_sick_auth(demo: Demo) -> None:
    """The cut strands the agents of auth-2, whose policy is pick_first; the campaign brings each back while the auth
    is as sick as before, through the tunnels, which stay."""
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    victims = _agent_ids_at(demo, "auth-2")
    assert victims
    tunnels = _proxies(demo)
    demo.fleet("block-backend", "auth-2")
    eventually_sync(
        lambda: (
            {agent_id for agent_id, agent in _agents(demo).items() if agent["state"] == "stranded"} == victims
        ),
        seconds=PATIENCE,
    )

    output = _reconnect(demo, "--auth", "auth-2", "--setting", "soak_seconds=1")
    assert (output["state"], output["succeeded_count"], output["failed_count"]) == (
        "verified",
        len(victims),
        0,
    )
    change = demo.get(f"changes/{output['id']}")
    assert change["plan"]["agents_by_instance"] == {"auth-2": len(victims)}
    assert list(change["plan"]["destinations"]) == ["auth-1"]
    results = demo.get(f"changes/{output['id']}/agents")["agents"]
    assert {(row["from_instance"], row["new_auth"], row["state"]) for row in results} == {
        ("auth-2", "auth-1", "succeeded")
    }
    assert {row["id"] for row in results} == victims
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    assert not _agent_ids_at(demo, "auth-2")
    assert _proxies(demo) == tunnels
    demo.fleet("unblock-backend", "auth-2")
