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
from fleet.transport.admin import TunnelAdmin
from fleet.wire import fleet_pb2, fleet_pb2_grpc, presence_pb2, presence_pb2_grpc
from tests.fakes.waiting import eventually

_SHAPE = SimulationShape(agents=60, proxies=3, auths=2)


async def test_simulation_in_two_processes_is_one_fleet(tmp_path: Path) -> None:
    """Agents of the auths' process and tunnels of the proxies' process are the same; ended, nothing runs."""
    async with simulation.Simulation(_SHAPE, seed=1, processes=2).run() as running:
        simulation.write_record(tmp_path, running)
        found = simulation.find_running(tmp_path)
        assert found is not None
        assert await simulation.inject_fault(found, parse_fault("strand proxy-1 10")) == ["proxy-1"]
        with pytest.raises(SimulatedFaultError, match="proxy-7"):
            await simulation.inject_fault(found, parse_fault("strand proxy-7 10"))
        claims, tunnels = await _claims_and_tunnels(found)
        assert claims == tunnels
        assert len(tunnels) == 100

        async with grpc.aio.insecure_channel(running.directory["proxy-1"][0]) as channel:
            assert (await TunnelAdmin(channel).advise_reconnect("x", "to try", limit=5)).advised == 5
        assert await simulation.read_advice(found) == simulation.AdviceSummary(
            {"x": 5}, 1, _SHAPE.tunnels_per_agent
        )

        async def moved() -> bool:
            claims, now = await _claims_and_tunnels(found)
            return claims == now and len(now) == 100 and len(now - tunnels) == 5

        await eventually(moved)
        pids = running.pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def _claims_and_tunnels(found: simulation.RunningSimulation) -> tuple[set[Any], set[Any]]:
    """(agent, proxy) as the agents say it, and as the proxies do."""
    async with grpc.aio.insecure_channel(found.auths[1]) as channel:
        presence = presence_pb2_grpc.PresenceServiceStub(channel)
        proxies = await presence.ListProxyServers(presence_pb2.ListProxyServersRequest())
        agents = await fleet_pb2_grpc.AgentFeedStub(channel).ListAgents(fleet_pb2.ListAgentsRequest())
    claims = {(e.agent.agent_id, proxy) for e in agents.agents for proxy in e.agent.tracker.claimed}
    tunnels = set()
    for proxy in proxies.servers:
        async with grpc.aio.insecure_channel(proxy.spec.addr) as channel:
            answer = await fleet_pb2_grpc.TunnelFeedStub(channel).ListTunnels(fleet_pb2.ListTunnelsRequest())
        tunnels |= {(tunnel.agent_id, proxy.metadata.name) for tunnel in answer.tunnels}
    return claims, tunnels


async def test_simulation_plays_its_script() -> None:
    """Steps happen in order, and a wrong one does not stop the others."""
    said: list[str] = []
    async with simulation.Simulation(_SHAPE, seed=1, processes=1).run() as running:
        await running.play(parse_script("t=0 kill proxy-9\nt=0.05 freeze proxy-2"), said.append)
    assert said[0].startswith("t=0 kill proxy-9: no instance")
    assert said[1] == "t=0.05 freeze proxy-2: proxy-2"


async def test_simulation_part_that_dies_is_an_error() -> None:
    """Half a fleet must not look like a whole one."""
    async with simulation.Simulation(_SHAPE, seed=1, processes=2).run() as running:
        os.kill(running.pids[1], signal.SIGKILL)
        with pytest.raises(simulation.SimulationError, match="process 1 of the simulation ended"):
            await asyncio.wait_for(running.watch_processes(), 60)


def test_find_of_a_dead_simulation_is_none(tmp_path: Path) -> None:
    """A note left by a process that is gone means nothing."""
    assert simulation.find_running(tmp_path) is None
    (tmp_path / "simulate.json").write_text('{"pid": 99999999, "control": "x", "auths": []}')
    assert simulation.find_running(tmp_path) is None
