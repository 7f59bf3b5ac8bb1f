"""Fake auths for a balanced channel: configurable responses that name the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig
from fleet.transport import channels
from fleet.transport.service_config import AUTH_ID_METADATA
from fleet.transport.tunnel_forwarder import TunnelForwarder
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.waiting import eventually

_CONFIG = "teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService"
RECONNECT = ServiceConfig(PickHealthyMode.RECONNECT, "")


class FakeAuth:
    """One server on a port of its own."""

    def __init__(self, name: str, config: ServiceConfig | None = RECONNECT, *, health: bool = True) -> None:
        """Make it; without `config` or `health` it has no such service."""
        self.name = name
        self.config = config
        #: Set to a status, GetServiceConfig fails with it; with `answer_event` cleared, it does not answer at all.
        self.config_fails: grpc.StatusCode | None = None
        #: Set, its answer cannot be read.
        self.config_is_garbage = False
        self.answer_event = asyncio.Event()
        self.answer_event.set()
        self.configs_asked = 0
        self.watches = 0
        #: Health services of which it says SERVICE_UNKNOWN.
        self.unknown_services: set[str] = set()
        self.calls = 0
        #: Heartbeats that it answered, the last one last; `heartbeat_fails` ends that many of the next ones.
        self.heartbeats: list[fleet_pb2.HeartbeatRequest] = []
        self.heartbeat_fails = 0
        self._healthy = True
        self._change_event = asyncio.Event()
        #: Streams that run, by what each is to say next.
        self.streams: list[asyncio.Queue[bytes | None]] = []
        self._has_health = health
        self._server: grpc.aio.Server | None = None
        self.port = 0
        #: Set by tests that reach it through a proxy.
        self.forwarder: TunnelForwarder | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", self.port

    @property
    def reached_at(self) -> tuple[str, int]:
        """Where clients find it: its own address, or that of the way through a proxy."""
        return self.address if self.forwarder is None else self.forwarder.address

    async def start(self) -> FakeAuth:
        """Listen; after a stop, on the port it had."""
        self._server = grpc.aio.server(options=channels.server_options())
        if self.config is not None:
            # As bytes: they may be anything.
            config = {"GetServiceConfig": grpc.unary_unary_rpc_method_handler(self._config)}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_CONFIG, config),))
        if self._has_health:
            health_pb2_grpc.add_HealthServicer_to_server(self, self._server)
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(self._unary),
            "Down": grpc.unary_stream_rpc_method_handler(self._down),
            "Up": grpc.stream_unary_rpc_method_handler(self._up),
            "Both": grpc.stream_stream_rpc_method_handler(self._bidirectional),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fake.Who", handlers),))
        fleet_pb2_grpc.add_HeartbeatServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()
        return self

    async def stop(self, grace: float = 0.0) -> None:
        """End it; calls under way have `grace` seconds."""
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None

    def set_health(self, *, healthy: bool) -> None:
        """Report SERVING or NOT_SERVING from now on."""
        self._healthy = healthy
        self._change_event.set()
        self._change_event = asyncio.Event()

    async def _config(self, request: bytes, context: Any) -> bytes:
        self.configs_asked += 1
        await self.answer_event.wait()
        if self.config_fails is not None:
            await context.abort(self.config_fails, "as you wish")
        assert self.config is not None, "else it is not served"
        context.set_trailing_metadata(((AUTH_ID_METADATA, self.name),))
        return b"\x0a\xff" if self.config_is_garbage else service_config.encode(self.config)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.watches += 1
        if request.service in self.unknown_services:
            yield health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            await asyncio.Event().wait()
        while True:
            change_event = self._change_event
            answer = health_pb2.HealthCheckResponse
            yield answer(status=answer.SERVING if self._healthy else answer.NOT_SERVING)
            await change_event.wait()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = health_pb2.HealthCheckResponse
        return answer(status=answer.SERVING if self._healthy else answer.NOT_SERVING)

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        return health_pb2.HealthListResponse()

    async def Heartbeat(self, request: fleet_pb2.HeartbeatRequest, context: Any) -> Any:  # noqa: N802
        if self.heartbeat_fails:
            self.heartbeat_fails -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "as you wish")
        self.heartbeats.append(request)
        return fleet_pb2.HeartbeatResponse(auth_id=self.name)

    async def Deregister(self, request: Any, context: Any) -> Any:  # noqa: N802
        return fleet_pb2.DeregisterResponse()

    async def _unary(self, request: bytes, context: Any) -> bytes:
        self.calls += 1
        return self.name.encode()

    async def _down(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.streams.append(messages)
        yield self.name.encode()
        while (message := await messages.get()) is not None:
            yield message

    async def _up(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        messages = [message async for message in requests]
        return self.name.encode() + b":" + b"".join(messages)

    async def _bidirectional(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for message in requests:
            yield self.name.encode() + b":" + message


async def await_policy(channel: Any) -> None:
    """Wait until a channel runs with the policy of a server, and is READY by that policy."""
    await channel.channel_ready()
    await eventually(lambda: channel.policy is not None)
    await channel.channel_ready()
