"""The tunnels of an agent to a fake proxy that sends what a test needs."""

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
from tests.fakes.tcp import serve_echo
from tests.fakes.waiting import eventually


class FakeProxy:
    """Respond to every hello with the next name, and send the frames in `out`."""

    def __init__(self, *names: str) -> None:
        self._names = list(names)
        self.received_frames: list[fleet_pb2.AgentFrame] = []
        self.outgoing_frames: asyncio.Queue[fleet_pb2.ProxyFrame | None] = asyncio.Queue()
        self.dials = 0
        self.tunnels = TunnelServer()

    async def Control(  # noqa: N802
        self, requests: AsyncIterator[fleet_pb2.AgentFrame], context: Any
    ) -> AsyncIterator[fleet_pb2.ProxyFrame]:
        """Serve one tunnel."""
        del context
        self.dials += 1
        self.received_frames.append(await anext(requests))
        reader = asyncio.create_task(self._read(requests))
        name = self._names.pop(0) if len(self._names) > 1 else self._names[0]
        yield fleet_pb2.ProxyFrame(hello=fleet_pb2.ProxyHello(proxy_id=name))
        try:
            while (frame := await self.outgoing_frames.get()) is not None:
                yield frame
        finally:
            reader.cancel()

    async def _read(self, requests: AsyncIterator[fleet_pb2.AgentFrame]) -> None:
        async for frame in requests:
            self.received_frames.append(frame)

    def send_discovery(self, encoded_request: bytes) -> None:
        """Send a discovery request."""
        self.outgoing_frames.put_nowait(
            fleet_pb2.ProxyFrame(discovery=fleet_pb2.Discovery(request=encoded_request))
        )


StartTunnels = Callable[..., Any]


@pytest.fixture
async def start_tunnels() -> AsyncIterator[StartTunnels]:
    """Yield a function that starts a fake proxy and an agent's tunnels to it."""
    cleanups: list[Any] = []

    async def start_one(
        proxy: FakeProxy,
        keep_alive: KeepAlive | None = None,
        count: int = 1,
        closing: ClosingPolicy | None = None,
        on_networking_config_notice: Callable[[str, float], None] | None = None,
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
            on_networking_config_notice or (lambda revision, spread: None),
        )
        cleanups.append((server, tunnels, asyncio.create_task(tunnels.run())))
        return tunnels

    yield start_one
    for server, tunnels, task in cleanups:
        task.cancel()
        await asyncio.wait([task])
        await tunnels.close()
        await server.stop(0)


def discovery_request(*names: str, ttl: float = 60.0) -> bytes:
    return discovery.encode(tuple(DiscoveredProxy(name, ttl=ttl) for name in names))


async def test_hello_contains_agent_id_and_name(start_tunnels: StartTunnels) -> None:
    """The hello is the first frame, and the agent opens no second tunnel."""
    proxy = FakeProxy("p1")
    tunnels = await start_tunnels(proxy)
    proxy.send_discovery(discovery_request("p1"))
    await eventually(lambda: tunnels.proxy_ids == ("p1",))
    assert (proxy.received_frames[0].hello.agent_id, proxy.received_frames[0].hello.name) == ("id", "agent-1")
    assert proxy.dials == 1


