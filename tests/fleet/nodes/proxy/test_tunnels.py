"""A proxy's table of tunnels: displacement, silence, and the feed of live ones."""

from __future__ import annotations

import json

from prometheus_client import CollectorRegistry

from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.discovery import ProxyResource, Publisher
from fleet.wire import fleet_pb2


def table_of(publisher: Publisher | None = None) -> TunnelTable:
    return TunnelTable(
        publisher or Publisher(10.0, compact=True),
        KeepAlive(interval=10.0, count_max=3),
        ProxyMetrics(CollectorRegistry()),
    )


def say_hello(table: TunnelTable, name: str, now: float = 0.0, called: str = "") -> Tunnel:
    return table.open(fleet_pb2.AgentHello(agent_id=name, name=called or name), object(), now)


def open_tunnel(table: TunnelTable, name: str, now: float = 0.0) -> Tunnel:
    """One that counts, of a connection of its own."""
    tunnel = say_hello(table, name, now)
    table.join(tunnel, now)
    return tunnel


def live(table: TunnelTable) -> list[str]:
    return [tunnel.agent_id for tunnel in table.since("", 0, 100).updates]


def follow(table: TunnelTable, known: set[str], place: tuple[str, int]) -> tuple[str, int]:
    page = table.since(*place, 100)
    if page.full:
        known.clear()
    known.difference_update(page.removed_keys)
    known.update(tunnel.agent_id for tunnel in page.updates)
    return page.epoch, page.revision


def test_feed_law_after_opens_closes_and_silence() -> None:
    """Old answers with new ones applied are the full list, whatever tunnels did."""
    table = table_of()
    known: set[str] = set()
    first = open_tunnel(table, "a")
    open_tunnel(table, "b")
    place = follow(table, known, ("", 0))
    assert known == {"a", "b"}
    open_tunnel(table, "c", 25.0)
    table.close(first)
    place = follow(table, known, place)
    assert known == set(live(table)) == {"b", "c"}
    table.sweep(31.0, 1.0)  # b was silent for more than three intervals
    place = follow(table, known, place)
    assert known == set(live(table)) == {"c"}


async def test_displaced_tunnel() -> None:
    """An agent that reconnects has one tunnel: the old call ends, and its end takes nothing away."""
    table = table_of()
    old = open_tunnel(table, "a")
    new = open_tunnel(table, "a", 1.0)
    assert await old.next_frame(lambda: 1.0) is None
    assert "newer tunnel" in old.end_reason
    table.close(old)
    assert live(table) == ["a"]
    table.close(new)
    assert live(table) == []
    await table.wait_until_empty()


def test_silence_then_a_ping() -> None:
    """Offline after three intervals, live again with a ping, closed after nine."""
    table = table_of()
    tunnel = open_tunnel(table, "a")
    for second in range(1, 31):
        table.sweep(float(second), 1.0)
    assert live(table) == ["a"]
    table.sweep(30.5, 1.0)
    assert live(table) == []
    assert tunnel.ended_at is None
    table.record_frame(tunnel, 31.0)
    assert live(table) == ["a"]
    for second in range(31, 123):
        table.sweep(float(second), 1.0)
    assert tunnel.ended_at == 122.0


def test_thawed_proxy_does_not_blame_its_agents() -> None:
    """A sweep that comes an hour late means that we were frozen: nobody is offline."""
    table = table_of()
    tunnel = open_tunnel(table, "a")
    table.sweep(1.0, 1.0)
    table.sweep(3600.0, 1.0)
    assert live(table) == ["a"]
    assert tunnel.last_seen_at == 3598.0


async def test_frames_in_order_and_discovery_gathered() -> None:
    """Queued frames go first; discovery is read when it can be written, so news gather in one message."""
    publisher = Publisher(10.0, compact=True)
    table = table_of(publisher)
    tunnel = open_tunnel(table, "a")
    publisher.observe([ProxyResource("p1", "", 0, 1.0)], 0.0)
    publisher.observe([ProxyResource("p1", "", 0, 1.0), ProxyResource("p2", "", 0, 1.0)], 0.0)
    tunnel.send(fleet_pb2.ProxyFrame(pong=fleet_pb2.Pong(sequence=1)))
    first, second = await tunnel.next_frame(lambda: 0.0), await tunnel.next_frame(lambda: 0.0)
    assert first is not None
    assert first.pong.sequence == 1
    assert second is not None
    proxies = json.loads(second.discovery.request)["proxies"]
    assert [proxy["metadata"]["name"] for proxy in proxies] == ["p1", "p2"]
    tunnel.end("over", 0.0)
    assert await tunnel.next_frame(lambda: 0.0) is None


def test_tunnel_is_silent_when_a_ping_is_missing() -> None:
    """By the longer of both intervals; a connection without a tunnel says nothing of itself."""
    table = table_of()
    usual = open_tunnel(table, "a")
    slow = table.open(fleet_pb2.AgentHello(agent_id="b", name="b", keep_alive_interval_ms=20_000), "b", 0.0)
    assert [table.is_silent(usual.key, now) for now in (10.0, 12.0)] == [False, True]
    assert [table.is_silent(slow.key, now) for now in (20.0, 22.0)] == [False, True]
    assert not table.is_silent("nobody", 99.0)
    table.record_frame(usual, 12.0)
    assert not table.is_silent(usual.key, 13.0)
