"""An agent's tunnels against a proxy that does whatever a test wants."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc.aio
import psutil
import pytest
from prometheus_client import CollectorRegistry

from fleet.nodes.agent.auth_connection import Identity
from fleet.nodes.agent.metrics import AgentMetrics
from fleet.nodes.agent.services import AgentServices
from fleet.nodes.agent.tunnels import AgentTunnels
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery import discovery
from fleet.protocol.recovery.agent_pool import AgentPool, LinearBackoff
from fleet.protocol.recovery.discovery import DiscoveredProxy
from fleet.protocol.recovery.graceful_closing import ClosingPolicy
from fleet.protocol.recovery.tracker import Tracker
from fleet.protocol.recovery.tunnel_settings import TunnelSettings
from fleet.protocol.tunnel.messages import TunnelError
from fleet.transport import channels
from fleet.transport.tunnel.server import TunnelServer, serve_tunnels
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.plane import Plane
from tests.fakes.tcp import echoing
from tests.fakes.waiting import eventually


class FakeProxy:
    """Answers every hello with the next name, then sends what it is told to."""

    def __init__(self, *names: str) -> None:
        self._names = list(names)
        self.heard: list[fleet_pb2.AgentFrame] = []
        self.out: asyncio.Queue[fleet_pb2.ProxyFrame | None] = asyncio.Queue()
        self.dials = 0
        self.tunnels = TunnelServer()

    async def Control(  # noqa: N802
        self, requests: AsyncIterator[fleet_pb2.AgentFrame], context: Any
    ) -> AsyncIterator[fleet_pb2.ProxyFrame]:
        """Serve one tunnel."""
        del context
        self.dials += 1
        self.heard.append(await anext(requests))
        reader = asyncio.create_task(self._read(requests))
        name = self._names.pop(0) if len(self._names) > 1 else self._names[0]
        yield fleet_pb2.ProxyFrame(hello=fleet_pb2.ProxyHello(proxy_id=name))
        try:
            while (frame := await self.out.get()) is not None:
                yield frame
        finally:
            reader.cancel()

    async def _read(self, requests: AsyncIterator[fleet_pb2.AgentFrame]) -> None:
        async for frame in requests:
            self.heard.append(frame)

    def discover(self, request: bytes) -> None:
        """Send a discovery request."""
        self.out.put_nowait(fleet_pb2.ProxyFrame(discovery=fleet_pb2.Discovery(request=request)))


Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a fake proxy and an agent's tunnels to it."""
    cleanups: list[Any] = []

    async def make(
        proxy: FakeProxy,
        keep_alive: KeepAlive | None = None,
        count: int = 1,
        closing: ClosingPolicy | None = None,
        news: Callable[[str, float], None] | None = None,
        registry: CollectorRegistry | None = None,
    ) -> AgentTunnels:
        server = grpc.aio.server(options=channels.server_options())
        fleet_pb2_grpc.add_TunnelControlServicer_to_server(proxy, server)
        serve_tunnels(server, proxy.tunnels)
        port = channels.add_port(server, "127.0.0.1:0")
        await server.start()
        identity = Identity("id", "agent-1")
        tunnels = AgentTunnels(
            identity,
            AgentPool(Tracker("default", count), LinearBackoff(0.05, 0.4)),
            TunnelSettings(count, keep_alive or KeepAlive(), closing or ClosingPolicy()),
            lambda: channels.open_channel(f"127.0.0.1:{port}"),
            AgentServices(identity, (), dict),
            AgentMetrics(registry or CollectorRegistry()),
            lambda: None,
            news or (lambda revision, spread: None),
        )
        cleanups.append((server, tunnels, asyncio.create_task(tunnels.run())))
        return tunnels

    yield make
    for server, tunnels, task in cleanups:
        task.cancel()
        await asyncio.wait([task])
        await tunnels.close()
        await server.stop(0)


def request(*names: str, ttl: float = 60.0) -> bytes:
    return discovery.encode(tuple(DiscoveredProxy(name, ttl=ttl) for name in names))


