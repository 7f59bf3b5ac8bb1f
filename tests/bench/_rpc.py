"""The calls of the gateway's bench: a server, a bare pass-through, a client that measures, each a process of its own.

python -m tests.bench._rpc serve
python -m tests.bench._rpc pass --to HOST:PORT
python -m tests.bench._rpc drive --to HOST:PORT --calls 500 --seconds 2
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any

import grpc
import grpc.aio
import uvloop
from typing_extensions import override

from tests.bench.measure import percentile

METHOD = "/refloat.bench.Echo/Unary"
_BODY = b"x" * 100
#: Calls at a time where calls a second are counted.
_AT_ONCE = 32


class _EchoHandler(grpc.GenericRpcHandler):
    """One unary method of bytes."""

    def __init__(self, answer: Any) -> None:
        self._handler = grpc.unary_unary_rpc_method_handler(answer)

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handler if handler_call_details.method == METHOD else None


async def _serve(answer: Any) -> None:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_EchoHandler(answer),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"event": "ready", "grpc": f"127.0.0.1:{port}"}), flush=True)
    await server.wait_for_termination()


async def serve() -> None:
    """Answer bytes with the same bytes."""

    async def answer(request: bytes, context: Any) -> bytes:
        del context
        return request

    await _serve(answer)


async def pass_on(to: str) -> None:
    """Pass a call on and nothing else: the least that a gateway on grpc.aio can cost.

    It knows that the method is unary, as a gateway does not.
    """
    call: Any = grpc.aio.insecure_channel(to).unary_unary(METHOD)

    async def answer(request: bytes, context: Any) -> Any:
        metadata = [pair for pair in context.invocation_metadata() if pair[0] != "user-agent"]
        return await call(request, timeout=context.time_remaining(), metadata=metadata)

    await _serve(answer)


async def drive(to: str, calls: int, seconds: float) -> dict[str, float]:
    """Make calls one after another, then many at a time."""
    async with grpc.aio.insecure_channel(to) as channel:
        call: Any = channel.unary_unary(METHOD)
        for _ in range(50):
            await call(_BODY, timeout=30.0)
        micros = []
        for _ in range(calls):
            start = time.perf_counter()
            await call(_BODY, timeout=30.0)
            micros.append((time.perf_counter() - start) * 1e6)
        print(json.dumps({"event": "one by one"}), flush=True)
        count = 0
        start = time.perf_counter()
        until = start + seconds

        async def call_until_end() -> None:
            nonlocal count
            while time.perf_counter() < until:
                await call(_BODY, timeout=30.0)
                count += 1

        await asyncio.gather(*(call_until_end() for _ in range(_AT_ONCE)))
        spent = time.perf_counter() - start
    return {
        "p50_us": percentile(micros, 0.5),
        "p99_us": percentile(micros, 0.99),
        "rpc_per_s": count / spent,
        "calls": 50 + calls + count,
    }


def main(argv: list[str]) -> None:
    """Run the role that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["serve", "pass", "drive"])
    parser.add_argument("--to", default="")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args(argv)
    if options.role == "serve":
        uvloop.run(serve())
    elif options.role == "pass":
        uvloop.run(pass_on(options.to))
    else:
        print(json.dumps(uvloop.run(drive(options.to, options.calls, options.seconds))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
