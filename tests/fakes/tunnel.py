"""Tunnel servers, clients and TCP services of one test: real gRPC and real TCP on localhost, ended together."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport import channels
from fleet.transport.tls import TLSFiles
from fleet.transport.tunnel import codec, options
from fleet.transport.tunnel.client import BytesMethod, TunnelClient
from fleet.transport.tunnel.handlers import AcceptedSession, FunctionSession, SessionHandler, dial
from fleet.transport.tunnel.listener import TunnelListener
from fleet.transport.tunnel.pump import SessionPolicy
from fleet.transport.tunnel.server import TunnelServer, serve_tunnels
from fleet.transport.tunnel.stream import TunnelStream
from tests.fakes.loop_faults import record_loop_faults
from tests.fakes.tcp import OnConnection, serve_tcp
from tests.fakes.waiting import eventually

SSH = Target("router-7", "SSH")
Options = list[tuple[str, Any]]


class Ground:
    """Starts things and ends them all."""

    def __init__(self) -> None:
        self._ends = contextlib.AsyncExitStack()
        #: What may be logged as an error, as parts of the sentences.
        self.expected: list[str] = []
        #: The servers, by address.
        self.grpc: dict[str, grpc.aio.Server] = {}

    async def server(
        self, *tunnels: TunnelServer, more: Options | None = None, tls: TLSFiles | None = None
    ) -> str:
        """A gRPC server of tunnels; its address."""
        server = grpc.aio.server(
            options=[*channels.server_options(), *options.server_options(), *(more or [])]
        )
        serve_tunnels(server, *tunnels)
        port = channels.add_port(server, "127.0.0.1:0", tls)
        await server.start()
        self._ends.push_async_callback(server.stop, 0)
        address = f"127.0.0.1:{port}"
        self.grpc[address] = server
        return address

    def channel(
        self, address: str, more: Options | None = None, tls: TLSFiles | None = None
    ) -> grpc.aio.Channel:
        """A channel with a connection of its own."""
        channel = channels.open_channel(
            address, tls, extra_options=[*options.channel_options(), *(more or [])]
        )
        self._ends.push_async_callback(channel.close)
        return channel

    async def client(
        self,
        address: str,
        *targets: Target,
        wire: WireVersion = WireVersion.V0_2,
        subscribe: Iterable[str] = (),
        channel: grpc.aio.Channel | None = None,
        **more: Any,
    ) -> StartedClient:
        """A client that is up."""
        client = TunnelClient(channel or self.channel(address), wire, **more)
        task = asyncio.create_task(client.run(targets, subscribe))
        self._ends.push_async_callback(_end, client, task)
        await asyncio.sleep(0)
        await client.wait_until_up()
        assert client.is_up, task
        return StartedClient(client, task)

    async def service(self, on_connection: OnConnection) -> int:
        """A TCP service; its port."""
        return await self._ends.enter_async_context(serve_tcp(on_connection))

    async def listen(
        self, open_session: Callable[[], Awaitable[TunnelStream]], policy: SessionPolicy | None = None
    ) -> int:
        """A listener; its port."""
        listener = await TunnelListener(open_session, policy).start("127.0.0.1", 0)
        self._ends.push_async_callback(listener.stop)
        return listener.port

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A TCP connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self._ends.push_async_callback(_abort, writer)
        return reader, writer

    async def pair(self, **more: Any) -> Pair:
        """Open one session from the server; return both of its streams."""
        stream_future: asyncio.Future[TunnelStream] = asyncio.get_running_loop().create_future()
        end_event = asyncio.Event()
        self._ends.callback(end_event.set)

        async def serve(stream: TunnelStream) -> None:
            stream_future.set_result(stream)
            await end_event.wait()

        tunnel = TunnelServer()
        client = await self.client(await self.server(tunnel), SSH, handler=taking(serve), **more)
        return Pair(await tunnel.open_session(SSH), await stream_future, tunnel, client.client)

    def raw(self, channel: grpc.aio.Channel, path: str, *metadata: tuple[str, str]) -> Any:
        """Open a raw call of bytes, for messages that our client never sends."""
        open_call: BytesMethod = channel.stream_stream(path)
        call = open_call(metadata=metadata)
        self._ends.callback(call.cancel)
        return call

    async def close(self) -> None:
        """End everything, the newest first."""
        await self._ends.aclose()


@dataclass
class StartedClient:
    """A client and what its run came to."""

    client: TunnelClient
    task: asyncio.Task[None]


@dataclass
class Pair:
    """The two streams of a session, with their server and client."""

    server: TunnelStream
    client: TunnelStream
    tunnel: TunnelServer
    of: TunnelClient


async def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _end(client: TunnelClient, task: asyncio.Task[None]) -> None:
    await client.close()
    with contextlib.suppress(TunnelError):
        await task


def taking(serve: Callable[[TunnelStream], Awaitable[None]]) -> SessionHandler:
    """A handler that takes every session."""

    async def take(target: Target) -> AcceptedSession:
        del target
        return FunctionSession(serve)

    return take


def dial_sessions(port: int, policy: SessionPolicy | None = None) -> SessionHandler:
    """A handler that takes every session to one port."""

    async def take(target: Target) -> AcceptedSession:
        del target
        return await dial("127.0.0.1", port, policy or SessionPolicy())

    return take


def refusing(reason: str) -> SessionHandler:
    """A handler that takes none."""

    async def take(target: Target) -> AcceptedSession:
        raise TunnelError(f"{target}: {reason}")

    return take


async def echo(stream: TunnelStream) -> None:
    """Serve a session by saying everything again."""
    while data := await stream.read():
        await stream.write(data)


async def echo_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a TCP connection by saying everything again."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a protocol whose request ends with the end of stream."""
    writer.write(hashlib.sha256(await reader.read()).hexdigest().encode())
    await writer.drain()


