"""Simulated agents follow advisories like real agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import grpc.aio
import pytest

from fleet.nodes.simulation.fault_script import parse_fault
from fleet.nodes.simulation.fleet import SimulatedFleet, SimulationShape
from fleet.nodes.simulation.instance import SimulatedInstance
from fleet.transport.admin import RejectedError, TunnelAdminClient
from tests.fakes.local_advice import local_advice

_CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]


class _SimulatedAdvice:
    """A simulated fleet with its own clock, and the advisories of its first proxy."""

    def __init__(self, **shape: int) -> None:
        self.now = 1000.0
        self.fleet = SimulatedFleet(
            SimulationShape(**{"agents": 30, "proxies": 3, "connections": 1, **shape}), Random(3), self.now
        )
        self.advice = local_advice(self.fleet, lambda: self.now)
        self.proxy = self.fleet.proxies[0]

    def agents(self, proxy: int = 0) -> list[str]:
        return [
            agent_id
            for agent_id in self.fleet.ids
            if self.fleet.proxies[proxy].tunnels.get(agent_id) is not None
        ]

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            self.fleet.tick(self.now)


async def test_advised_agents_connect_elsewhere_before_they_leave() -> None:
    """The same advisory id advises no agent again."""
    simulation = _SimulatedAdvice()
    agent_ids = simulation.agents()
    counts = await simulation.advice.advise_agents(simulation.proxy, "x", agent_ids[:4], 0, dry_run=False)
    assert (counts.advised_count, counts.absent_count, counts.staying_count) == (4, 0, 0)
    simulation.pass_time(0.75)
    assert len(simulation.agents()) == 10
    assert len(simulation.agents(1)) + len(simulation.agents(2)) == 24
    simulation.pass_time(1)
    assert len(simulation.agents()) == 6
    assert simulation.fleet.min_tunnel_count == 1
    repeated_counts = await simulation.advice.advise_agents(
        simulation.proxy, "x", agent_ids, 0, dry_run=False
    )
    assert (repeated_counts.advised_count, repeated_counts.absent_count) == (6, 4)
    assert max(simulation.advice.sent_counts["x"].values()) == 1


async def test_staying_agents_reply_unless_they_ignore_advice() -> None:
    """An agent without another proxy replies that it stays, unless it ignores advice; a dry run advises nobody."""
    simulation = _SimulatedAdvice(proxies=2)
    simulation.fleet.apply_fault(parse_fault("ignore-advice proxy-1 15"), simulation.now)
    await simulation.advice.advise_agents(simulation.proxy, "x", (), 1, dry_run=False)
    simulation.pass_time(3)
    assert len(simulation.agents()) == 15
    counts = await simulation.advice.advise_agents(simulation.proxy, "x", (), 0, dry_run=True)
    assert (
        counts.advised_count,
        counts.already_advised_count,
        counts.remaining_count,
        counts.staying_count,
    ) == (
        0,
        1,
        14,
        0,
    )
    simulation.fleet.apply_fault(parse_fault("heal proxy-1"), simulation.now)
    simulation.fleet.apply_fault(parse_fault("unhealthy proxy-2"), simulation.now)
    await simulation.advice.advise_agents(simulation.proxy, "y", (), 0, dry_run=False)
    counts = await simulation.advice.advise_agents(simulation.proxy, "y", (), 0, dry_run=True)
    assert (counts.already_advised_count, counts.staying_count) == (15, 15)


async def test_old_tunnel_stays_if_the_new_proxy_dies() -> None:
    """No agent is without a tunnel."""
    simulation = _SimulatedAdvice(proxies=2)
    await simulation.advice.advise_agents(simulation.proxy, "x", simulation.agents()[:3], 0, dry_run=False)
    simulation.fleet.apply_fault(parse_fault("kill proxy-2"), simulation.now)
    simulation.pass_time(5)
    assert len(simulation.agents()) == 15


@pytest.fixture
async def admin() -> AsyncIterator[TunnelAdminClient]:
    simulation = _SimulatedAdvice()
    instance = SimulatedInstance(
        simulation.fleet, simulation.proxy, {}, lambda: simulation.now, simulation.advice
    )
    await instance.apply_state()
    async with grpc.aio.insecure_channel(instance.addresses[0], options=_CHANNEL_OPTIONS) as channel:
        yield TunnelAdminClient(channel)
    await instance.stop()


async def test_simulated_proxy_serves_the_admin_calls(admin: TunnelAdminClient) -> None:
    """The responses are those of a real proxy."""
    counts = await admin.advise_reconnect("x", "to try", agent_ids=["nobody"])
    assert (counts.advised_count, counts.absent_ids) == (0, ("nobody",))
    assert (await admin.advise_reconnect("x", "to try", limit=2)).remaining_count == 8
    with pytest.raises(RejectedError, match="advisory_id"):
        await admin.advise_reconnect("", "to try")


async def test_agents_move_to_another_auth_and_keep_their_tunnels() -> None:
    """Only agents of the given auth move; if no other auth is healthy, they stay and reply so."""
    simulation = _SimulatedAdvice(auths=2)
    leave = simulation.fleet.auths[0]
    agent_ids = [
        agent_id
        for agent_id in simulation.agents()
        if simulation.fleet.auth_by_agent[simulation.fleet.ids.index(agent_id)] == 0
    ]
    assert 0 < len(agent_ids) < len(simulation.agents())
    counts = await simulation.advice.advise_agents(
        simulation.proxy, "x", (), 0, dry_run=False, leave_auth=leave.id
    )
    assert counts.advised_count == len(simulation.agents()) == 10
    assert {
        int(simulation.fleet.auth_by_agent[simulation.fleet.ids.index(agent_id)])
        for agent_id in simulation.agents()
    } == {1}
    simulation.pass_time(2)
    assert len(simulation.agents()) == 10
    simulation.fleet.apply_fault(parse_fault("unhealthy auth-1"), simulation.now)
    await simulation.advice.advise_agents(simulation.proxy, "y", (), 0, dry_run=False, leave_auth="")
    repeated_counts = await simulation.advice.advise_agents(
        simulation.proxy, "y", (), 0, dry_run=True, leave_auth=""
    )
    assert (repeated_counts.already_advised_count, repeated_counts.staying_count) == (10, 10)
    assert (
        await simulation.advice.advise_agents(simulation.proxy, "y", (), 0, dry_run=True)
    ).already_advised_count == 0
