from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random

import grpc.aio
import pytest

from fleet.nodes.simulation.fault_script import parse_fault
from fleet.nodes.simulation.fleet import SimulatedFleet, SimulationShape
from fleet.nodes.simulation.instance import SimulatedInstance
from fleet.wire import (
    fleet_pb2,
    fleet_pb2_grpc,
    grpcclientconfig_pb2,
    grpcclientconfig_pb2_grpc,
    presence_pb2,
    presence_pb2_grpc,
)
from tests.fakes.local_advice import local_advice


@dataclass
class _Clock:
    now: float

    def __call__(self) -> float:
        return self.now


@dataclass
class _ServedFleet:
    """A simulated fleet of which one auth and one proxy are served."""

    fleet: SimulatedFleet
    clock: _Clock
    auth: grpc.aio.Channel
    proxy: grpc.aio.Channel


@pytest.fixture
async def served_fleet() -> AsyncIterator[_ServedFleet]:
    clock = _Clock(time.time())
    fleet = SimulatedFleet(SimulationShape(agents=120, proxies=3, churn=0.05), Random(11), clock.now)
    directory = {
        instance.name: (f"10.0.0.1:{3000 + instance.index}", "10.0.0.1:1") for instance in fleet.instances
    }
    instances = [
        SimulatedInstance(fleet, instance_model, directory, clock, local_advice(fleet, clock))
        for instance_model in (fleet.auths[0], fleet.proxies[0])
    ]
    for instance in instances:
        await instance.apply_state()
    async with (
        grpc.aio.insecure_channel(instances[0].addresses[0]) as auth,
        grpc.aio.insecure_channel(instances[1].addresses[0]) as proxy,
    ):
        yield _ServedFleet(fleet, clock, auth, proxy)
    for instance in instances:
        await instance.stop()


class _AgentFollower:
    """Follow the feed of agents as a poller does."""

    def __init__(self, channel: grpc.aio.Channel, limit: int) -> None:
        self._stub = fleet_pb2_grpc.AgentFeedStub(channel)
        self._limit = limit
        self.epoch, self.revision = "", 0
        self.entries: dict[str, tuple[str, int]] = {}
        self.calls = 0

    async def poll(self, now: float) -> None:
        more = True
        while more:
            request = fleet_pb2.ListAgentsRequest(
                epoch=self.epoch, since_revision=self.revision, limit=self._limit
            )
            response = await self._stub.ListAgents(request)
            self.calls += 1
            if response.full:
                self.entries.clear()
            for entry in response.agents:
                self.entries[entry.agent.agent_id] = (entry.auth_id, round(now + entry.expires_in_ms / 1000))
            self.epoch, self.revision, more = response.epoch, response.revision, response.more


class _TunnelFollower:
    """Follow the feed of a proxy's tunnels as a poller does."""

    def __init__(self, channel: grpc.aio.Channel, limit: int) -> None:
        self._stub = fleet_pb2_grpc.TunnelFeedStub(channel)
        self._limit = limit
        self.epoch, self.revision = "", 0
        self.open: dict[str, int] = {}

    async def poll(self, now: float) -> None:
        more = True
        while more:
            request = fleet_pb2.ListTunnelsRequest(
                epoch=self.epoch, since_revision=self.revision, limit=self._limit
            )
            response = await self._stub.ListTunnels(request)
            if response.full:
                self.open.clear()
            for tunnel in response.tunnels:
                self.open[tunnel.agent_id] = round(now - tunnel.open_for_ms / 1000)
            for agent in response.closed:
                self.open.pop(agent, None)
            self.epoch, self.revision, more = response.epoch, response.revision, response.more


async def test_applied_deltas_equal_the_full_list(served_fleet: _ServedFleet) -> None:
    """The lists agree through heartbeats, churn, stranding and healing, in small pages."""
    agents, tunnels = _AgentFollower(served_fleet.auth, 7), _TunnelFollower(served_fleet.proxy, 7)
    script = {20: "strand proxy-1 15", 40: "block-backend auth-2", 60: "offline proxy-2 9", 80: "heal all"}
    for second in range(0, 400, 10):
        if second in script:
            served_fleet.fleet.apply_fault(parse_fault(script[second]), served_fleet.clock.now)
        served_fleet.clock.now += 10
        served_fleet.fleet.tick(served_fleet.clock.now)
        await agents.poll(served_fleet.clock.now)
        await tunnels.poll(served_fleet.clock.now)
    fresh_agents, fresh_tunnels = _AgentFollower(served_fleet.auth, 0), _TunnelFollower(served_fleet.proxy, 0)
    await fresh_agents.poll(served_fleet.clock.now)
    await fresh_tunnels.poll(served_fleet.clock.now)
    assert fresh_agents.calls == 1
    assert agents.entries == fresh_agents.entries
    assert len(agents.entries) == 120
    assert tunnels.open == fresh_tunnels.open


