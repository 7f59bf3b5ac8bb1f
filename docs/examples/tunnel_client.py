"""A tunnel's client in a program of your own: it registers a target and answers whoever opens a session to it."""

from __future__ import annotations

import asyncio
import sys

import grpc.aio

from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport.tunnel.handlers import Serve, Taken
from fleet.transport.tunnel.link import Link, TunnelSpec
from fleet.transport.tunnel.stream import TunnelStream

OURS = Target("kitchen-radio", "GREETING")


async def take(target: Target) -> Taken:
    """Take a session, or refuse it: the sentence reaches whoever asked, and nobody else."""
    if target != OURS:
        raise TunnelError(f"{target} does not live here")
    return Serve(answer)


async def answer(stream: TunnelStream) -> None:
    """Serve one session: what is said comes back in capitals."""
    said = b""
    while part := await stream.read():
        said += part
    await stream.write(said.upper())


async def main(address: str) -> None:
    """Stay registered with the server at `address`, whatever happens to it or to the connection."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    link = Link(
        lambda: grpc.aio.insecure_channel(address, options=options),
        TunnelSpec(targets=(OURS,), handler=take, name="kitchen"),
        on_up=lambda up, why: print("registered" if up else f"not registered: {why}", flush=True),
    )
    await link.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
