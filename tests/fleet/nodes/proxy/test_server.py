"""A proxy: tunnels in, discovery out, the feed, and its end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import grpc
import grpc.aio
import pytest

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.proxy.server import Proxy, ProxyFlags, _resource, from_environment, group_labels
from fleet.nodes.shared import lifecycle
from fleet.nodes.shared.instance import InstanceFlags
from fleet.protocol.instance_labels import TTL_LABEL
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery import reconnect_schedule
from fleet.protocol.recovery.discovery import COMPACT_VARIABLE
from fleet.wire import fleet_pb2, fleet_pb2_grpc, types_pb2
from tests.fakes.agents import Agents, FakeAgent
from tests.fakes.plane import Plane, channel_to, get
from tests.fakes.waiting import DEADLINE, eventually


async def tunnels(
    proxy: Proxy, epoch: str = "", since: int = 0, limit: int = 0
) -> fleet_pb2.ListTunnelsResponse:
    request = fleet_pb2.ListTunnelsRequest(epoch=epoch, since_revision=since, limit=limit)
    async with channel_to(proxy.instance.grpc_address) as channel:
        answer = await fleet_pb2_grpc.TunnelFeedStub(channel).ListTunnels(request, timeout=30)
    assert isinstance(answer, fleet_pb2.ListTunnelsResponse)
    return answer


def names(answer: fleet_pb2.ListTunnelsResponse) -> list[str]:
    return sorted(tunnel.agent_id for tunnel in answer.tunnels)


async def test_control_pings(plane: Plane, agents: Agents) -> None:
    """Hello for hello, pong for ping."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    await agent.send(ping=fleet_pb2.Ping(sequence=7))
    while not (frame := await agent.read()).HasField("pong"):
        assert frame.HasField("discovery")
    assert frame.pong.sequence == 7


async def test_control_without_hello(plane: Plane) -> None:
    """Whoever does not say who it is is refused."""
    proxy = await plane.proxy(ttl=600.0)
    agent = FakeAgent(proxy, "")
    await agent.send(ping=fleet_pb2.Ping(sequence=1))
    assert await agent.code() is grpc.StatusCode.INVALID_ARGUMENT
    await agent.close()


async def test_feed_by_revision(plane: Plane, agents: Agents) -> None:
    """First all in pages, then what opened and closed; metrics agree."""
    proxy = await plane.proxy(ttl=600.0)
    first = await agents.connect(proxy, "a")
    await agents.connect(proxy, "b")
    page = await tunnels(proxy, limit=1)
    assert (page.full, page.more, names(page), page.proxy_id) == (True, True, ["a"], proxy.instance.flags.id)
    page = await tunnels(proxy, page.epoch, page.revision)
    assert (page.full, page.more, names(page)) == (False, False, ["b"])
    await agents.connect(proxy, "c")
    await first.close()
    known = {"a", "b"}

    async def applied() -> bool:
        nonlocal page
        page = await tunnels(proxy, page.epoch, page.revision)
        known.difference_update(page.closed)
        known.update(names(page))
        return known == {"b", "c"}

    await eventually(applied)
    assert names(await tunnels(proxy)) == ["b", "c"]
    metrics = (await get(proxy.instance, "/metrics"))[1].splitlines()
    assert 'teleport_reverse_tunnels_connected{type="node"} 2.0' in metrics


async def test_feed_epoch_is_one_run(plane: Plane, agents: Agents) -> None:
    """A proxy that started again answers in full, under another epoch."""
    proxy = await plane.proxy(ttl=600.0)
    await agents.connect(proxy, "a")
    old = await tunnels(proxy)
    await plane.stop(proxy)
    proxy = await plane.proxy(ttl=600.0)
    await agents.connect(proxy, "b")
    new = await tunnels(proxy, old.epoch, old.revision)
    assert new.epoch != old.epoch
    assert (new.full, names(new)) == (True, ["b"])


