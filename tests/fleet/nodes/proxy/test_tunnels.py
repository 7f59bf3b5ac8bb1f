"""A proxy's table of tunnels: displacement, silence, and the feed of live tunnels."""

from __future__ import annotations

import json

from prometheus_client import CollectorRegistry

from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.discovery import ProxyResource, Publisher
from fleet.wire import fleet_pb2


def make_table(publisher: Publisher | None = None) -> TunnelTable:
    return TunnelTable(
        publisher or Publisher(10.0, compact=True),
        KeepAlive(interval=10.0, count_max=3),
        ProxyMetrics(CollectorRegistry()),
    )


def say_hello(table: TunnelTable, name: str, now: float = 0.0, agent_name: str = "") -> Tunnel:
    return table.open(fleet_pb2.AgentHello(agent_id=name, name=agent_name or name), object(), now)


def open_tunnel(table: TunnelTable, name: str, now: float = 0.0) -> Tunnel:
    """Return a registered tunnel with its own connection."""
    tunnel = say_hello(table, name, now)
    table.join(tunnel, now)
    return tunnel


def live_agent_ids(table: TunnelTable) -> list[str]:
    return [tunnel.agent_id for tunnel in table.since("", 0, 100).updates]


def apply_feed(table: TunnelTable, agent_ids: set[str], position: tuple[str, int]) -> tuple[str, int]:
    page = table.since(*position, 100)
    if page.full:
        agent_ids.clear()
    agent_ids.difference_update(page.removed_keys)
    agent_ids.update(tunnel.agent_id for tunnel in page.updates)
    return page.epoch, page.revision


def test_feed_changes_add_up_to_the_full_list() -> None:
    """Changes applied to an older list give the current list, after opens, closes and silence."""
    table = make_table()
    agent_ids: set[str] = set()
    first = open_tunnel(table, "a")
    open_tunnel(table, "b")
    position = apply_feed(table, agent_ids, ("", 0))
    assert agent_ids == {"a", "b"}
    open_tunnel(table, "c", 25.0)
    table.close(first)
    position = apply_feed(table, agent_ids, position)
    assert agent_ids == set(live_agent_ids(table)) == {"b", "c"}
    table.sweep(31.0, 1.0)  # b was silent for more than three intervals
    position = apply_feed(table, agent_ids, position)
    assert agent_ids == set(live_agent_ids(table)) == {"c"}


async def test_new_tunnel_displaces_the_old_one() -> None:
    """The old call ends, and its end does not remove the new tunnel."""
    table = make_table()
    old = open_tunnel(table, "a")
    new = open_tunnel(table, "a", 1.0)
    assert await old.next_frame(lambda: 1.0) is None
    assert "newer tunnel" in old.end_reason
    table.close(old)
    assert live_agent_ids(table) == ["a"]
    table.close(new)
    assert live_agent_ids(table) == []
    await table.wait_until_empty()


def test_silent_tunnel_is_offline_until_a_ping_and_closed_later() -> None:
    """The tunnel is offline after three intervals, live again with a ping, and closed after nine."""
    table = make_table()
    tunnel = open_tunnel(table, "a")
    for second in range(1, 31):
        table.sweep(float(second), 1.0)
    assert live_agent_ids(table) == ["a"]
    table.sweep(30.5, 1.0)
    assert live_agent_ids(table) == []
    assert tunnel.ended_at is None
    table.record_frame(tunnel, 31.0)
    assert live_agent_ids(table) == ["a"]
    for second in range(31, 123):
        table.sweep(float(second), 1.0)
    assert tunnel.ended_at == 122.0


def test_late_sweep_of_a_frozen_proxy_keeps_tunnels_live() -> None:
    """If a sweep is an hour late, the proxy was frozen, and no agent is offline."""
    table = make_table()
    tunnel = open_tunnel(table, "a")
    table.sweep(1.0, 1.0)
    table.sweep(3600.0, 1.0)
    assert live_agent_ids(table) == ["a"]
    assert tunnel.last_seen_at == 3598.0


async def test_frames_keep_their_order_and_discovery_is_merged() -> None:
    """Queued frames are first; discovery is read when it can be written, so several changes are one message."""
    publisher = Publisher(10.0, compact=True)
    table = make_table(publisher)
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


def test_tunnel_is_silent_after_a_missing_ping() -> None:
    """The longer of both intervals counts; a connection without a tunnel is never silent."""
    table = make_table()
    usual_tunnel = open_tunnel(table, "a")
    slow_tunnel = table.open(
        fleet_pb2.AgentHello(agent_id="b", name="b", keep_alive_interval_ms=20_000), "b", 0.0
    )
    assert [table.is_silent(usual_tunnel.key, now) for now in (10.0, 12.0)] == [False, True]
    assert [table.is_silent(slow_tunnel.key, now) for now in (20.0, 22.0)] == [False, True]
    assert not table.is_silent("nobody", 99.0)
    table.record_frame(usual_tunnel, 12.0)
    assert not table.is_silent(usual_tunnel.key, 13.0)
