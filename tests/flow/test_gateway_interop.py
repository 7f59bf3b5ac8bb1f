"""The gateway between a client and a server of grpc-go, as the program that operators run."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes import go_grpc
from tests.fakes.echoing import route, write_routes
from tests.fakes.programs import run_program, skip_without
from tests.fakes.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

METHOD = "/refloat.test.Go/Call"
STREAM = "/refloat.test.Go/Stream"


@pytest.fixture(autouse=True)
def _peers() -> None:
    skip_without(go_grpc.missing_reason())


@dataclass(frozen=True, slots=True)
class Front:
    """A gateway before backends."""

    address: str
    diag: str

    async def destinations(self) -> dict[str, dict[str, Any]]:
        """What it knows of its backends, by address."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.diag}/destinations") as answer,
        ):
            destinations = (await answer.json())["destinations"]
        return {destination["address"]: destination for destination in destinations}

    async def metrics(self) -> str:
        """Its metrics."""
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.diag}/metrics") as answer:
            return await answer.text()


@contextlib.contextmanager
def front(
    folder: Path, *backends: str, rule: dict[str, Any] | None = None, flags: str = ""
) -> Iterator[Front]:
    """Run the gateway's program."""
    path = write_routes(folder / "routes.yaml", route(rule or {}))
    argv = [sys.executable, "-m", "fleet.nodes", "gateway", "--routes", str(path)]
    argv += ["--backend", f"svc:1={','.join(backends)}", "--probe-timeout", "10s", *flags.split()]
    with run_program("gateway", argv, folder) as peer:
        ready = json.loads(peer.await_output(r"\{.*\"grpc\".*\}").group())
        yield Front(ready["grpc"], ready["diag"])


async def test_deadline_below_a_millisecond_ends_its_call_alone(tmp_path: Path) -> None:
    """A stream on the same connection goes on, and the client never dials again."""
    stream = {"method": STREAM, "background": True}
    stream["metadata"] = {"x-messages": "40", "x-every": "50ms"}
    short = {"method": METHOD, "timeout": "450us", "times": 200}
    with go_grpc.backend(tmp_path) as (_, backend), front(tmp_path, backend) as gateway:
        report = await go_grpc.calls(gateway.address, {"method": METHOD}, stream, short, {"method": METHOD})

    assert report.connections == 1
    assert [(outcome.code, outcome.messages) for outcome in report.results[1]] == [("OK", 40)]
    assert report.codes(2) <= {"DeadlineExceeded", "OK"}
    assert report.codes(0) == report.codes(3) == {"OK"}


async def test_many_short_deadlines_leave_the_connection_alone(tmp_path: Path) -> None:
    """A client of grpc-go resets each call at its deadline: that is no flood, however many there are."""
    stream = {"method": STREAM, "background": True}
    stream["metadata"] = {"x-messages": "60", "x-every": "100ms"}
    short = {"method": METHOD, "timeout": "2ms", "times": 800, "background": True}
    short["metadata"] = {"x-delay": "1s"}
    with go_grpc.backend(tmp_path) as (_, backend), front(tmp_path, backend) as gateway:
        report = await go_grpc.calls(gateway.address, {"method": METHOD}, stream, *[short] * 8)

    assert report.connections == 1
    assert [(outcome.code, outcome.messages) for outcome in report.results[1]] == [("OK", 60)]
    assert {code for number in range(2, 10) for code in report.codes(number)} == {"DeadlineExceeded"}


async def test_short_deadlines_of_callers_are_no_failures_of_the_backend(tmp_path: Path) -> None:
    """The server of grpc-go keeps each deadline, too, and resets the call: whoever notices first, it is no failure."""
    calls = [
        {"method": METHOD, "timeout": timeout, "times": 100, "metadata": {"x-delay": "30ms"}}
        for timeout in ("2ms", "10ms", "20ms")
    ]
    with go_grpc.backend(tmp_path) as (_, backend), front(tmp_path, backend) as gateway:
        report = await go_grpc.calls(gateway.address, {"method": METHOD}, *calls)
        destination = (await gateway.destinations())[backend]
        metrics = await gateway.metrics()

    for number in (1, 2, 3):
        # A busy machine may see the answer before it sees that the deadline is over.
        assert "DeadlineExceeded" in report.codes(number)
        assert report.codes(number) <= {"DeadlineExceeded", "OK"}
    assert destination["passive"] == "unknown"
    # The client ends its calls itself, so what the gateway counts tells what another client would be told.
    assert 'status="UNAVAILABLE"' not in metrics
    assert 'status="INTERNAL"' not in metrics