async def test_reconnect_displaces(plane: Plane, agents: Agents) -> None:
    """An agent that comes again has one tunnel; the old stream is ended by the proxy."""
    proxy = await plane.proxy(ttl=600.0)
    old = await agents.connect(proxy, "a")
    await agents.connect(proxy, "a")
    assert await old.code() is grpc.StatusCode.ABORTED
    assert names(await tunnels(proxy)) == ["a"]


async def test_half_open_agent(plane: Plane, agents: Agents) -> None:
    """An agent that says nothing is offline after the keep-alives, and its stream closed after three times that."""
    proxy = await plane.proxy(ttl=600.0, keep_alive=KeepAlive(interval=2.0, count_max=10))
    silent = await agents.connect(proxy, "silent")
    await agents.connect(proxy, "talking")
    tunnel = proxy.table.find_current("silent")
    assert tunnel is not None

    async def offline() -> bool:
        return names(await tunnels(proxy)) == ["talking"]

    tunnel.last_seen_at -= 21.0
    await eventually(offline)
    assert tunnel.ended_at is None
    tunnel.last_seen_at -= 42.0
    assert await silent.code() is grpc.StatusCode.ABORTED


async def test_discovery_full_then_what_heartbeats(plane: Plane, agents: Agents) -> None:
    """First all unexpired proxies with what remains of the sender's TTL, then those that heartbeat, with all of it."""
    steady = await plane.proxy("proxy-1", ttl=600.0)
    lively = await plane.proxy("proxy-2", ttl=2.0)
    agent = await agents.connect(lively, "a")
    first = await agent.read_discovery()
    assert {proxy["metadata"]["name"] for proxy in first} == {
        steady.instance.flags.id,
        lively.instance.flags.id,
    }
    assert all(0 < proxy["ttl"] <= 2_000_000_000 for proxy in first)
    assert {proxy.get("announce_ttl", proxy["ttl"]) for proxy in first} == {2_000_000_000}
    later = await agent.read_discovery()
    assert [proxy["metadata"]["name"] for proxy in later] == [lively.instance.flags.id]
    assert later[0].get("announce_ttl", later[0]["ttl"]) == 2_000_000_000
    counted = lively.instance.registry.get_sample_value
    messages, size = (counted(f"refloat_discovery_{what}_total") or 0.0 for what in ("messages", "bytes"))
    spelled = [json.dumps({"proxies": told}, separators=(",", ":")) for told in (first, later)]
    # More may have been sent meanwhile.
    assert messages >= 2
    assert size >= len(spelled[0]) + len(spelled[1])


async def test_discovery_legacy(plane: Plane, agents: Agents) -> None:
    """Switched off: full lists on every change, with the TTL as well."""
    proxy = await plane.proxy("proxy-1", ttl=2.0, compact=False)
    await plane.proxy("proxy-2", ttl=600.0)
    agent = await agents.connect(proxy, "a")
    while len(found := await agent.read_discovery()) < 2:
        pass
    assert all(0 < entry["ttl"] <= 2_000_000_000 for entry in found)
    assert len(await agent.read_discovery()) == 2


async def test_discovery_stops_without_backend(plane: Plane, agents: Agents) -> None:
    """A proxy that cannot see heartbeats tells of none, so that its agents' trackers expire; back, it tells again."""
    link, url = await plane.backend_forward()
    proxy = await plane.proxy("proxy-1", ttl=1.0, backend=url)
    agent = await agents.connect(proxy, "a")
    await agent.read_discovery()
    await link.change(mode=ForwardMode.CUT)

    async def unready() -> bool:
        return (await get(proxy.instance, "/readyz"))[0] == 503

    await eventually(unready)
    fresh = await agents.connect(proxy, "b")
    told = asyncio.create_task(fresh.read())
    done, _ = await asyncio.wait([told], timeout=1.2)  # longer than the TTL: what was known is stale by then
    if done:
        told = asyncio.create_task(fresh.read())
        done, _ = await asyncio.wait([told], timeout=1.2)
    assert not done
    await link.change(mode=ForwardMode.PASS)
    async with asyncio.timeout(60):
        assert (await told).HasField("discovery")


