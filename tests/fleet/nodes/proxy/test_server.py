"""A proxy: tunnels, discovery, the tunnel feed and the shutdown."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import grpc
import grpc.aio
import pytest

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.proxy.server import Proxy, ProxyFlags, _proxy_resource_of, from_environment, group_labels
from fleet.nodes.shared import lifecycle
from fleet.nodes.shared.instance import InstanceFlags
from fleet.protocol.instance_labels import TTL_LABEL
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery import reconnect_schedule
from fleet.protocol.recovery.discovery import COMPACT_VARIABLE
from fleet.wire import fleet_pb2, fleet_pb2_grpc, types_pb2
from tests.fakes.agents import Agents, FakeAgent
from tests.fakes.plane import Plane, channel_to, get_diag
from tests.fakes.waiting import DEADLINE, eventually


async def list_tunnels(
    proxy: Proxy, epoch: str = "", since: int = 0, limit: int = 0
) -> fleet_pb2.ListTunnelsResponse:
    request = fleet_pb2.ListTunnelsRequest(epoch=epoch, since_revision=since, limit=limit)
    async with channel_to(proxy.instance.grpc_address) as channel:
        response = await fleet_pb2_grpc.TunnelFeedStub(channel).ListTunnels(request, timeout=30)
    assert isinstance(response, fleet_pb2.ListTunnelsResponse)
    return response


def agent_ids(response: fleet_pb2.ListTunnelsResponse) -> list[str]:
    return sorted(tunnel.agent_id for tunnel in response.tunnels)


async def test_ping_gets_a_pong(plane: Plane, agents: Agents) -> None:
    """The pong has the sequence number of the ping."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    await agent.send(ping=fleet_pb2.Ping(sequence=7))
    while not (frame := await agent.read()).HasField("pong"):
        assert frame.HasField("discovery")
    assert frame.pong.sequence == 7


async def test_control_without_hello_is_refused(plane: Plane) -> None:
    """The first frame must be a hello."""
    proxy = await plane.proxy(ttl=600.0)
    agent = FakeAgent(proxy, "")
    await agent.send(ping=fleet_pb2.Ping(sequence=1))
    assert await agent.code() is grpc.StatusCode.INVALID_ARGUMENT
    await agent.close()


async def test_feed_lists_all_tunnels_then_changes(plane: Plane, agents: Agents) -> None:
    """The first pages list all tunnels, later ones the opened and closed tunnels; the metrics agree."""
    proxy = await plane.proxy(ttl=600.0)
    first = await agents.connect(proxy, "a")
    await agents.connect(proxy, "b")
    page = await list_tunnels(proxy, limit=1)
    assert (page.full, page.more, agent_ids(page), page.proxy_id) == (
        True,
        True,
        ["a"],
        proxy.instance.flags.id,
    )
    page = await list_tunnels(proxy, page.epoch, page.revision)
    assert (page.full, page.more, agent_ids(page)) == (False, False, ["b"])
    await agents.connect(proxy, "c")
    await first.close()
    listed_ids = {"a", "b"}

    async def is_up_to_date() -> bool:
        nonlocal page
        page = await list_tunnels(proxy, page.epoch, page.revision)
        listed_ids.difference_update(page.closed)
        listed_ids.update(agent_ids(page))
        return listed_ids == {"b", "c"}

    await eventually(is_up_to_date)
    assert agent_ids(await list_tunnels(proxy)) == ["b", "c"]
    metrics = (await get_diag(proxy.instance, "/metrics"))[1].splitlines()
    assert 'teleport_reverse_tunnels_connected{type="node"} 2.0' in metrics


async def test_feed_of_restarted_proxy_is_full(plane: Plane, agents: Agents) -> None:
    """The restarted proxy has another epoch."""
    proxy = await plane.proxy(ttl=600.0)
    await agents.connect(proxy, "a")
    old = await list_tunnels(proxy)
    await plane.stop(proxy)
    proxy = await plane.proxy(ttl=600.0)
    await agents.connect(proxy, "b")
    new = await list_tunnels(proxy, old.epoch, old.revision)
    assert new.epoch != old.epoch
    assert (new.full, agent_ids(new)) == (True, ["b"])


async def test_new_tunnel_displaces_the_old_tunnel_of_the_agent(plane: Plane, agents: Agents) -> None:
    """The proxy ends the old stream."""
    proxy = await plane.proxy(ttl=600.0)
    old = await agents.connect(proxy, "a")
    await agents.connect(proxy, "a")
    assert await old.code() is grpc.StatusCode.ABORTED
    assert agent_ids(await list_tunnels(proxy)) == ["a"]


