"""A path to a server through a proxy, made of the real tunnel, as agents with `--auth-via proxy` use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc.aio

from fleet.protocol.recovery import auth_path
from fleet.protocol.tunnel.messages import Target
from fleet.transport import channels
from fleet.transport.tunnel.handlers import AcceptedSession, FunctionSession, dial
from fleet.transport.tunnel.pump import SessionPolicy
from fleet.transport.tunnel.server import TunnelServer, serve_tunnels
from fleet.transport.tunnel.stream import TunnelStream
from fleet.transport.tunnel_forwarder import TunnelForwarder


@asynccontextmanager
async def serving_path(
    get_address: Callable[[], tuple[str, int]], proxy_id: str
) -> AsyncIterator[tuple[str, int]]:
    """Run a proxy that leads to one address, and serves nothing else; yield its own address."""

    async def send_proxy_id(stream: TunnelStream) -> None:
        await stream.write(proxy_id.encode())
        await stream.close()

    async def accept_session(target: Target) -> AcceptedSession:
        return (
            FunctionSession(send_proxy_id)
            if target == auth_path.PROXY_ID_TARGET
            else await dial(*get_address(), SessionPolicy())
        )

    server = grpc.aio.server(options=channels.server_options())
    serve_tunnels(server, TunnelServer(handler=accept_session, local=auth_path.TARGETS))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield "127.0.0.1", port
    finally:
        await server.stop(0)


@asynccontextmanager
async def forwarder_to(
    get_address: Callable[[], tuple[str, int]], proxy_id: str = "proxy-1"
) -> AsyncIterator[TunnelForwarder]:
    """Yield a forwarder through a proxy that leads to one address."""
    async with serving_path(get_address, proxy_id) as proxy:
        forwarder = TunnelForwarder(lambda: channels.open_channel(channels.target_of([proxy])))
        try:
            yield forwarder
        finally:
            await forwarder.close()
