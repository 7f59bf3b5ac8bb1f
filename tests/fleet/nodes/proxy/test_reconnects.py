"""Reconnect advisories: periodic, requested and at shutdown; agents follow them with make before break."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.reconnects import ReconnectAdvisor
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.discovery import Publisher
from fleet.wire import fleet_pb2
from fleet.wire.fleet_pb2 import AdviseReconnectResponse as Answer
from tests.fakes.plane import Plane
from tests.fakes.waiting import eventually


class AdvisedTunnels:
    """A table of tunnels, and the reconnects that advise their agents."""

    def __init__(self, *agents: str, interval: float = 0.0) -> None:
        metrics = ProxyMetrics(CollectorRegistry())
        self.table = TunnelTable(Publisher(10.0, compact=True), KeepAlive(), metrics)
        self.reconnects = ReconnectAdvisor(self.table, interval, metrics)
        self.tunnels = {agent: self._open(agent) for agent in agents}

    def _open(self, agent: str) -> Tunnel:
        tunnel = self.table.open(fleet_pb2.AgentHello(agent_id=agent, name=agent), object(), 0.0)
        self.table.join(tunnel, 0.0)
        self.reconnects.add_tunnel(tunnel, 0.0)
        return tunnel

    async def read_advisory(self, agent: str) -> fleet_pb2.ReconnectAdvisory:
        frame = await self.tunnels[agent].next_frame(lambda: 0.0)
        assert frame is not None
        return frame.reconnect_advisory


async def test_agent_is_advised_once_per_advisory_id() -> None:
    """A new id advises the agent again."""
    advised_tunnels = AdvisedTunnels("a", "b")
    assert advised_tunnels.reconnects.advise_agents("x", "drain it", (), 0) == Answer(advised_count=2)
    assert advised_tunnels.reconnects.advise_agents("x", "drain it", (), 0) == Answer(already_advised_count=2)
    advisory = await advised_tunnels.read_advisory("a")
    assert (advisory.advisory_id, advisory.reason, advisory.leaving) == ("x", "drain it", False)
    assert advised_tunnels.reconnects.advise_agents("y", "again", (), 0) == Answer(advised_count=2)


def test_advisories_can_be_limited_by_count_and_agent() -> None:
    """The oldest tunnels are first; agents without a tunnel are counted as absent."""
    advised_tunnels = AdvisedTunnels("a", "b", "c")
    assert advised_tunnels.reconnects.advise_agents("x", "", (), 2) == Answer(
        advised_count=2, remaining_count=1
    )
    assert [advised_tunnels.tunnels[agent].advisory_id for agent in "abc"] == ["x", "x", ""]
    assert advised_tunnels.reconnects.advise_agents("x", "", (), 2) == Answer(
        advised_count=1, already_advised_count=2
    )
    assert advised_tunnels.reconnects.advise_agents("y", "", ("b", "nobody"), 0) == Answer(
        advised_count=1, absent_count=1, absent_ids=("nobody",)
    )


def test_agents_that_stay_are_listed() -> None:
    """Agents without another proxy reply that they stay; replies to older ids are ignored."""
    advised_tunnels = AdvisedTunnels("a", "b")
    advised_tunnels.reconnects.advise_agents("x", "", (), 0)
    for agent, advisory_id, is_accepted in (("a", "x", False), ("b", "x", True), ("b", "old", False)):
        reply = fleet_pb2.AdvisoryReply(advisory_id=advisory_id, accepted=is_accepted)
        advised_tunnels.reconnects.record_reply(advised_tunnels.tunnels[agent], reply)
    assert advised_tunnels.reconnects.advise_agents("x", "", (), 0) == Answer(
        already_advised_count=2, staying_count=1, staying_ids=("a",)
    )


def test_dry_run_advises_nobody() -> None:
    """The response has the outcomes so far."""
    advised_tunnels = AdvisedTunnels("a", "b")
    advised_tunnels.reconnects.advise_agents("x", "", ("a",), 0)
    advised_tunnels.reconnects.record_reply(
        advised_tunnels.tunnels["a"], fleet_pb2.AdvisoryReply(advisory_id="x", accepted=False)
    )
    counts = advised_tunnels.reconnects.advise_agents("x", "", (), 0, dry_run=True)
    assert counts == Answer(already_advised_count=1, remaining_count=1, staying_count=1, staying_ids=("a",))
    assert not advised_tunnels.tunnels["b"].advisory_id


async def test_periodic_advisories_follow_the_age_of_each_tunnel() -> None:
    """Closed tunnels get no advisory."""
    advised_tunnels = AdvisedTunnels("a", "b", interval=10.0)
    advised_tunnels.reconnects.sweep(9.0)
    advised_tunnels.reconnects.remove_tunnel(advised_tunnels.tunnels["b"])
    advised_tunnels.reconnects.sweep(15.0)
    assert bool(advised_tunnels.tunnels["a"].advisory_id)
    assert "10s" in (await advised_tunnels.read_advisory("a")).reason
    assert not advised_tunnels.tunnels["b"].advisory_id


async def test_advisory_at_shutdown_is_marked_as_leaving() -> None:
    """Agents must not return to a proxy that stops."""
    advised_tunnels = AdvisedTunnels("a")
    advised_tunnels.reconnects.shut_down()
    assert (await advised_tunnels.read_advisory("a")).leaving


def instance_ids(*proxies: Proxy) -> set[str]:
    return {proxy.instance.flags.id for proxy in proxies}


async def test_advised_agent_connects_elsewhere_before_it_leaves(plane: Plane) -> None:
    """With one proxy the agent stays and replies so; with two it never has fewer than one tunnel."""
    auth, old = await plane.auth(ttl=600.0), await plane.proxy("old", ttl=60.0)
    forward = await plane.forward("127.0.0.1:1")
    proxy_addresses = [old.instance.grpc_address, f"127.0.0.1:{forward.listen[1]}"]
    (agent,) = (await plane.agents(auth.instance.grpc_address, proxy_addresses)).agents
    await eventually(lambda: set(agent.tunnels.proxy_ids) == instance_ids(old))
    old.tunnels.reconnect_advisor.advise_agents("first", "try", (), 0)
    await eventually(
        lambda: old.tunnels.reconnect_advisor.advise_agents("first", "try", (), 0).staying_count == 1
    )
    assert set(agent.tunnels.proxy_ids) == instance_ids(old)

    other_proxy = await plane.proxy("other", ttl=60.0)
    host, _, port = other_proxy.instance.grpc_address.rpartition(":")
    await forward.change(target_address=(host, int(port)))
    await eventually(lambda: len(agent.snapshot().tracked_proxies) == 2)
    tunnel_counts: list[int] = []
    old.tunnels.reconnect_advisor.advise_agents("second", "go", (), 0)

    def has_moved() -> bool:
        tunnel_counts.append(len(agent.tunnels.proxy_ids))
        return set(agent.tunnels.proxy_ids) == instance_ids(other_proxy)

    await eventually(has_moved)
    assert min(tunnel_counts) >= 1


async def test_periodic_advisories_move_agents(plane: Plane) -> None:
    """Agents leave a proxy with a reconnect interval, and none is ever without a tunnel."""
    auth = await plane.auth(ttl=600.0)
    periodic_proxy = await plane.proxy("restless", ttl=60.0, reconnect_interval=1.0)
    forward = await plane.forward("127.0.0.1:1")
    proxy_addresses = [periodic_proxy.instance.grpc_address, f"127.0.0.1:{forward.listen[1]}"]
    group = await plane.agents(auth.instance.grpc_address, proxy_addresses, count=3)
    await eventually(
        lambda: all(set(agent.tunnels.proxy_ids) == instance_ids(periodic_proxy) for agent in group.agents)
    )
    other_proxy = await plane.proxy("calm", ttl=60.0)
    host, _, port = other_proxy.instance.grpc_address.rpartition(":")
    await forward.change(target_address=(host, int(port)))
    tunnel_counts: list[int] = []

    def have_moved() -> bool:
        tunnel_counts.extend(len(agent.tunnels.proxy_ids) for agent in group.agents)
        return all(set(agent.tunnels.proxy_ids) == instance_ids(other_proxy) for agent in group.agents)

    await eventually(have_moved)
    assert min(tunnel_counts) >= 1
