from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import grpc.aio
import psutil
import pytest

from fleet.nodes.simulation import program as simulation
from fleet.nodes.simulation.fault_script import SimulatedFaultError, parse_fault, parse_script
from fleet.nodes.simulation.fleet import SimulationShape
from fleet.transport.admin import TunnelAdminClient
from fleet.wire import fleet_pb2, fleet_pb2_grpc, presence_pb2, presence_pb2_grpc
from tests.fakes.waiting import eventually

_SHAPE = SimulationShape(agents=60, proxies=3, auths=2)


async def test_two_processes_simulate_one_fleet(tmp_path: Path) -> None:
    """The agents' claims and the proxies' tunnels agree, and no process is left at the end."""
    async with simulation.Simulation(_SHAPE, seed=1, processes=2).run() as started_simulation:
        simulation.write_record(tmp_path, started_simulation)
        recorded_simulation = simulation.find_running(tmp_path)
        assert recorded_simulation is not None
        assert await simulation.inject_fault(recorded_simulation, parse_fault("strand proxy-1 10")) == [
            "proxy-1"
        ]
        with pytest.raises(SimulatedFaultError, match="proxy-7"):
            await simulation.inject_fault(recorded_simulation, parse_fault("strand proxy-7 10"))
        claims, tunnels = await _fetch_claims_and_tunnels(recorded_simulation)
        assert claims == tunnels
        assert len(tunnels) == 100

        async with grpc.aio.insecure_channel(started_simulation.directory["proxy-1"][0]) as channel:
            assert (
                await TunnelAdminClient(channel).advise_reconnect("x", "to try", limit=5)
            ).advised_count == 5
        assert await simulation.read_advice_summary(recorded_simulation) == simulation.AdviceSummary(
            {"x": 5}, 1, _SHAPE.tunnels_per_agent
        )

        async def have_moved() -> bool:
            claims, now = await _fetch_claims_and_tunnels(recorded_simulation)
            return claims == now and len(now) == 100 and len(now - tunnels) == 5

        await eventually(have_moved)
        pids = started_simulation.pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def _fetch_claims_and_tunnels(
    running_simulation: simulation.RunningSimulation,
) -> tuple[set[Any], set[Any]]:
    """Return the pairs of agent and proxy as the agents report them, and as the proxies do."""
    async with grpc.aio.insecure_channel(running_simulation.auths[1]) as channel:
        presence = presence_pb2_grpc.PresenceServiceStub(channel)
        proxies = await presence.ListProxyServers(presence_pb2.ListProxyServersRequest())
        agents = await fleet_pb2_grpc.AgentFeedStub(channel).ListAgents(fleet_pb2.ListAgentsRequest())
    claims = {(e.agent.agent_id, proxy) for e in agents.agents for proxy in e.agent.tracker.claimed}
    tunnels = set()
    for proxy in proxies.servers:
        async with grpc.aio.insecure_channel(proxy.spec.addr) as channel:
            response = await fleet_pb2_grpc.TunnelFeedStub(channel).ListTunnels(
                fleet_pb2.ListTunnelsRequest()
            )
        tunnels |= {(tunnel.agent_id, proxy.metadata.name) for tunnel in response.tunnels}
    return claims, tunnels


async def test_simulation_plays_its_script_in_order() -> None:
    """An invalid step does not stop the others."""
    lines: list[str] = []
    async with simulation.Simulation(_SHAPE, seed=1, processes=1).run() as running_simulation:
        await running_simulation.play(parse_script("t=0 kill proxy-9\nt=0.05 freeze proxy-2"), lines.append)
    assert lines[0].startswith("t=0 kill proxy-9: no instance")
    assert lines[1] == "t=0.05 freeze proxy-2: proxy-2"


async def test_dead_process_ends_the_simulation() -> None:
    """Half a fleet must not look like a whole fleet."""
    async with simulation.Simulation(_SHAPE, seed=1, processes=2).run() as running_simulation:
        os.kill(running_simulation.pids[1], signal.SIGKILL)
        with pytest.raises(simulation.SimulationError, match="process 1 of the simulation ended"):
            await asyncio.wait_for(running_simulation.watch_processes(), 60)


def test_record_of_ended_simulation_is_ignored(tmp_path: Path) -> None:
    """The pid in the record does not exist any more."""
    assert simulation.find_running(tmp_path) is None
    (tmp_path / "simulate.json").write_text('{"pid": 99999999, "control": "x", "auths": []}')
    assert simulation.find_running(tmp_path) is None