async def test_feed_without_changes_is_empty(served_fleet: _ServedFleet) -> None:
    """The cost of a poll depends on the number of changes."""
    stub = fleet_pb2_grpc.AgentFeedStub(served_fleet.auth)
    first_page = await stub.ListAgents(fleet_pb2.ListAgentsRequest())
    second_page = await stub.ListAgents(
        fleet_pb2.ListAgentsRequest(epoch=first_page.epoch, since_revision=first_page.revision)
    )
    assert first_page.full
    assert not second_page.full
    assert not second_page.agents
    assert second_page.revision == first_page.revision


async def test_unknown_epoch_or_future_revision_gets_the_full_list(served_fleet: _ServedFleet) -> None:
    """The caller followed another fleet or a later run."""
    stub = fleet_pb2_grpc.AgentFeedStub(served_fleet.auth)
    page = await stub.ListAgents(fleet_pb2.ListAgentsRequest())
    for epoch, revision in (("elsewhere", 3), (page.epoch, page.revision + 1000)):
        response = await stub.ListAgents(fleet_pb2.ListAgentsRequest(epoch=epoch, since_revision=revision))
        assert response.full
        assert len(response.agents) == 120


async def test_agent_entry_contains_policy_and_tracker(served_fleet: _ServedFleet) -> None:
    """The claims match the tunnels, and the policy is the agent's."""
    response = await fleet_pb2_grpc.AgentFeedStub(served_fleet.auth).ListAgents(fleet_pb2.ListAgentsRequest())
    entry = response.agents[0].agent
    assert entry.policy.mode in {"reconnect", "pick_first"}
    assert entry.policy.health_check == (entry.policy.mode == "reconnect")
    assert entry.tracker.desired_count == len(entry.tracker.claimed) == 2
    assert entry.ttl_ms == 600_000


async def test_presence_is_listed_in_pages_without_expired_instances(served_fleet: _ServedFleet) -> None:
    """The pages contain each proxy once, until its TTL has expired."""
    stub = presence_pb2_grpc.PresenceServiceStub(served_fleet.auth)
    names: list[str] = []
    token = ""
    while True:
        page = await stub.ListProxyServers(
            presence_pb2.ListProxyServersRequest(page_size=2, page_token=token)
        )
        names += [server.spec.hostname for server in page.servers]
        token = page.next_page_token
        if not token:
            break
    assert names == ["proxy-1", "proxy-2", "proxy-3"]
    served_fleet.fleet.apply_fault(parse_fault("expire proxy-2"), served_fleet.clock.now)
    for _ in range(14):
        served_fleet.clock.now += 50
        served_fleet.fleet.tick(served_fleet.clock.now)
    page = await stub.ListProxyServers(presence_pb2.ListProxyServersRequest())
    assert [server.spec.hostname for server in page.servers] == ["proxy-1", "proxy-3"]
    auths = await stub.ListAuthServers(presence_pb2.ListAuthServersRequest())
    assert [server.spec.hostname for server in auths.servers] == ["auth-1", "auth-2"]
    assert auths.servers[0].metadata.labels["refloat.dev/announce-ttl"] == "600s"


async def test_unknown_page_token_is_refused(served_fleet: _ServedFleet) -> None:
    """The status is INVALID_ARGUMENT."""
    stub = presence_pb2_grpc.PresenceServiceStub(served_fleet.auth)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ListAuthServers(presence_pb2.ListAuthServersRequest(page_token="next"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_service_config_has_mode_reconnect(served_fleet: _ServedFleet) -> None:
    """The config includes the health check."""
    stub = grpcclientconfig_pb2_grpc.ServiceConfigDiscoveryServiceStub(served_fleet.auth)
    response = await stub.GetServiceConfig(grpcclientconfig_pb2.GetServiceConfigRequest())
    assert response.config.load_balancing_config[0].teleport_pick_healthy.mode == "reconnect"
    assert response.config.HasField("health_check_config")