async def test_orderly_end(plane: Plane, agents: Agents) -> None:
    """Its resource goes first, agents are advised, and it ends as soon as they have left."""
    proxy, other = await plane.proxy("proxy-1", ttl=600.0), await plane.proxy("proxy-2", ttl=600.0)
    proxy.flags = replace(proxy.flags, drain=60.0)
    agent = await agents.connect(proxy, "a")
    ending = asyncio.create_task(plane.stop(proxy))
    while not (frame := await agent.read()).HasField("reconnect_advisory"):
        assert frame.HasField("discovery")
    found = await other.instance.backend.instances("proxy")
    assert [server.spec.hostname for server in found] == ["proxy-2"]
    late = FakeAgent(proxy, "late")
    # No hello: where the refusal is there before it, grpc.aio names the end of the call INTERNAL.
    assert await late.code() is grpc.StatusCode.UNAVAILABLE
    await late.close()
    assert not ending.done()
    await agent.close()
    await ending


async def test_orderly_end_with_agents_that_stay(plane: Plane, agents: Agents) -> None:
    """It waits for its drain time and no longer."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    async with asyncio.timeout(DEADLINE):
        await plane.stop(proxy)
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
def test_group_labels(environment: dict[str, str], labels: dict[str, str]) -> None:
    """Group and generation come from the environment."""
    assert group_labels(environment) == labels


@pytest.mark.parametrize("generation", ["-1", "x", str(1 << 64)])
def test_group_generation_that_stops_the_start(generation: str) -> None:
    """A generation that is no uint64 is an error."""
    with pytest.raises(lifecycle.NodeStartError, match="PROXYGROUP_GEN"):
        group_labels({"TELEPORT_UNSTABLE_PROXYGROUP_GEN": generation})


def test_environment_of_a_proxy() -> None:
    """Discovery is the seed's by default, Go's words say otherwise; agents are advised only when somebody says so."""
    plain = ProxyFlags(InstanceFlags(name="p", id="p", backend="redis://x"))
    compact, interval = COMPACT_VARIABLE, reconnect_schedule.VARIABLE
    found = [from_environment(plain, env).compact_discovery for env in ({}, {compact: "1"}, {compact: "F"})]
    assert found == [True, True, False]
    assert from_environment(plain, {}).reconnect_interval == 0
    assert from_environment(plain, {interval: "30m"}).reconnect_interval == 1800
    with pytest.raises(lifecycle.NodeStartError, match=compact):
        from_environment(plain, {compact: "yes"})
    with pytest.raises(lifecycle.NodeStartError, match=interval):
        from_environment(plain, {interval: "soon"})


@pytest.mark.parametrize(
    ("label", "ttl"), [("10m", 600.0), ("", 0.0), ("soon", 0.0), ("-5s", -5.0), ("9999h", 86_400.0)]
)
def test_announce_ttl_of_a_resource(label: str, ttl: float) -> None:
    """As its label says; what makes no sense counts as none, or as a day."""
    metadata = types_pb2.Metadata(name="p", labels={TTL_LABEL: label})
    assert _resource(types_pb2.ServerV2(metadata=metadata)).ttl == ttl


@pytest.mark.parametrize(
    ("compact", "ttl", "told"), [(True, 600.0, 0), (True, 900.0, 1), (True, 20.0, 0), (False, 900.0, 1)]
)
async def test_slow_discovery_is_logged(
    plane: Plane, caplog: pytest.LogCaptureFixture, compact: bool, ttl: float, told: int
) -> None:
    """A TTL that makes agents drop a dead proxy later than the 13 min of RFD 226 is logged at the start."""
    await plane.proxy(ttl=ttl, compact=compact)
    assert caplog.text.count("discovery.slow: with an announce TTL of 15m") == told
