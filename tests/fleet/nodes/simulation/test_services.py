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
class _Served:
    """An invented fleet of which one auth and one proxy are served."""

    fleet: SimulatedFleet
    clock: _Clock
    auth: grpc.aio.Channel
    proxy: grpc.aio.Channel


@pytest.fixture
async def served() -> AsyncIterator[_Served]:
    clock = _Clock(time.time())
    fleet = SimulatedFleet(SimulationShape(agents=120, proxies=3, churn=0.05), Random(11), clock.now)
    directory = {
        instance.name: (f"10.0.0.1:{3000 + instance.index}", "10.0.0.1:1") for instance in fleet.instances
    }
    instances = [
        SimulatedInstance(fleet, one, directory, clock, local_advice(fleet, clock))
        for one in (fleet.auths[0], fleet.proxies[0])
    ]
    for instance in instances:
        await instance.apply_state()
    async with (
        grpc.aio.insecure_channel(instances[0].addresses[0]) as auth,
        grpc.aio.insecure_channel(instances[1].addresses[0]) as proxy,
    ):
        yield _Served(fleet, clock, auth, proxy)
    for instance in instances:
        await instance.stop()


class _AgentFollower:
    """What a poller does with the feed of agents."""

    def __init__(self, channel: grpc.aio.Channel, limit: int) -> None:
        self._stub = fleet_pb2_grpc.AgentFeedStub(channel)
        self._limit = limit
        self.epoch, self.revision = "", 0
        self.seen: dict[str, tuple[str, int]] = {}
        self.calls = 0

    async def poll(self, now: float) -> None:
        more = True
        while more:
            request = fleet_pb2.ListAgentsRequest(
                epoch=self.epoch, since_revision=self.revision, limit=self._limit
            )
            answer = await self._stub.ListAgents(request)
            self.calls += 1
            if answer.full:
                self.seen.clear()
            for entry in answer.agents:
                self.seen[entry.agent.agent_id] = (entry.auth_id, round(now + entry.expires_in_ms / 1000))
            self.epoch, self.revision, more = answer.epoch, answer.revision, answer.more


class _TunnelFollower:
    """What a poller does with the feed of a proxy's tunnels."""

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
            answer = await self._stub.ListTunnels(request)
            if answer.full:
                self.open.clear()
            for tunnel in answer.tunnels:
                self.open[tunnel.agent_id] = round(now - tunnel.open_for_ms / 1000)
            for agent in answer.closed:
                self.open.pop(agent, None)
            self.epoch, self.revision, more = answer.epoch, answer.revision, answer.more


async def test_feeds_deltas_applied_equal_a_fresh_full_list(served: _Served) -> None:
    """The law of incremental reports, through heartbeats, churn, stranding and healing, in small pages."""
    agents, tunnels = _AgentFollower(served.auth, 7), _TunnelFollower(served.proxy, 7)
    script = {20: "strand proxy-1 15", 40: "block-backend auth-2", 60: "offline proxy-2 9", 80: "heal all"}
    for second in range(0, 400, 10):
        if second in script:
            served.fleet.apply(parse_fault(script[second]), served.clock.now)
        served.clock.now += 10
        served.fleet.tick(served.clock.now)
        await agents.poll(served.clock.now)
        await tunnels.poll(served.clock.now)
    fresh_agents, fresh_tunnels = _AgentFollower(served.auth, 0), _TunnelFollower(served.proxy, 0)
    await fresh_agents.poll(served.clock.now)
    await fresh_tunnels.poll(served.clock.now)
    assert fresh_agents.calls == 1
    assert agents.seen == fresh_agents.seen
    assert len(agents.seen) == 120
    assert tunnels.open == fresh_tunnels.open


async def test_feeds_with_nothing_new_answer_nothing(served: _Served) -> None:
    """The steady cost of a poll grows with what changed."""
    stub = fleet_pb2_grpc.AgentFeedStub(served.auth)
    first = await stub.ListAgents(fleet_pb2.ListAgentsRequest())
    again = await stub.ListAgents(
        fleet_pb2.ListAgentsRequest(epoch=first.epoch, since_revision=first.revision)
    )
    assert first.full
    assert not again.full
    assert not again.agents
    assert again.revision == first.revision


async def test_feeds_foreign_epoch_or_future_revision_is_answered_in_full(served: _Served) -> None:
    """A caller of another fleet, or of a later life, starts over."""
    stub = fleet_pb2_grpc.AgentFeedStub(served.auth)
    known = await stub.ListAgents(fleet_pb2.ListAgentsRequest())
    for epoch, revision in (("elsewhere", 3), (known.epoch, known.revision + 1000)):
        answer = await stub.ListAgents(fleet_pb2.ListAgentsRequest(epoch=epoch, since_revision=revision))
        assert answer.full
        assert len(answer.agents) == 120


async def test_agent_entry_carries_policy_and_tracker(served: _Served) -> None:
    """Claims match the tunnels, and the policy is the agent's own."""
    answer = await fleet_pb2_grpc.AgentFeedStub(served.auth).ListAgents(fleet_pb2.ListAgentsRequest())
    entry = answer.agents[0].agent
    assert entry.policy.mode in {"reconnect", "pick_first"}
    assert entry.policy.health_check == (entry.policy.mode == "reconnect")
    assert entry.tracker.desired_count == len(entry.tracker.claimed) == 2
    assert entry.ttl_ms == 600_000


async def test_presence_pages_and_drops_the_expired(served: _Served) -> None:
    """Pages reach every proxy once; one that stopped renewing is gone after its TTL."""
    stub = presence_pb2_grpc.PresenceServiceStub(served.auth)
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
    served.fleet.apply(parse_fault("expire proxy-2"), served.clock.now)
    for _ in range(14):
        served.clock.now += 50
        served.fleet.tick(served.clock.now)
    page = await stub.ListProxyServers(presence_pb2.ListProxyServersRequest())
    assert [server.spec.hostname for server in page.servers] == ["proxy-1", "proxy-3"]
    auths = await stub.ListAuthServers(presence_pb2.ListAuthServersRequest())
    assert [server.spec.hostname for server in auths.servers] == ["auth-1", "auth-2"]
    assert auths.servers[0].metadata.labels["refloat.dev/announce-ttl"] == "600s"


async def test_presence_foreign_token_is_refused(served: _Served) -> None:
    """A token we did not give out is an invalid argument, not the first page."""
    stub = presence_pb2_grpc.PresenceServiceStub(served.auth)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ListAuthServers(presence_pb2.ListAuthServersRequest(page_token="next"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_service_config_wants_reconnect(served: _Served) -> None:
    """Readers of the policy find one."""
    stub = grpcclientconfig_pb2_grpc.ServiceConfigDiscoveryServiceStub(served.auth)
    answer = await stub.GetServiceConfig(grpcclientconfig_pb2.GetServiceConfigRequest())
    assert answer.config.load_balancing_config[0].teleport_pick_healthy.mode == "reconnect"
    assert answer.config.HasField("health_check_config")
