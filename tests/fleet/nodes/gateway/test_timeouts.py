"""Timeouts and deadlines of calls through the gateway: how long what may take, who is told, and whose failure it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import uvloop

from fleet.nodes.gateway.server import Gateway
from fleet.protocol.destination.health import HealthReason
from fleet.protocol.retry.grpc_http2 import Status
from fleet.transport.channels import channel_options
from fleet.transport.http2.frames import Code
from fleet.transport.http2.stream import Stream
from tests.fakes import raw_calls
from tests.fakes.echoing import ECHO, Echo, gateway_before, route
from tests.fakes.failing import UNARY, FailingBackend, told
from tests.fakes.scripted import HEAD, MESSAGE, OK, before, scripted, well
from tests.fakes.waiting import eventually

#: More than is kept to be sent again, and less than the longest message.
LARGE = b"x" * (1536 * 1024)


def message_without_status(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(MESSAGE)


@pytest.mark.parametrize("limit", ["request", "backendRequest"])
async def test_answer_that_never_ends(limit: str, tmp_path: Path) -> None:
    """One message and no status: both timeouts hold until the call is over, not until something came."""
    rule = {"timeouts": {limit: "200ms"}}
    async with (
        scripted(message_without_status) as address,
        before(tmp_path, address, rule=rule) as (_, call),
    ):
        status, details = await call()

    assert status == "DEADLINE_EXCEEDED"
    assert details.startswith(f"{address} did not ")
    assert " within 0." in details


@pytest.mark.parametrize("limit", ["request", "backendRequest"])
async def test_stream_outlasts_the_timeouts_of_its_rule(limit: str, tmp_path: Path) -> None:
    """Two messages tell a stream, which lasts as long as its caller lets it."""
    streams: list[Stream] = []

    def two_messages(stream: Stream) -> None:
        stream.send_headers(HEAD)
        stream.send_data(MESSAGE * 2)
        streams.append(stream)

    rule = {"timeouts": {limit: "300ms"}}
    async with (
        scripted(two_messages, lambda stream: None) as backend,
        gateway_before(tmp_path, {"svc:1": [backend]}, route(rule)) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        call = channel.unary_stream(UNARY)(b"hi", timeout=60)
        assert [await call.read(), await call.read()] == [b"hi", b"hi"]
        # A call that began later, and was ended by the same timeout: the stream's would have been over before.
        later = channel.unary_unary(f"{ECHO}Hang")(b"hi", timeout=60)
        assert await later.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        streams[0].send_data(MESSAGE)
        assert await call.read() == b"hi"
        streams[0].send_headers(OK, end=True)

        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_stream_of_both_sides_outlasts_the_timeouts_of_its_rule(tmp_path: Path) -> None:
    """A caller that has not ended its request, and is between messages, has a stream."""
    echo = await Echo().start()
    async with (
        gateway_before(tmp_path, {"svc:1": [echo.address]}, route({"timeouts": {"request": "200ms"}})) as (
            _,
            address,
        ),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        call = channel.stream_stream(f"{ECHO}Both")(timeout=60)
        silent = channel.stream_stream(f"{ECHO}Both")(timeout=60)
        await call.write(b"a")
        assert await call.read() == b"a"
        later = channel.unary_unary(f"{ECHO}Hang")(b"hi", timeout=60)
        assert await later.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        for stream in (call, silent):
            await stream.write(b"b")
            assert await stream.read() == b"b"
            await stream.done_writing()
            assert await stream.code() is grpc.StatusCode.OK
    await echo.stop()


async def test_deadline_that_a_backend_is_told(tmp_path: Path) -> None:
    """The caller's own and no other: the timeouts of a rule are the gateway's, and streams may outlast them."""
    echo = await Echo().start()
    rule = {"timeouts": {"request": "30s", "backendRequest": "20s"}}
    async with before(tmp_path, echo.address, rule=rule) as (_, call):
        assert await call(method=f"{ECHO}Unary", timeout=None) == b"hi"
        assert await call(method=f"{ECHO}Unary", timeout=3000) == b"hi"
    await echo.stop()

    (_, _, none), (_, _, left) = echo.calls
    assert none is None
    assert left is not None
    # gRPC rounds up what it sends, by a third of a percent here.
    assert 2000 < left < 3100


@pytest.mark.parametrize("limit", ["request", "backendRequest"])
async def test_large_request_has_timeouts_and_no_retries(limit: str, tmp_path: Path) -> None:
    """More than is kept cannot be sent again; it is ended in time all the same."""
    backend = await FailingBackend().start()
    retry = {"reasons": ["deadline-exceeded", "unavailable"], "attempts": 3, "backoff": "1ms"}
    async with (
        gateway_before(
            tmp_path, {"svc:1": [backend.address]}, route({"retry": retry, "timeouts": {limit: "2s"}})
        ) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):

        async def call(how: list[tuple[str, str]]) -> str:
            made = channel.unary_unary(UNARY)(LARGE, metadata=how, timeout=60)
            return str((await made.code()).name)

        hanging, failing = told(hang=True), told(code="UNAVAILABLE")
        assert await call(hanging) == "DEADLINE_EXCEEDED"
        assert await call(failing) in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
    await backend.stop()

    assert backend.count(hanging) <= 1
    assert backend.count(failing) <= 1


async def test_large_request_that_a_backend_does_not_read(tmp_path: Path) -> None:
    """It stands still in its only message: that is no stream, and `request` ends it."""
    rule = {"timeouts": {"request": "200ms"}}
    async with (
        scripted(well) as backend,
        gateway_before(tmp_path, {"svc:1": [backend]}, route(rule)) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        call = channel.unary_unary(UNARY)(LARGE, timeout=60)

        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "within 0." in (await call.details() or "")


def reset_at_once(stream: Stream) -> None:
    """As a backend does that keeps the caller's deadline and notices it before the gateway."""
    stream.reset(Code.CANCEL)


