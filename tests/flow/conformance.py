"""The retry conformance: runs every case on the gateway and both interceptors, and records the results.

What is asked stands in conformance_cases.py.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import yaml

from fleet.protocol.retry import grpc_route_yaml
from fleet.protocol.retry.grpc_route import GRPCRoute
from fleet.transport.channels import channel_options
from fleet.transport.retry.aio import RetryInterceptor
from fleet.transport.retry.blocking import BlockingRetryInterceptor
from tests.fakes.echoing import route, run_gateway
from tests.fakes.failing import STREAM, UNARY, FailingBackend, failure_metadata
from tests.fakes.waiting import eventually
from tests.flow.conformance_cases import CASES, GROUPS, Case


@dataclass
class CaseOutcome:
    """The result of a case."""

    status: str
    tries: int
    gaps: list[float] = field(default_factory=list)
    #: Seconds from the call's beginning to its last try.
    last: float = math.inf


#: How many cases run side by side: all that wait for seconds, and a few others.
_AT_ONCE = 32
SUBJECTS = ("gateway", "grpc.aio interceptor", "blocking interceptor")


@asynccontextmanager
async def _relay(address: str, resets: int) -> AsyncIterator[tuple[str, list[float]]]:
    """Relay connections and reset the first `resets` when a call arrives; yield the address and the arrival times."""
    host, _, port = address.rpartition(":")
    times: list[float] = []
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mark: bytes) -> None:
        while chunk := await reader.read(65536):
            if mark and mark in chunk:
                times.append(time.monotonic())
                if len(times) <= resets:
                    writer.transport.abort()
                    return
            writer.write(chunk)
        writer.close()

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, back = await asyncio.open_connection(host, int(port))
        pumps = [
            asyncio.create_task(pump(reader, back, b"x-call")),
            asyncio.create_task(pump(upstream, writer, b"")),
        ]
        tasks.update(pumps)
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for stream_writer in (writer, back):
                stream_writer.transport.abort()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", times
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _route(case: Case) -> GRPCRoute:
    (parsed_route,) = grpc_route_yaml.from_yaml(yaml.safe_dump(route(case.rule)))
    return parsed_route


@dataclass(frozen=True)
class Call:
    """One call: its case, address, metadata, and the arrival times of its tries."""

    case: Case
    address: str
    metadata: list[tuple[str, str]]
    arrived: Sequence[float]


Caller = Callable[[Call, Path], Awaitable[str]]


async def _call_through_gateway(call: Call, folder: Path) -> str:
    case, backends = call.case, {"svc:1": [call.address]}
    streams = frozenset({STREAM} if case.is_streaming_known else ())
    async with (
        run_gateway(
            folder, backends, route(case.rule), probe_interval=60.0, dial_timeout=30.0, streams=streams
        ) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        return await _await_status(channel, call)


async def _call_by_aio_interceptor(call: Call, folder: Path) -> str:
    del folder
    interceptor = RetryInterceptor(_route(call.case).policy_for)
    async with grpc.aio.insecure_channel(
        call.address, options=channel_options(), interceptors=[interceptor]
    ) as channel:
        return await _await_status(channel, call)


async def _await_status(channel: Any, call: Call) -> str:
    case, metadata = call.case, call.metadata
    try:
        if case.stream:
            async for _ in channel.unary_stream(STREAM)(b"x", metadata=metadata, timeout=case.within):
                pass
            return "OK"
        rpc = channel.unary_unary(UNARY)(b"x", metadata=metadata, timeout=case.within)
        if case.gives_up:
            await eventually(lambda: bool(call.arrived))
            rpc.cancel()
            return str((await rpc.code()).name)
        await rpc
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def _call_by_blocking_interceptor(call: Call, folder: Path) -> str:
    del folder

    def work() -> str:
        with grpc.insecure_channel(call.address, options=channel_options()) as bare:
            channel: Any = grpc.intercept_channel(
                bare, BlockingRetryInterceptor(_route(call.case).policy_for)
            )
            try:
                return _call_blocking(channel, call)
            except grpc.RpcError as error:
                return str(error.code().name)

    return await asyncio.to_thread(work)


def _call_blocking(channel: Any, call: Call) -> str:
    case, metadata = call.case, call.metadata
    if case.stream:
        for _ in channel.unary_stream(STREAM)(b"x", metadata=metadata, timeout=case.within):
            pass
    elif case.gives_up:
        future = channel.unary_unary(UNARY).future(b"x", metadata=metadata, timeout=case.within)
        while not call.arrived:
            time.sleep(0.01)
        future.cancel()
        return str(future.code().name)
    else:
        channel.unary_unary(UNARY)(b"x", metadata=metadata, timeout=case.within)
    return "OK"


CALLERS: dict[str, Caller] = dict(
    zip(
        SUBJECTS,
        (_call_through_gateway, _call_by_aio_interceptor, _call_by_blocking_interceptor),
        strict=True,
    )
)


async def _run_case(case: Case, call: Caller, backend: FailingBackend, folder: Path) -> CaseOutcome:
    metadata = failure_metadata(**case.instructions)
    async with AsyncExitStack() as stack:
        if case.resets is None:
            times = backend.times[dict(metadata)["x-call"]]
            address = backend.address
        else:
            address, times = await stack.enter_async_context(_relay(backend.address, case.resets))
        start = time.monotonic()
        status = await call(Call(case, address, metadata, times), folder)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    return CaseOutcome(status, len(times), gaps, times[-1] - start if times else math.inf)


async def run_all(folder: Path) -> dict[tuple[str, str, str], CaseOutcome]:
    """Run every case on every subject; return the results by group, title and subject."""
    backend = await FailingBackend().start()
    for number in range(len(CASES) * len(SUBJECTS)):
        (folder / str(number)).mkdir()
    runs = [(case, subject) for case in CASES for subject in SUBJECTS]
    # Those that wait long first: all others are done meanwhile.
    runs.sort(key=lambda run: "timeouts" not in run[0].rule)
    # Not all at once: that many programs on one event loop would be late for reasons of their own.
    turns = asyncio.Semaphore(_AT_ONCE)
    # The blocking ones wait in threads, of which a machine with few cores would have too few.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_AT_ONCE))

    async def run(number: int, case: Case, subject: str) -> CaseOutcome:
        async with turns:
            return await _run_case(case, CALLERS[subject], backend, folder / str(number))

    outcomes = await asyncio.gather(
        *(run(number, case, subject) for number, (case, subject) in enumerate(runs))
    )
    await backend.stop()
    return {
        (case.group, case.title, subject): outcome
        for (case, subject), outcome in zip(runs, outcomes, strict=True)
    }


def describe_failure(case: Case, outcome: CaseOutcome) -> str:
    """Return how a result differs from what the case expects; empty when it does not."""
    complaints = []
    if outcome.status != case.status:
        complaints.append(f"{outcome.status} instead of {case.status}")
    if outcome.tries != case.tries:
        complaints.append(f"{outcome.tries} tries")
    if any(gap < least for gap, least in zip(outcome.gaps, case.waits, strict=False)):
        complaints.append(f"waits {[round(gap, 3) for gap in outcome.gaps]}")
    if outcome.last < case.last_after:
        complaints.append(f"its last try after {outcome.last:.3f} s")
    return ", ".join(complaints)


def report(results: dict[tuple[str, str, str], CaseOutcome]) -> str:
    """Return the tables of docs/reference/conformance.md."""
    lines: list[str] = []
    for group in GROUPS:
        lines += [
            f"## {group}",
            "",
            f"| case | expected status | tries | {' | '.join(SUBJECTS)} |",
            f"|---|---|---|{'---|' * len(SUBJECTS)}",
        ]
        for case in CASES:
            if case.group == group:
                marks = [
                    describe_failure(case, results[group, case.title, subject]) or "passes"
                    for subject in SUBJECTS
                ]
                lines.append(f"| {case.title} | `{case.status}` | {case.tries} | {' | '.join(marks)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write the tables of docs/reference/conformance.md."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
    with tempfile.TemporaryDirectory() as folder:
        tables = report(asyncio.run(run_all(Path(folder))))
    head = page.read_text(encoding="utf-8").partition("\n## ")[0]
    page.write_text(f"{head}\n{tables}", encoding="utf-8")


if __name__ == "__main__":
    main()
