"""Advice to reconnect: periodic, asked for, at the end of a proxy; and agents that follow it, make before break."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.reconnects import Reconnects
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.discovery import Publisher
from fleet.wire import fleet_pb2
from fleet.wire.fleet_pb2 import AdviseReconnectResponse as Answer
from tests.fakes.plane import Plane
from tests.fakes.waiting import eventually


class Bench:
    """A table with tunnels, and what advises them."""

    def __init__(self, *agents: str, interval: float = 0.0) -> None:
        metrics = ProxyMetrics(CollectorRegistry())
        self.table = TunnelTable(Publisher(10.0, compact=True), KeepAlive(), metrics)
        self.reconnects = Reconnects(self.table, interval, metrics)
        self.tunnels = {agent: self._open(agent) for agent in agents}

    def _open(self, agent: str) -> Tunnel:
        tunnel = self.table.open(fleet_pb2.AgentHello(agent_id=agent, name=agent), object(), 0.0)
        self.table.join(tunnel, 0.0)
        self.reconnects.add_tunnel(tunnel, 0.0)
        return tunnel

    async def told(self, agent: str) -> fleet_pb2.ReconnectAdvisory:
        frame = await self.tunnels[agent].next_frame(lambda: 0.0)
        assert frame is not None
        return frame.reconnect_advisory


async def test_asked_for_once_an_id() -> None:
    """Who has the advice is not advised again; another id is another intent."""
    bench = Bench("a", "b")
    assert bench.reconnects.advise_agents("x", "drain it", (), 0) == Answer(advised=2)
    assert bench.reconnects.advise_agents("x", "drain it", (), 0) == Answer(already=2)
    told = await bench.told("a")
    assert (told.advisory_id, told.reason, told.leaving) == ("x", "drain it", False)
    assert bench.reconnects.advise_agents("y", "again", (), 0) == Answer(advised=2)


def test_waves_and_names() -> None:
    """The longest open first, so many at a time; named ones only; who is not here is counted."""
    bench = Bench("a", "b", "c")
    assert bench.reconnects.advise_agents("x", "", (), 2) == Answer(advised=2, left=1)
    assert [bench.tunnels[agent].advisory_id for agent in "abc"] == ["x", "x", ""]
    assert bench.reconnects.advise_agents("x", "", (), 2) == Answer(advised=1, already=2)
    assert bench.reconnects.advise_agents("y", "", ("b", "nobody"), 0) == Answer(
        advised=1, absent=1, absent_ids=("nobody",)
    )


def test_who_stays_is_told() -> None:
    """The answer names how many have nowhere to go; replies to older advice mean nothing."""
    bench = Bench("a", "b")
    bench.reconnects.advise_agents("x", "", (), 0)
    for agent, advisory_id, accepted in (("a", "x", False), ("b", "x", True), ("b", "old", False)):
        reply = fleet_pb2.AdvisoryReply(advisory_id=advisory_id, accepted=accepted)
        bench.reconnects.record_reply(bench.tunnels[agent], reply)
    assert bench.reconnects.advise_agents("x", "", (), 0) == Answer(already=2, staying=1, staying_ids=("a",))


def test_look_only_advises_nobody() -> None:
    """It answers what became of those who were."""
    bench = Bench("a", "b")
    bench.reconnects.advise_agents("x", "", ("a",), 0)
    bench.reconnects.record_reply(
        bench.tunnels["a"], fleet_pb2.AdvisoryReply(advisory_id="x", accepted=False)
    )
    seen = bench.reconnects.advise_agents("x", "", (), 0, look_only=True)
    assert seen == Answer(already=1, left=1, staying=1, staying_ids=("a",))
    assert not bench.tunnels["b"].advisory_id


async def test_periodic() -> None:
    """Each tunnel by its own time; closed ones not at all."""
    bench = Bench("a", "b", interval=10.0)
    bench.reconnects.sweep(9.0)
    bench.reconnects.remove_tunnel(bench.tunnels["b"])
    bench.reconnects.sweep(15.0)
    assert bool(bench.tunnels["a"].advisory_id)
    assert "10s" in (await bench.told("a")).reason
    assert not bench.tunnels["b"].advisory_id


async def test_shut_down_says_that_it_leaves() -> None:
    """There is no coming back to a proxy that goes away."""
    bench = Bench("a")
    bench.reconnects.shut_down()
    assert (await bench.told("a")).leaving


def ids(*proxies: Proxy) -> set[str]:
    return {proxy.instance.flags.id for proxy in proxies}


async def test_agents_move_make_before_break(plane: Plane) -> None:
    """Advised, an agent has another tunnel before it lets the old one go; with one proxy it stays, and says so."""
    auth, old = await plane.auth(ttl=600.0), await plane.proxy("old", ttl=60.0)
    link = await plane.forward("127.0.0.1:1")
    where = [old.instance.grpc_address, f"127.0.0.1:{link.listen[1]}"]
    (agent,) = (await plane.agents(auth.instance.grpc_address, where)).agents
    await eventually(lambda: set(agent.tunnels.proxies) == ids(old))
    old.tunnels.reconnects.advise_agents("first", "try", (), 0)
    await eventually(lambda: old.tunnels.reconnects.advise_agents("first", "try", (), 0).staying == 1)
    assert set(agent.tunnels.proxies) == ids(old)

    other = await plane.proxy("other", ttl=60.0)
    host, _, port = other.instance.grpc_address.rpartition(":")
    await link.change(to=(host, int(port)))
    await eventually(lambda: len(agent.snapshot().tracked_proxies) == 2)
    held: list[int] = []
    old.tunnels.reconnects.advise_agents("second", "go", (), 0)

    def moved() -> bool:
        held.append(len(agent.tunnels.proxies))
        return set(agent.tunnels.proxies) == ids(other)

    await eventually(moved)
    assert min(held) >= 1


async def test_periodic_advice_moves_agents(plane: Plane) -> None:
    """A proxy with an interval sends its agents away now and then, and none is ever without a tunnel."""
    auth = await plane.auth(ttl=600.0)
    restless = await plane.proxy("restless", ttl=60.0, reconnect_interval=1.0)
    link = await plane.forward("127.0.0.1:1")
    where = [restless.instance.grpc_address, f"127.0.0.1:{link.listen[1]}"]
    group = await plane.agents(auth.instance.grpc_address, where, count=3)
    await eventually(lambda: all(set(one.tunnels.proxies) == ids(restless) for one in group.agents))
    calm = await plane.proxy("calm", ttl=60.0)
    host, _, port = calm.instance.grpc_address.rpartition(":")
    await link.change(to=(host, int(port)))
    held: list[int] = []

    def moved() -> bool:
        held.extend(len(one.tunnels.proxies) for one in group.agents)
        return all(set(one.tunnels.proxies) == ids(calm) for one in group.agents)

    await eventually(moved)
    assert min(held) >= 1