async def test_deadline_that_the_backend_notices_first(tmp_path: Path) -> None:
    """It resets the call: the caller gets DEADLINE_EXCEEDED, and nothing is held against the backend."""
    async with (
        scripted(reset_at_once) as backend,
        gateway_before(tmp_path, {"svc:1": [backend]}) as (gateway, address),
    ):
        connection = await raw_calls.connected(address)
        for _ in range(20):
            call = raw_calls.call(connection, UNARY, timeout="5m")
            status, _ = await call.ended
            assert status is Status.DEADLINE_EXCEEDED
        connection.close()

        assert _reason(gateway, backend) is not HealthReason.FAILURE_RATE


async def test_backend_that_resets_calls_before_their_deadline(tmp_path: Path) -> None:
    """That is its own doing."""
    async with (
        scripted(reset_at_once) as backend,
        gateway_before(tmp_path, {"svc:1": [backend]}) as (gateway, address),
    ):
        connection = await raw_calls.connected(address)
        for _ in range(12):
            call = raw_calls.call(connection, UNARY, timeout="60S")
            assert (await call.ended)[0] is Status.CANCELLED
        connection.close()

        await eventually(lambda: _reason(gateway, backend) is HealthReason.FAILURE_RATE)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_deadlines_that_are_over_at_once(loop: Any, tmp_path: Path) -> None:
    """Below a millisecond uvloop has timers without a time: such a call ends by itself, its connection goes on."""

    async def check() -> None:
        async with (
            scripted(well) as backend,
            gateway_before(tmp_path, {"svc:1": [backend]}) as (_, address),
        ):
            connection = await raw_calls.connected(address)
            assert (await raw_calls.call(connection, UNARY).ended)[0] is Status.OK
            for timeout in ("450u", "1n", "0n", "0m", "999u", "1m") * 5:
                status, details = await raw_calls.call(connection, UNARY, timeout=timeout).ended
                assert status in {Status.OK, Status.DEADLINE_EXCEEDED}, (timeout, details)
            assert (await raw_calls.call(connection, UNARY).ended)[0] is Status.OK
            assert not connection.is_ended
            connection.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


def _reason(gateway: Gateway, name: str) -> HealthReason:
    destination = gateway.backends.destinations.get(name)
    assert destination is not None
    return destination.verdict.reason