async def test_hello_says_who(start: Start) -> None:
    """The first frame is a hello with id and name; one tunnel is enough."""
    proxy = FakeProxy("p1")
    tunnels = await start(proxy)
    proxy.discover(request("p1"))
    await eventually(lambda: tunnels.proxies == ("p1",))
    assert (proxy.heard[0].hello.agent_id, proxy.heard[0].hello.name) == ("id", "agent-1")
    assert proxy.dials == 1


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nobody looks for garbage: gRPC keeps a connection as long as anybody holds a call on it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_closed_tunnel_leaves_no_connection(start: Start, uncollected: None) -> None:
    """Its place is taken by another, which is the only one there is."""
    before, proxy = _connections(), FakeProxy("p1")
    tunnels = await start(proxy)
    proxy.discover(request("p1"))
    await eventually(lambda: tunnels.proxies == ("p1",))
    (first,) = tunnels.tunnels
    first.cancel()
    del first
    await eventually(lambda: proxy.dials == 2 and tunnels.proxies == ("p1",))
    await eventually(lambda: _connections() <= before + 2)  # both ends are ours


async def test_dial_to_a_proxy_that_is_held_leaves_no_connection(start: Start, uncollected: None) -> None:
    """It is given up when the proxy says who it is."""
    before, proxy = _connections(), FakeProxy("p1", "p1", "p1", "p2")
    tunnels = await start(proxy, count=2)
    proxy.discover(request("p1", "p2"))
    await eventually(lambda: tunnels.proxies == ("p1", "p2"))
    await eventually(lambda: _connections() <= before + 2 * 2)


def _connections() -> int:
    found = psutil.Process().net_connections("tcp")
    return sum(1 for one in found if one.status == psutil.CONN_ESTABLISHED)


async def test_same_proxy_again_is_not_claimed_twice(start: Start) -> None:
    """The balancer gives a proxy it has already: that dial is given up, the next one is made, until both are held."""
    proxy = FakeProxy("p1", "p1", "p1", "p2")
    tunnels = await start(proxy, count=2)
    proxy.discover(request("p1", "p2"))
    await eventually(lambda: tunnels.proxies == ("p1", "p2"))
    assert proxy.dials >= 4


async def test_malformed_discovery_is_refused_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be read is logged once per proxy and ends nothing."""
    proxy = FakeProxy("p1")
    registry = CollectorRegistry()
    tunnels = await start(proxy, registry=registry)
    with caplog.at_level(logging.WARNING):
        proxy.discover(b"nonsense")
        proxy.discover(b"more nonsense")
        proxy.discover(request("p1"))
        await eventually(lambda: tunnels._pool.tracker.snapshot(time.monotonic()).tracked_proxies == ("p1",))
    assert caplog.text.count("discovery.refused") == 1
    counted = registry.get_sample_value
    assert counted("refloat_agent_refused_total", {"kind": "discovery"}) == 2
    # What was received counts, whether it could be read or not.
    assert counted("refloat_agent_discovery_messages_total") == 3
    size = len(b"nonsense" + b"more nonsense" + request("p1"))
    assert counted("refloat_agent_discovery_bytes_total") == size
    assert tunnels.proxies == ("p1",)


async def test_unreadable_entry_hides_no_other(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The entries that can be read count; the others are counted, and logged once per proxy."""
    proxy = FakeProxy("p1")
    registry = CollectorRegistry()
    tunnels = await start(proxy, registry=registry)
    newer = {"version": "v3", "metadata": {"name": "p9"}}
    entries = [*json.loads(request("p1", "p2"))["proxies"], newer, newer]
    with caplog.at_level(logging.WARNING):
        proxy.discover(json.dumps({"proxies": entries}).encode())
        await eventually(
            lambda: tunnels._pool.tracker.snapshot(time.monotonic()).tracked_proxies == ("p1", "p2")
        )
    assert caplog.text.count("discovery.refused") == 1
    assert registry.get_sample_value("refloat_agent_refused_total", {"kind": "discovery-entry"}) == 2
    assert registry.get_sample_value("refloat_agent_refused_total", {"kind": "discovery"}) is None


