"""The processes of the probe benchmark: endpoints that respond, our prober, and the driver of the blackbox exporter.

python -m tests.bench._probe_ends endpoints --count 500
python -m tests.bench._probe_ends ours          (then orders on standard input: {"kind", "checks", "addresses"})
python -m tests.bench._probe_ends drive         (the same orders, with "exporter": host:port)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle, islice
from typing import Any

import aiohttp
import grpc
import grpc.aio
import uvloop
from grpc_health.v1 import health_pb2

from fleet.monitoring.sources.health import check_health
from fleet.processes import garbage
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import ServingStatus

#: Concurrent checks: the size of a console's shard, the same for all probers.
_AT_ONCE = 250
_TIMEOUT = 10.0

Check = Callable[[str], Awaitable[None]]


def _announce(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


async def _endpoints(count: int) -> None:
    """Serve on many ports: a prober sees one destination per port."""
    answer = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING).SerializeToString()

    async def check(request: bytes, context: Any) -> bytes:
        return answer

    handlers = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers),)
    )
    ports = [server.add_insecure_port("127.0.0.1:0") for _ in range(count)]
    await server.start()
    _announce(ready=True, addresses=[f"127.0.0.1:{port}" for port in ports])
    await server.wait_for_termination()


async def _spread(addresses: Sequence[str], checks: int, check: Check) -> None:
    """Make that many checks, round robin over the addresses."""
    todo = islice(cycle(addresses), checks)

    async def check_in_turn() -> None:
        for address in todo:
            await check(address)

    await asyncio.gather(*(check_in_turn() for _ in range(_AT_ONCE)))


async def _probe() -> None:
    """Probe as the console's pollers do, over reused channels or a new channel for each check."""
    garbage.collect_less()
    connections = Connections()

    async def reused(address: str) -> None:
        answer = await check_health(connections.channel(address, "auth"), timeout=_TIMEOUT)
        assert answer.serving_status is ServingStatus.SERVING, f"{address} answers {answer}"

    async def new(address: str) -> None:
        fresh = Connections()
        answer = await check_health(fresh.channel(address, "auth"), timeout=_TIMEOUT)
        await fresh.close()
        assert answer.serving_status is ServingStatus.SERVING, f"{address} answers {answer}"

    await _follow_orders({"reused": reused, "new": new})
    await connections.close()


async def _drive_exporter() -> None:
    """Let a blackbox exporter probe; only the exporter's CPU counts, and every probe must succeed."""
    connector = aiohttp.TCPConnector(limit=_AT_ONCE)
    async with aiohttp.ClientSession(connector=connector) as session:
        exporter = ""

        async def check(address: str) -> None:
            query = {"target": address, "module": "grpc"}
            async with session.get(f"http://{exporter}/probe", params=query) as answer:
                text = await answer.text()
            assert "probe_success 1\n" in text, f"{address}: {text}"

        def set_exporter(order: dict[str, Any]) -> None:
            nonlocal exporter
            exporter = order["exporter"]

        await _follow_orders({"blackbox": check}, set_exporter)


async def _follow_orders(
    kinds: dict[str, Check], on_order: Callable[[dict[str, Any]], None] = lambda _: None
) -> None:
    """Execute the orders on standard input, one per line, and print what each cost."""
    loop = asyncio.get_running_loop()
    _announce(ready=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        on_order(order)
        cpu, clock = time.process_time(), time.perf_counter()
        await _spread(order["addresses"], order["checks"], kinds[order["kind"]])
        _announce(cpu=time.process_time() - cpu, seconds=time.perf_counter() - clock)


def main() -> None:
    """Run the role that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["endpoints", "ours", "drive"])
    parser.add_argument("--count", type=int, default=1)
    options = parser.parse_args()
    if options.role == "endpoints":
        uvloop.run(_endpoints(options.count))
    else:
        # As the pollers' worker does.
        uvloop.run(_probe() if options.role == "ours" else _drive_exporter())


if __name__ == "__main__":
    main()