@pytest.mark.parametrize("limit", ["request", "backendRequest"])
async def test_stream_outlasts_the_timeouts_of_its_rule(limit: str, tmp_path: Path) -> None:
    """The server is not told of them, so it does not end the stream by them."""
    stream = {"method": STREAM, "metadata": {"x-messages": "30", "x-every": "100ms"}}
    with (
        go_grpc.backend(tmp_path) as (_, backend),
        front(tmp_path, backend, rule={"timeouts": {limit: "1s"}}) as gateway,
    ):
        report = await go_grpc.calls(gateway.address, stream)

    assert [(outcome.code, outcome.messages) for outcome in report.results[0]] == [("OK", 30)]


async def test_answer_without_an_end_is_over_in_time(tmp_path: Path) -> None:
    """One message and no status within `request`: the whole duration counts. The caller's own deadline is far away."""
    call = {"method": METHOD, "metadata": {"x-no-end": "yes"}, "timeout": "60s"}
    with (
        go_grpc.backend(tmp_path) as (_, backend),
        front(tmp_path, backend, rule={"timeouts": {"request": "1s"}}) as gateway,
    ):
        report = await go_grpc.calls(gateway.address, call)

    (outcome,) = report.results[0]
    assert (outcome.code, outcome.messages) == ("DeadlineExceeded", 1)
    assert 1 <= outcome.seconds < 30


async def test_backend_that_came_back_takes_over(tmp_path: Path) -> None:
    """A was killed and is back, then B is killed: no call fails, though A is not yet trusted as before."""
    rule = {"retry": {"reasons": ["unavailable"], "attempts": 3, "backoff": "25ms"}}
    calls = {"method": METHOD, "times": 100, "timeout": "60s"}
    with contextlib.ExitStack() as stack:
        first = contextlib.ExitStack()
        peer, a = first.enter_context(go_grpc.backend(tmp_path, "a"))
        second = contextlib.ExitStack()
        stack.enter_context(second)
        _, b = second.enter_context(go_grpc.backend(tmp_path, "b"))
        gateway = stack.enter_context(front(tmp_path, a, b, rule=rule, flags="--probe-interval 1s"))

        async def state(address: str, signal: str) -> str:
            return str((await gateway.destinations())[address][signal])

        async def both_healthy() -> bool:
            return [await state(address, "health") for address in (a, b)] == ["healthy", "healthy"]

        await eventually(both_healthy)
        first.close()
        deadline = time.monotonic() + 60
        while await state(a, "health") != "unhealthy":
            assert (await go_grpc.calls(gateway.address, calls)).codes(0) == {"OK"}
            assert time.monotonic() < deadline
        stack.enter_context(go_grpc.backend(tmp_path, "a-again", listen=a))

        async def answers_again() -> bool:
            return await state(a, "active") != "unhealthy"

        await eventually(answers_again)
        second.close()
        assert (await go_grpc.calls(gateway.address, {**calls, "times": 500})).codes(0) == {"OK"}
        assert peer.process.returncode is not None


async def test_dead_backend_of_two_fails_no_call(tmp_path: Path) -> None:
    """The rule has no retries; what was never sent goes to the other one."""
    with contextlib.ExitStack() as stack:
        dead_backend = contextlib.ExitStack()
        _, dead = dead_backend.enter_context(go_grpc.backend(tmp_path, "dead"))
        dead_backend.close()
        _, alive = stack.enter_context(go_grpc.backend(tmp_path, "alive"))
        gateway = stack.enter_context(front(tmp_path, dead, alive))
        report = await go_grpc.calls(gateway.address, {"method": METHOD, "times": 300})

    assert report.codes(0) == {"OK"}