async def test_advisory_is_made_before_broken(start: Start) -> None:
    """Advised, it replies, keeps the tunnel, and lets go when the replacement stands."""
    proxy = FakeProxy("p1", "p2")
    tunnels = await start(proxy)
    proxy.discover(request("p1", "p2"))
    await eventually(lambda: tunnels.proxies == ("p1",))
    advisory = fleet_pb2.ReconnectAdvisory(advisory_id="x", reason="test")
    proxy.out.put_nowait(fleet_pb2.ProxyFrame(reconnect_advisory=advisory))
    await eventually(lambda: tunnels.proxies == ("p2",))
    replies = [frame.advisory_reply for frame in proxy.heard if frame.HasField("advisory_reply")]
    assert [(reply.advisory_id, reply.accepted) for reply in replies] == [("x", True)]


async def test_proxy_that_answers_no_ping(start: Start) -> None:
    """Pings go out, and silence for interval x count ends the tunnel; a live proxy is dialled again."""
    proxy = FakeProxy("p1")
    tunnels = await start(proxy, KeepAlive(interval=0.05, count_max=3))
    proxy.discover(request("p1"))
    await eventually(lambda: tunnels.proxies == ("p1",))

    def redialled() -> bool:
        tunnels.sweep(time.monotonic(), 0.05)
        return proxy.dials > 1 and any(frame.HasField("ping") for frame in proxy.heard)

    await eventually(redialled)


async def test_proxy_that_closes(start: Start) -> None:
    """A stream that ends is dialled anew after its pause."""
    proxy = FakeProxy("p1")
    tunnels = await start(proxy)
    proxy.discover(request("p1"))
    await eventually(lambda: tunnels.proxies == ("p1",))
    proxy.out.put_nowait(None)
    await eventually(lambda: proxy.dials == 2)
    proxy.discover(request("p1"))
    await eventually(lambda: tunnels.proxies == ("p1",))


async def test_who_answers_is_no_proxy(start: Start) -> None:
    """A hello without an id is no tunnel."""
    proxy = FakeProxy("")
    tunnels = await start(proxy)
    await eventually(lambda: proxy.dials > 1)
    assert tunnels.proxies == ()


@pytest.mark.parametrize("drain", [0.1, None])
async def test_session_on_a_tunnel_that_was_let_go(
    plane: Plane, caplog: pytest.LogCaptureFixture, drain: float | None
) -> None:
    """It goes on, at most as long as --drain says; what is cut is told, counted, and an abort to its user."""
    proxy = await plane.proxy(ttl=600.0)
    auth = await plane.auth(ttl=600.0)
    async with echoing() as port:
        group = await plane.agents(
            auth.instance.grpc_address,
            [proxy.instance.grpc_address],
            services=(("echo", f"127.0.0.1:{port}"),),
            drain=drain,
        )
        (agent,) = group.agents
        await eventually(lambda: len(proxy.table) == len(agent.tunnels.tunnels) == 1)
        (tunnel,) = agent.tunnels.tunnels
        held = proxy.table.find_current(agent.identity.id)
        assert held is not None
        stream = await proxy.tunnels.open_session(held, "echo")
        with caplog.at_level(logging.WARNING):
            agent.tunnels._retire(tunnel, "advised")
            if drain is None:
                assert tunnel.retired_at is not None
                tunnel.retired_at -= 86_400
                agent.tunnels.sweep(time.monotonic(), 1.0)
                await stream.write(b"still here")
                assert await stream.read() == b"still here"
                await stream.close()
            else:
                with pytest.raises(TunnelError):
                    await stream.read()
        await eventually(lambda: tunnel not in agent.tunnels.tunnels)
    assert ("tunnel.cut: agent-1" in caplog.text) is (drain is not None)
    assert agent.tunnels._metrics.sessions_cut._value.get() == (0 if drain is None else 1)
