"""The parts of a round trip through the tunnel, each alone: a bare asyncio TCP proxy, and a bare grpc.aio echo.

    python -m tests.bench._bare proxy --to HOST:PORT
    python -m tests.bench._bare echo [--tls-cert FILE --tls-key FILE]
    python -m tests.bench._bare ping --to HOST:PORT [--tls-ca FILE]

As anybody would write them: streams, one task for each direction; bytes as they are, no protobuf.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fleet.transport import channels
from fleet.transport.tls import TLSFiles
from tests.bench.measure import percentile

_METHOD = "/bench.Bare/Echo"
_PING = 64
_CHUNK = 256 * 1024


def _ready(port: int) -> None:
    print(json.dumps({"event": "ready", "listen": f"127.0.0.1:{port}"}), flush=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(_CHUNK):
            writer.write(part)
            await writer.drain()
        writer.write_eof()


async def proxy(to: str) -> None:
    """Forward every connection to `to`."""
    host, _, port = to.rpartition(":")

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_copy(reader, back), _copy(upstream, writer))
        back.close()
        writer.close()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    _ready(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def echo(tls: TLSFiles) -> None:
    """Send every message of a stream back."""

    async def on_stream(messages: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for message in messages:
            yield message

    server = grpc.aio.server(options=channels.server_options())
    method = grpc.stream_stream_rpc_method_handler(on_stream)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bench.Bare", {"Echo": method})])
    port = channels.add_port(server, "127.0.0.1:0", tls)
    await server.start()
    _ready(port)
    await server.wait_for_termination()


async def ping(to: str, tls: TLSFiles, rounds: int) -> None:
    """Microseconds of 64 bytes there and back on one stream, one at a time, after some that warm up."""
    async with channels.open_channel(f"dns:///{to}", tls) as channel:
        call: Any = channel.stream_stream(_METHOD)()
        message = bytes(_PING)
        micros = []
        for turn in range(rounds + rounds // 10):
            start = time.perf_counter()
            await call.write(message)
            await call.read()
            if turn >= rounds // 10:
                micros.append((time.perf_counter() - start) * 1e6)
        await call.done_writing()
    print(json.dumps({"p50_us": percentile(micros, 0.5), "p99_us": percentile(micros, 0.99)}))


def main(argv: list[str]) -> None:
    """Run the role that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench._bare")
    parser.add_argument("what", choices=["proxy", "echo", "ping"])
    parser.add_argument("--to", default="")
    parser.add_argument("--count", type=int, default=1000)
    for name in ("cert", "key", "ca"):
        parser.add_argument(f"--tls-{name}", type=Path)
    options = parser.parse_args(argv)
    tls = TLSFiles(options.tls_cert, options.tls_key, options.tls_ca)
    work = {
        "proxy": lambda: proxy(options.to),
        "echo": lambda: echo(tls),
        "ping": lambda: ping(options.to, tls, options.count),
    }[options.what]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(work())


if __name__ == "__main__":
    main(sys.argv[1:])
