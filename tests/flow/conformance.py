"""The conformance of retries: what is asked of the gateway and of both interceptors, and what each did.

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
from tests.fakes.echoing import gateway_before, route
from tests.fakes.failing import STREAM, UNARY, FailingBackend, told
from tests.fakes.waiting import eventually
from tests.flow.conformance_cases import CASES, GROUPS, Case


@dataclass
class Seen:
    """What came of a case."""

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
    """A relay that resets so many connections as soon as a call comes; when calls came."""
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

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        pumps = [
            asyncio.create_task(pump(reader, back, b"x-call")),
            asyncio.create_task(pump(there, writer, b"")),
        ]
        tasks.update(pumps)
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (writer, back):
                one.transport.abort()

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", times
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _route(case: Case) -> GRPCRoute:
    (found,) = grpc_route_yaml.from_yaml(yaml.safe_dump(route(case.rule)))
    return found


@dataclass(frozen=True)
class Call:
    """One call to be made: its case, where to, with what metadata, and when tries of it arrived."""

    case: Case
    address: str
    how: list[tuple[str, str]]
    arrived: Sequence[float]


Caller = Callable[[Call, Path], Awaitable[str]]


async def _gateway(call: Call, folder: Path) -> str:
    case, backends = call.case, {"svc:1": [call.address]}
    streams = frozenset({STREAM} if case.told else ())
    async with (
        gateway_before(folder, backends, route(case.rule), probe_interval=60.0, streams=streams) as (_, door),
        grpc.aio.insecure_channel(door, options=channel_options()) as channel,
    ):
        return await _ended(channel, call)


async def _aio(call: Call, folder: Path) -> str:
    del folder
    interceptor = RetryInterceptor(_route(call.case).policy_for)
    async with grpc.aio.insecure_channel(
        call.address, options=channel_options(), interceptors=[interceptor]
    ) as channel:
        return await _ended(channel, call)


async def _ended(channel: Any, call: Call) -> str:
    case, how = call.case, call.how
    try:
        if case.stream:
            async for _ in channel.unary_stream(STREAM)(b"x", metadata=how, timeout=case.within):
                pass
            return "OK"
        made = channel.unary_unary(UNARY)(b"x", metadata=how, timeout=case.within)
        if case.gives_up:
            await eventually(lambda: bool(call.arrived))
            made.cancel()
            return str((await made.code()).name)
        await made
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def _blocking(call: Call, folder: Path) -> str:
    del folder

    def work() -> str:
        with grpc.insecure_channel(call.address, options=channel_options()) as bare:
            channel: Any = grpc.intercept_channel(
                bare, BlockingRetryInterceptor(_route(call.case).policy_for)
            )
            try:
                return _ended_blocking(channel, call)
            except grpc.RpcError as error:
                return str(error.code().name)

    return await asyncio.to_thread(work)


def _ended_blocking(channel: Any, call: Call) -> str:
    case, how = call.case, call.how
    if case.stream:
        for _ in channel.unary_stream(STREAM)(b"x", metadata=how, timeout=case.within):
            pass
    elif case.gives_up:
        future = channel.unary_unary(UNARY).future(b"x", metadata=how, timeout=case.within)
        while not call.arrived:
            time.sleep(0.01)
        future.cancel()
        return str(future.code().name)
    else:
        channel.unary_unary(UNARY)(b"x", metadata=how, timeout=case.within)
    return "OK"


CALLERS: dict[str, Caller] = dict(zip(SUBJECTS, (_gateway, _aio, _blocking), strict=True))


async def _run(case: Case, call: Caller, backend: FailingBackend, folder: Path) -> Seen:
    how = told(**case.how)
    async with AsyncExitStack() as stack:
        if case.resets is None:
            times = backend.times[dict(how)["x-call"]]
            address = backend.address
        else:
            address, times = await stack.enter_async_context(_relay(backend.address, case.resets))
        began = time.monotonic()
        status = await call(Call(case, address, how, times), folder)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    return Seen(status, len(times), gaps, times[-1] - began if times else math.inf)


async def run_all(folder: Path) -> dict[tuple[str, str, str], Seen]:
    """Every case of every subject; by group, title and subject."""
    backend = await FailingBackend().start()
    for number in range(len(CASES) * len(SUBJECTS)):
        (folder / str(number)).mkdir()
    wanted = [(case, subject) for case in CASES for subject in SUBJECTS]
    # Those that wait long first: all others are done meanwhile.
    wanted.sort(key=lambda one: "timeouts" not in one[0].rule)
    # Not all at once: that many programs on one event loop would be late for reasons of their own.
    turns = asyncio.Semaphore(_AT_ONCE)
    # The blocking ones wait in threads, of which a machine with few cores would have too few.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_AT_ONCE))

    async def one(number: int, case: Case, subject: str) -> Seen:
        async with turns:
            return await _run(case, CALLERS[subject], backend, folder / str(number))

    seen = await asyncio.gather(
        *(one(number, case, subject) for number, (case, subject) in enumerate(wanted))
    )
    await backend.stop()
    return {
        (case.group, case.title, subject): result
        for (case, subject), result in zip(wanted, seen, strict=True)
    }


def complaint(case: Case, seen: Seen) -> str:
    """What is not as it must be; empty: nothing."""
    found = []
    if seen.status != case.status:
        found.append(f"{seen.status} instead of {case.status}")
    if seen.tries != case.tries:
        found.append(f"{seen.tries} tries")
    if any(gap < least for gap, least in zip(seen.gaps, case.waits, strict=False)):
        found.append(f"waits {[round(gap, 3) for gap in seen.gaps]}")
    if seen.last < case.last_after:
        found.append(f"its last try after {seen.last:.3f} s")
    return ", ".join(found)


def report(results: dict[tuple[str, str, str], Seen]) -> str:
    """The tables of docs/reference/conformance.md."""
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
                    complaint(case, results[group, case.title, subject]) or "passes" for subject in SUBJECTS
                ]
                lines.append(f"| {case.title} | `{case.status}` | {case.tries} | {' | '.join(marks)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write the tables of docs/reference/conformance.md anew."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
    with tempfile.TemporaryDirectory() as folder:
        tables = report(asyncio.run(run_all(Path(folder))))
    head = page.read_text(encoding="utf-8").partition("\n## ")[0]
    page.write_text(f"{head}\n{tables}", encoding="utf-8")


if __name__ == "__main__":
    main()
