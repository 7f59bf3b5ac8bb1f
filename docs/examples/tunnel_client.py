"""A tunnel client: register a target and serve the sessions that are opened to it."""

from __future__ import annotations

import asyncio
import sys

import grpc.aio

from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport.tunnel.handlers import AcceptedSession, FunctionSession
from fleet.transport.tunnel.link import TunnelLink, TunnelSpec
from fleet.transport.tunnel.stream import TunnelStream

SERVICE = Target("kitchen-radio", "GREETING")


async def accept(target: Target) -> AcceptedSession:
    """Accept a session, or refuse it with a sentence for the requester."""
    if target != SERVICE:
        raise TunnelError(f"unknown target: {target}")
    return FunctionSession(serve)


async def serve(stream: TunnelStream) -> None:
    """Serve one session: send the text back in capitals."""
    request = b""
    while chunk := await stream.read():
        request += chunk
    await stream.write(request.upper())


async def main(address: str) -> None:
    """Stay registered with the server at `address`, also after lost connections."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    link = TunnelLink(
        lambda: grpc.aio.insecure_channel(address, options=options),
        TunnelSpec(targets=(SERVICE,), handler=accept, name="kitchen"),
        on_up_change=lambda is_up, reason: print(
            "registered" if is_up else f"not registered: {reason}", flush=True
        ),
    )
    await link.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
