"""A tunnel's server in a program of your own: it waits for a target and says hello to it through the tunnel."""

from __future__ import annotations

import asyncio
import sys

import grpc.aio

from fleet.protocol.tunnel.messages import Target, Wire
from fleet.transport.tunnel.server import TunnelServer, serve_tunnels

WANTED = Target("kitchen-radio", "GREETING")


async def main(address: str) -> None:
    """Listen at `address`, greet the target once it is there, and end."""
    came = asyncio.Event()
    tunnel = TunnelServer(Wire.V0_2, on_target=lambda target, there: came.set())
    server = grpc.aio.server()
    serve_tunnels(server, tunnel)
    port = server.add_insecure_port(address)
    await server.start()
    print(f"listening on port {port}", flush=True)
    await came.wait()
    stream = await tunnel.open_session(WANTED)
    await stream.write(b"hello, radio")
    await stream.write_eof()
    answer = b""
    while part := await stream.read():
        answer += part
    await stream.close()
    print(answer.decode())
    await server.stop(grace=1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