async def ended_badly(reader: asyncio.StreamReader) -> bool:
    """Read a TCP connection to its end: whether that was a reset."""
    try:
        async with asyncio.timeout(60):
            await reader.read()
    except ConnectionResetError:
        return True
    return False


async def open_session(tunnel: TunnelServer, target: Target) -> TunnelStream:
    """Open a session to a client that is up: in version 0.1, its server does not confirm that it can serve one."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await tunnel.open_session(target)
            except TunnelError as error:
                if "no client with a handler" not in str(error):
                    raise
                await asyncio.sleep(0.01)


async def still_works(stream: TunnelStream) -> None:
    """A session to an echo goes on."""
    async with asyncio.timeout(60):
        await stream.write(b"still here?")
        assert await stream.read() == b"still here?"


async def failure_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return status and details of a raw call."""
    async with asyncio.timeout(60):
        return await call.code(), str(await call.details())


def no_sessions(tunnel: TunnelServer) -> bool:
    """Whether a server holds nothing for any session."""
    return not tunnel._waiters and all(
        not (client.accepted_sessions or client.handler_tasks or client.streams)
        and not (
            client.connection.outgoing_requests
            or client.connection.incoming_requests
            or client.connection.open_tags
        )
        for client in tunnel._clients.values()
    )


@contextlib.asynccontextmanager
async def ground(errors: Callable[[], list[str]]) -> AsyncIterator[Ground]:
    """Yield a Ground and check that it leaves no task and no unexpected error."""
    faults = record_loop_faults()
    before = asyncio.all_tasks()
    new_ground = Ground()
    try:
        yield new_ground
    finally:
        await new_ground.close()

    def remaining_tasks() -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()]

    await eventually(lambda: not [task for task in remaining_tasks() if "poll" not in task.get_name()])
    assert not faults, faults
    unexpected = [line for line in errors() if not any(part in line for part in new_ground.expected)]
    assert not unexpected, unexpected


REGISTER, TUNNEL = codec.REGISTER_METHOD, codec.TUNNEL_METHOD
