"""The conformance of retries: what is asked of the gateway and of both interceptors, and what each did.

The three tests of GEP-3440 under their names, and what the Gateway API asks of HTTPRoute, in gRPC: conformance/tests/
httproute-retry*.go of kubernetes-sigs/gateway-api. HTTP's 500 is `internal` here, 504 `deadline-exceeded`, and so on.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import yaml

from fleet.protocol import grpc_route_yaml
from fleet.protocol.grpc_route import GRPCRoute
from fleet.protocol.retry import Reason
from fleet.transport.channels import channel_options
from fleet.transport.retrying.aio import Retrying
from fleet.transport.retrying.blocking import BlockingRetrying
from tests.fakes.echoing import gateway_before, route
from tests.fakes.failing import UNARY, FailingBackend, told

ALL = [str(reason) for reason in Reason]
#: Statuses that the GEP does not name: never retried.
OTHERS = [code.name for code in grpc.StatusCode if code.name != "OK" and Reason.of_status(code.name) is None]


@dataclass(frozen=True)
class Case:
    """One call by one rule, and what must come of it."""

    group: str
    title: str
    rule: dict[str, Any]
    #: What the backend is told, in metadata.
    how: dict[str, Any]
    status: str
    tries: int
    #: Connections that are reset under the call, by a relay before the backend.
    resets: int | None = None
    #: The least seconds between its tries.
    waits: Sequence[float] = ()


@dataclass
class Seen:
    """What came of a case."""

    status: str
    tries: int
    gaps: list[float] = field(default_factory=list)


def _rule(reasons: list[str] | None, attempts: int | None, **timeouts: str) -> dict[str, Any]:
    retry: dict[str, Any] = {"backoff": "1ms"}
    if reasons is not None:
        retry["reasons"] = reasons
    if attempts is not None:
        retry["attempts"] = attempts
    return {"retry": retry, "timeouts": timeouts} if timeouts else {"retry": retry}


def _code(reason: str) -> str:
    return reason.replace("-", "_").upper()


def _seed() -> list[Case]:
    timeout, retry, backoff = (
        "SupportGRPCRouteRetryBackendTimeout",
        "SupportGRPCRouteRetry",
        "SupportGRPCRouteRetryBackoff",
    )
    late = "DEADLINE_EXCEEDED"
    cases = [
        Case(
            timeout,
            "every try hangs: each ends by `backendRequest`, then the call does",
            _rule(["deadline-exceeded"], 2, backendRequest="600ms"),
            {"hang": True},
            late,
            3,
        ),
        Case(
            timeout,
            "two tries hang, the third answers",
            _rule(None, 2, backendRequest="1s"),
            {"hang": True, "succeed_after": 2},
            "OK",
            3,
        ),
        Case(
            timeout,
            "the timeout of a try is no listed reason",
            _rule(["unavailable"], 2, backendRequest="600ms"),
            {"hang": True},
            late,
            1,
        ),
        Case(
            timeout,
            "`request` ends a call that hangs",
            _rule(ALL, 5, request="1s"),
            {"hang": True},
            late,
            1,
        ),
        Case(
            timeout,
            "`request` ends a call between its tries: the next wait does not fit",
            {"retry": {"reasons": ALL, "attempts": 5, "backoff": "60s"}, "timeouts": {"request": "30s"}},
            {"code": "UNAVAILABLE"},
            late,
            1,
        ),
    ]
    for reason in ALL:
        code = _code(reason)
        cases += [
            Case(
                retry,
                f"`{reason}`: two failures, then success",
                _rule([reason], 3),
                {"code": code, "succeed_after": 2},
                "OK",
                3,
            ),
            Case(
                retry,
                f"`{reason}`: still failing when the attempts are used up",
                _rule([reason], 3),
                {"code": code},
                code,
                4,
            ),
            Case(
                retry,
                f"`{reason}` that is not listed",
                _rule([one for one in ALL if one != reason], 3),
                {"code": code},
                code,
                1,
            ),
        ]
    cases += [
        Case(retry, f"`{code}` is never retried", _rule(ALL, 3), {"code": code}, code, 1) for code in OTHERS
    ]
    cases += [
        Case(retry, "attempts 0", _rule(ALL, 0), {"code": "UNAVAILABLE"}, "UNAVAILABLE", 1),
        Case(retry, "attempts not said: one", _rule(ALL, None), {"code": "INTERNAL"}, "INTERNAL", 2),
        Case(
            retry,
            "reasons not said: `unavailable` is",
            _rule(None, 3),
            {"code": "UNAVAILABLE", "succeed_after": 3},
            "OK",
            4,
        ),
        Case(
            retry, "reasons not said: `internal` is not", _rule(None, 3), {"code": "INTERNAL"}, "INTERNAL", 1
        ),
        Case(retry, "no `retry` at all", {}, {"code": "UNAVAILABLE"}, "UNAVAILABLE", 1),
        Case(
            backoff,
            "never less than `backoff` between tries, and twice as long each time",
            {"retry": {"reasons": ["unavailable"], "attempts": 4, "backoff": "20ms"}},
            {"code": "UNAVAILABLE"},
            "UNAVAILABLE",
            5,
            waits=(0.02, 0.04, 0.08, 0.16),
        ),
        Case(
            backoff,
            "a server's pushback makes a wait longer, never shorter",
            {"retry": {"reasons": ["unavailable"], "attempts": 1, "backoff": "20ms"}},
            {"code": "UNAVAILABLE", "pushback": "100", "succeed_after": 1},
            "OK",
            2,
            waits=(0.1,),
        ),
    ]
    return cases


def _upstream() -> list[Case]:
    plain, lost, late = "HTTPRouteRetry", "HTTPRouteRetryConnectionError", "HTTPRouteRetryWithTimeouts"
    cases = [
        Case(
            plain,
            "500 listed, attempts 3, succeeds after 2",
            _rule(["internal"], 3),
            {"code": "INTERNAL", "succeed_after": 2},
            "OK",
            3,
        ),
        Case(
            plain,
            "500 listed, attempts 3, succeeds after 4",
            _rule(["internal"], 3),
            {"code": "INTERNAL", "succeed_after": 4},
            "INTERNAL",
            4,
        ),
        Case(
            plain,
            "503 with only 500 listed",
            _rule(["internal"], 3),
            {"code": "UNAVAILABLE", "succeed_after": 2},
            "UNAVAILABLE",
            1,
        ),
    ]
    four = ["internal", "resource-exhausted", "unavailable", "deadline-exceeded"]
    for reason, (after, status, tries) in itertools.product(four, ((1, "OK", 2), (3, "", 3))):
        code = _code(reason)
        cases.append(
            Case(
                plain,
                f"four codes listed, attempts 2, `{reason}` succeeds after {after}",
                _rule(four, 2),
                {"code": code, "succeed_after": after},
                status or code,
                tries,
            )
        )
    none: dict[str, Any] = {"succeed_after": 0}
    slow = {"code": "INTERNAL", "delay": 1.2}
    cases += [
        Case(lost, "no codes, attempts 3, connections reset twice", _rule(None, 3), none, "OK", 3, resets=2),
        Case(
            lost,
            "no codes, attempts 3, connections reset four times",
            _rule(None, 3),
            none,
            "UNAVAILABLE",
            4,
            resets=4,
        ),
        Case(
            late,
            "no codes, attempts 2, two tries are later than `backendRequest`",
            _rule(None, 2, backendRequest="1s"),
            {"hang": True, "succeed_after": 2},
            "OK",
            3,
        ),
        Case(
            late,
            "no codes, attempts 2, three tries are later than `backendRequest`",
            _rule(None, 2, backendRequest="600ms"),
            {"hang": True, "succeed_after": 3},
            "DEADLINE_EXCEEDED",
            3,
        ),
        Case(
            late,
            "attempts 5, `backendRequest` and `request`, succeeds after 1",
            _rule(["internal"], 5, backendRequest="10s", request="20s"),
            {"code": "INTERNAL", "succeed_after": 1},
            "OK",
            2,
        ),
        Case(
            late,
            "attempts 5, `request` is over though no try is late",
            _rule(["internal"], 5, backendRequest="2s", request="2s"),
            slow,
            "DEADLINE_EXCEEDED",
            2,
        ),
    ]
    return cases


CASES = [*_seed(), *_upstream()]
GROUPS = list(dict.fromkeys(case.group for case in CASES))
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


Caller = Callable[[Case, str, list[tuple[str, str]], Path], Awaitable[str]]


async def _gateway(case: Case, address: str, how: list[tuple[str, str]], folder: Path) -> str:
    async with (
        gateway_before(folder, {"svc:1": [address]}, route(case.rule), probe_interval=60.0) as (_, door),
        grpc.aio.insecure_channel(door, options=channel_options()) as channel,
    ):
        return await _ended(channel, how)


async def _aio(case: Case, address: str, how: list[tuple[str, str]], folder: Path) -> str:
    del folder
    interceptor = Retrying(_route(case).policy_for)
    async with grpc.aio.insecure_channel(
        address, options=channel_options(), interceptors=[interceptor]
    ) as channel:
        return await _ended(channel, how)


async def _ended(channel: Any, how: list[tuple[str, str]]) -> str:
    try:
        await channel.unary_unary(UNARY)(b"x", metadata=how)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def _blocking(case: Case, address: str, how: list[tuple[str, str]], folder: Path) -> str:
    del folder

    def call() -> str:
        with grpc.insecure_channel(address, options=channel_options()) as bare:
            channel: Any = grpc.intercept_channel(bare, BlockingRetrying(_route(case).policy_for))
            try:
                channel.unary_unary(UNARY)(b"x", metadata=how)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

    return await asyncio.to_thread(call)


CALLERS: dict[str, Caller] = dict(zip(SUBJECTS, (_gateway, _aio, _blocking), strict=True))


async def _run(case: Case, call: Caller, backend: FailingBackend, folder: Path) -> Seen:
    how = told(**case.how)
    async with AsyncExitStack() as stack:
        if case.resets is None:
            times = backend.times[dict(how)["x-call"]]
            address = backend.address
        else:
            address, times = await stack.enter_async_context(_relay(backend.address, case.resets))
        status = await call(case, address, how, folder)
    return Seen(status, len(times), [later - earlier for earlier, later in itertools.pairwise(times)])


async def run_all(folder: Path) -> dict[tuple[str, str, str], Seen]:
    """Every case of every subject; by group, title and subject."""
    backend = await FailingBackend().start()
    for number in range(len(CASES) * len(SUBJECTS)):
        (folder / str(number)).mkdir()
    wanted = [(case, subject) for case in CASES for subject in SUBJECTS]
    # Not all at once: that many programs on one event loop would be late for reasons of their own.
    turns = asyncio.Semaphore(12)

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
    return ", ".join(found)


def report(results: dict[tuple[str, str, str], Seen]) -> str:
    """The tables of docs/conformance.md."""
    lines: list[str] = []
    for group in GROUPS:
        lines += [
            f"## {group}",
            "",
            f"| case | must end as | tries | {' | '.join(SUBJECTS)} |",
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
    """Write the tables of docs/conformance.md anew."""
    page = Path(__file__).parents[2] / "docs" / "conformance.md"
    with tempfile.TemporaryDirectory() as folder:
        tables = report(asyncio.run(run_all(Path(folder))))
    head = page.read_text(encoding="utf-8").partition("\n## ")[0]
    page.write_text(f"{head}\n{tables}", encoding="utf-8")


if __name__ == "__main__":
    main()