async def test_silent_agent_is_offline_and_then_disconnected(plane: Plane, agents: Agents) -> None:
    """The agent is offline after the keep-alive time, and its stream is closed after three times that."""
    proxy = await plane.proxy(ttl=600.0, keep_alive=KeepAlive(interval=2.0, count_max=10))
    silent_agent = await agents.connect(proxy, "silent")
    await agents.connect(proxy, "talking")
    tunnel = proxy.table.find_current("silent")
    assert tunnel is not None

    async def is_offline() -> bool:
        return agent_ids(await list_tunnels(proxy)) == ["talking"]

    tunnel.last_seen_at -= 21.0
    await eventually(is_offline)
    assert tunnel.ended_at is None
    tunnel.last_seen_at -= 42.0
    assert await silent_agent.code() is grpc.StatusCode.ABORTED


async def test_discovery_is_full_at_first_then_lists_heartbeats(plane: Plane, agents: Agents) -> None:
    """The first message has all proxies with the remaining TTL, later ones the proxies with a new heartbeat."""
    silent_proxy = await plane.proxy("proxy-1", ttl=600.0)
    lively_proxy = await plane.proxy("proxy-2", ttl=2.0)
    agent = await agents.connect(lively_proxy, "a")
    first = await agent.read_discovery()
    assert {proxy["metadata"]["name"] for proxy in first} == {
        silent_proxy.instance.flags.id,
        lively_proxy.instance.flags.id,
    }
    assert all(0 < proxy["ttl"] <= 2_000_000_000 for proxy in first)
    assert {proxy.get("announce_ttl", proxy["ttl"]) for proxy in first} == {2_000_000_000}
    later_proxies = await agent.read_discovery()
    assert [proxy["metadata"]["name"] for proxy in later_proxies] == [lively_proxy.instance.flags.id]
    assert later_proxies[0].get("announce_ttl", later_proxies[0]["ttl"]) == 2_000_000_000
    sample = lively_proxy.instance.registry.get_sample_value
    messages, size = (sample(f"refloat_discovery_{unit}_total") or 0.0 for unit in ("messages", "bytes"))
    documents = [
        json.dumps({"proxies": proxies}, separators=(",", ":")) for proxies in (first, later_proxies)
    ]
    # More messages may have been sent meanwhile.
    assert messages >= 2
    assert size >= len(documents[0]) + len(documents[1])


async def test_discovery_without_compact_mode_is_always_full(plane: Plane, agents: Agents) -> None:
    """Every change sends the full list, with the TTL."""
    proxy = await plane.proxy("proxy-1", ttl=2.0, compact=False)
    await plane.proxy("proxy-2", ttl=600.0)
    agent = await agents.connect(proxy, "a")
    while len(entries := await agent.read_discovery()) < 2:
        pass
    assert all(0 < entry["ttl"] <= 2_000_000_000 for entry in entries)
    assert len(await agent.read_discovery()) == 2


async def test_discovery_stops_without_backend_and_resumes(plane: Plane, agents: Agents) -> None:
    """A proxy that cannot read heartbeats sends no proxies, so that its agents' trackers expire."""
    forward, url = await plane.backend_forward()
    proxy = await plane.proxy("proxy-1", ttl=1.0, backend=url)
    agent = await agents.connect(proxy, "a")
    await agent.read_discovery()
    await forward.change(mode=ForwardMode.CUT)

    async def is_unready() -> bool:
        return (await get_diag(proxy.instance, "/readyz"))[0] == 503

    await eventually(is_unready)
    new_agent = await agents.connect(proxy, "b")
    read_task = asyncio.create_task(new_agent.read())
    finished_tasks, _ = await asyncio.wait(
        [read_task], timeout=1.2
    )  # longer than the TTL, after which the known proxies have expired
    if finished_tasks:
        read_task = asyncio.create_task(new_agent.read())
        finished_tasks, _ = await asyncio.wait([read_task], timeout=1.2)
    assert not finished_tasks
    await forward.change(mode=ForwardMode.PASS)
    async with asyncio.timeout(60):
        assert (await read_task).HasField("discovery")