@pytest.fixture
def disabled_garbage_collector() -> Iterator[None]:
    """Turn the garbage collector off: gRPC keeps a connection while a reference to one of its calls exists."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_cancelled_tunnel_leaves_no_connection(
    start_tunnels: StartTunnels, disabled_garbage_collector: None
) -> None:
    """A new tunnel replaces the cancelled tunnel, and only its connection is open."""
    count_before, proxy = _count_connections(), FakeProxy("p1")
    tunnels = await start_tunnels(proxy)
    proxy.send_discovery(discovery_request("p1"))
    await eventually(lambda: tunnels.proxy_ids == ("p1",))
    (first,) = tunnels.tunnels
    first.cancel()
    del first
    await eventually(lambda: proxy.dials == 2 and tunnels.proxy_ids == ("p1",))
    await eventually(lambda: _count_connections() <= count_before + 2)  # both ends are in this process


async def test_duplicate_dial_leaves_no_connection(
    start_tunnels: StartTunnels, disabled_garbage_collector: None
) -> None:
    """The agent closes a new connection when its proxy is one that the agent has a tunnel to."""
    count_before, proxy = _count_connections(), FakeProxy("p1", "p1", "p1", "p2")
    tunnels = await start_tunnels(proxy, count=2)
    proxy.send_discovery(discovery_request("p1", "p2"))
    await eventually(lambda: tunnels.proxy_ids == ("p1", "p2"))
    await eventually(lambda: _count_connections() <= count_before + 2 * 2)


def _count_connections() -> int:
    connections = psutil.Process().net_connections("tcp")
    return sum(1 for connection in connections if connection.status == psutil.CONN_ESTABLISHED)


async def test_proxy_is_not_claimed_twice(start_tunnels: StartTunnels) -> None:
    """If the balancer leads to the same proxy again, the agent closes that connection and dials again."""
    proxy = FakeProxy("p1", "p1", "p1", "p2")
    tunnels = await start_tunnels(proxy, count=2)
    proxy.send_discovery(discovery_request("p1", "p2"))
    await eventually(lambda: tunnels.proxy_ids == ("p1", "p2"))
    assert proxy.dials >= 4


async def test_malformed_discovery_is_counted_and_logged_once(
    start_tunnels: StartTunnels, caplog: pytest.LogCaptureFixture
) -> None:
    """An unreadable message is logged once per proxy and ends no tunnel."""
    proxy = FakeProxy("p1")
    registry = CollectorRegistry()
    tunnels = await start_tunnels(proxy, registry=registry)
    with caplog.at_level(logging.WARNING):
        proxy.send_discovery(b"nonsense")
        proxy.send_discovery(b"more nonsense")
        proxy.send_discovery(discovery_request("p1"))
        await eventually(lambda: tunnels._pool.tracker.snapshot(time.monotonic()).tracked_proxies == ("p1",))
    assert caplog.text.count("discovery.refused") == 1
    sample = registry.get_sample_value
    assert sample("refloat_agent_refused_inputs_total", {"kind": "discovery"}) == 2
    # Unreadable messages count as received, too.
    assert sample("refloat_agent_discovery_messages_total") == 3
    size = len(b"nonsense" + b"more nonsense" + discovery_request("p1"))
    assert sample("refloat_agent_discovery_bytes_total") == size
    assert tunnels.proxy_ids == ("p1",)


async def test_unreadable_discovery_entry_does_not_hide_the_others(
    start_tunnels: StartTunnels, caplog: pytest.LogCaptureFixture
) -> None:
    """Readable entries are applied; unreadable entries are counted, and logged once per proxy."""
    proxy = FakeProxy("p1")
    registry = CollectorRegistry()
    tunnels = await start_tunnels(proxy, registry=registry)
    newer_entry = {"version": "v3", "metadata": {"name": "p9"}}
    entries = [*json.loads(discovery_request("p1", "p2"))["proxies"], newer_entry, newer_entry]
    with caplog.at_level(logging.WARNING):
        proxy.send_discovery(json.dumps({"proxies": entries}).encode())
        await eventually(
            lambda: tunnels._pool.tracker.snapshot(time.monotonic()).tracked_proxies == ("p1", "p2")
        )
    assert caplog.text.count("discovery.refused") == 1
    assert registry.get_sample_value("refloat_agent_refused_inputs_total", {"kind": "discovery-entry"}) == 2
    assert registry.get_sample_value("refloat_agent_refused_inputs_total", {"kind": "discovery"}) is None


async def test_advised_agent_keeps_tunnel_until_replacement_is_connected(start_tunnels: StartTunnels) -> None:
    """The agent replies to the advisory, connects to the other proxy, and then leaves the first."""
    proxy = FakeProxy("p1", "p2")
    tunnels = await start_tunnels(proxy)
    proxy.send_discovery(discovery_request("p1", "p2"))
    await eventually(lambda: tunnels.proxy_ids == ("p1",))
    advisory = fleet_pb2.ReconnectAdvisory(advisory_id="x", reason="test")
    proxy.outgoing_frames.put_nowait(fleet_pb2.ProxyFrame(reconnect_advisory=advisory))
    await eventually(lambda: tunnels.proxy_ids == ("p2",))
    replies = [frame.advisory_reply for frame in proxy.received_frames if frame.HasField("advisory_reply")]
    assert [(reply.advisory_id, reply.accepted) for reply in replies] == [("x", True)]


async def test_missing_pongs_end_the_tunnel(start_tunnels: StartTunnels) -> None:
    """After interval x count of silence the agent closes the tunnel and dials again."""
    proxy = FakeProxy("p1")
    tunnels = await start_tunnels(proxy, KeepAlive(interval=0.05, count_max=3))
    proxy.send_discovery(discovery_request("p1"))
    await eventually(lambda: tunnels.proxy_ids == ("p1",))

    def has_dialled_again() -> bool:
        tunnels.sweep(time.monotonic(), 0.05)
        return proxy.dials > 1 and any(frame.HasField("ping") for frame in proxy.received_frames)

    await eventually(has_dialled_again)


async def test_tunnel_closed_by_proxy_is_dialled_again(start_tunnels: StartTunnels) -> None:
    """The agent dials again after its backoff."""
    proxy = FakeProxy("p1")
    tunnels = await start_tunnels(proxy)
    proxy.send_discovery(discovery_request("p1"))
    await eventually(lambda: tunnels.proxy_ids == ("p1",))
    proxy.outgoing_frames.put_nowait(None)
    await eventually(lambda: proxy.dials == 2)
    proxy.send_discovery(discovery_request("p1"))
    await eventually(lambda: tunnels.proxy_ids == ("p1",))


async def test_hello_without_proxy_id_is_no_tunnel(start_tunnels: StartTunnels) -> None:
    """The agent does not count the tunnel and dials again."""
    proxy = FakeProxy("")
    tunnels = await start_tunnels(proxy)
    await eventually(lambda: proxy.dials > 1)
    assert tunnels.proxy_ids == ()


@pytest.mark.parametrize(
    ("drain", "elapsed_seconds", "is_terminated"),
    [(0.1, 0.0, True), (600.0, 300.0, False), (600.0, 601.0, True), (None, 86_400.0, False)],
)
async def test_session_on_retired_tunnel_lasts_until_drain_timeout(
    plane: Plane,
    caplog: pytest.LogCaptureFixture,
    drain: float | None,
    elapsed_seconds: float,
    is_terminated: bool,
) -> None:
    """The session lasts at most as long as --drain; when terminated it is logged, counted, and aborted for its user."""
    proxy = await plane.proxy(ttl=600.0)
    auth = await plane.auth(ttl=600.0)
    async with serve_echo() as port:
        group = await plane.agents(
            auth.instance.grpc_address,
            [proxy.instance.grpc_address],
            services=(("echo", f"127.0.0.1:{port}"),),
            drain=drain,
        )
        (agent,) = group.agents
        await eventually(lambda: len(proxy.table) == len(agent.tunnels.tunnels) == 1)
        (tunnel,) = agent.tunnels.tunnels
        proxy_tunnel = proxy.table.find_current(agent.identity.id)
        assert proxy_tunnel is not None
        stream = await proxy.tunnels.open_session(proxy_tunnel, "echo")
        with caplog.at_level(logging.WARNING):
            agent.tunnels._retire(tunnel, "advised")
            assert tunnel.retired_at is not None
            tunnel.retired_at -= elapsed_seconds
            if not is_terminated:
                agent.tunnels.sweep(time.monotonic(), 1.0)
                await stream.write(b"still here")
                assert await stream.read() == b"still here"
                await stream.close()
            else:
                with pytest.raises(TunnelError):
                    await stream.read()
        await eventually(lambda: tunnel not in agent.tunnels.tunnels)
    assert ("tunnel.drain-timeout: agent-1" in caplog.text) is is_terminated
    assert agent.tunnels._metrics.terminated_sessions._value.get() == (1 if is_terminated else 0)
