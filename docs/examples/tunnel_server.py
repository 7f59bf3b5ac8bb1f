"""A tunnel server: wait for a target and greet it through the tunnel."""

from __future__ import annotations

import asyncio
import sys

import grpc.aio

from fleet.protocol.tunnel.messages import Target, WireVersion
from fleet.transport.tunnel.server import TunnelServer, serve_tunnels

TARGET = Target("kitchen-radio", "GREETING")


async def main(address: str) -> None:
    """Listen at `address`, greet the target when it has registered, and exit."""
    registered = asyncio.Event()
    tunnel = TunnelServer(WireVersion.V0_2, on_target=lambda target, is_registered: registered.set())
    server = grpc.aio.server()
    serve_tunnels(server, tunnel)
    port = server.add_insecure_port(address)
    await server.start()
    print(f"listening on port {port}", flush=True)
    await registered.wait()
    stream = await tunnel.open_session(TARGET)
    await stream.write(b"hello, radio")
    await stream.write_eof()
    response = b""
    while chunk := await stream.read():
        response += chunk
    await stream.close()
    print(response.decode())
    await server.stop(grace=1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