async def test_stopped_proxy_advises_its_agents_and_waits_for_them(plane: Plane, agents: Agents) -> None:
    """The proxy deletes its resource first, and ends as soon as its agents have left."""
    proxy, other_proxy = await plane.proxy("proxy-1", ttl=600.0), await plane.proxy("proxy-2", ttl=600.0)
    proxy.flags = replace(proxy.flags, drain=60.0)
    agent = await agents.connect(proxy, "a")
    stop_task = asyncio.create_task(plane.stop(proxy))
    while not (frame := await agent.read()).HasField("reconnect_advisory"):
        assert frame.HasField("discovery")
    resources = await other_proxy.instance.backend.list_instances("proxy")
    assert [server.spec.hostname for server in resources] == ["proxy-2"]
    late_agent = FakeAgent(proxy, "late")
    # The agent sends no hello: if the refusal arrives before it, grpc.aio reports INTERNAL.
    assert await late_agent.code() is grpc.StatusCode.UNAVAILABLE
    await late_agent.close()
    assert not stop_task.done()
    await agent.close()
    await stop_task


async def test_stopped_proxy_ends_after_its_drain_time(plane: Plane, agents: Agents) -> None:
    """Agents that stay are disconnected."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    async with asyncio.timeout(DEADLINE):
        await plane.stop(proxy)
    assert await agent.code() in {grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE}


async def test_restarted_proxy_ends_after_the_drain_time_of_the_request(plane: Plane, agents: Agents) -> None:
    """Not after its configured drain time."""
    proxy = await plane.proxy(ttl=600.0)
    proxy.flags = replace(proxy.flags, drain=2 * DEADLINE)
    agent = await agents.connect(proxy, "a")
    async with asyncio.timeout(DEADLINE):
        await plane.stop(proxy, drain=0.1)
    assert await agent.code() in {grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE}


@pytest.mark.parametrize(
    ("environment", "labels"),
    [
        ({}, {}),
        (
            {"TELEPORT_UNSTABLE_PROXYGROUP_ID": "blue", "TELEPORT_UNSTABLE_PROXYGROUP_GEN": "7"},
            {"teleport.internal/proxygroup-id": "blue", "teleport.internal/proxygroup-gen": "7"},
        ),
    ],
)
def test_group_labels_come_from_the_environment(environment: dict[str, str], labels: dict[str, str]) -> None:
    """Without the variables there are no labels."""
    assert group_labels(environment) == labels


@pytest.mark.parametrize("generation", ["-1", "x", str(1 << 64)])
def test_invalid_group_generation_stops_the_start(generation: str) -> None:
    """The generation must be a uint64."""
    with pytest.raises(lifecycle.NodeStartError, match="PROXYGROUP_GEN"):
        group_labels({"TELEPORT_UNSTABLE_PROXYGROUP_GEN": generation})


def test_environment_sets_discovery_mode_and_reconnect_interval() -> None:
    """Discovery is compact by default, and agents get periodic advisories only if an interval is set."""
    default_flags = ProxyFlags(InstanceFlags(name="p", id="p", backend="redis://x"))
    compact, interval = COMPACT_VARIABLE, reconnect_schedule.INTERVAL_VARIABLE
    is_compact_by_value = [
        from_environment(default_flags, env).compact_discovery for env in ({}, {compact: "1"}, {compact: "F"})
    ]
    assert is_compact_by_value == [True, True, False]
    assert from_environment(default_flags, {}).reconnect_interval == 0
    assert from_environment(default_flags, {interval: "30m"}).reconnect_interval == 1800
    with pytest.raises(lifecycle.NodeStartError, match=compact):
        from_environment(default_flags, {compact: "yes"})
    with pytest.raises(lifecycle.NodeStartError, match=interval):
        from_environment(default_flags, {interval: "soon"})


@pytest.mark.parametrize(
    ("label", "ttl"), [("10m", 600.0), ("", 0.0), ("soon", 0.0), ("-5s", -5.0), ("9999h", 86_400.0)]
)
def test_announce_ttl_comes_from_the_label(label: str, ttl: float) -> None:
    """Invalid labels count as 0, and the TTL is at most a day."""
    metadata = types_pb2.Metadata(name="p", labels={TTL_LABEL: label})
    assert _proxy_resource_of(types_pb2.ServerV2(metadata=metadata)).ttl == ttl


@pytest.mark.parametrize(
    ("compact", "ttl", "log_line_count"),
    [(True, 600.0, 0), (True, 900.0, 1), (True, 20.0, 0), (False, 900.0, 1)],
)
async def test_ttl_that_slows_discovery_is_logged(
    plane: Plane, caplog: pytest.LogCaptureFixture, compact: bool, ttl: float, log_line_count: int
) -> None:
    """A TTL with which agents drop a dead proxy later than the 13 min of RFD 226 is logged at the start."""
    await plane.proxy(ttl=ttl, compact=compact)
    assert caplog.text.count("discovery.slow: with an announce TTL of 15m") == log_line_count
