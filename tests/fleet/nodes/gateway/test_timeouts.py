"""Timeouts and deadlines of calls through the gateway, and whether they count against the backend."""

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
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.stream import Stream
from tests.fakes import raw_calls
from tests.fakes.echoing import ECHO, Echo, route, run_gateway
from tests.fakes.failing import UNARY, FailingBackend, failure_metadata
from tests.fakes.held_timers import HeldTimers
from tests.fakes.scripted import HEAD, MESSAGE, OK, answer_ok, run_gateway_with_call, run_scripted_backend
from tests.fakes.waiting import eventually

#: Larger than the buffer for retries and smaller than the largest allowed message.
LARGE_BODY = b"x" * (1536 * 1024)


def send_message_without_status(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(MESSAGE)


@pytest.mark.parametrize("limit", ["request", "backendRequest"])
async def test_response_without_status_times_out(limit: str, tmp_path: Path) -> None:
    """Both timeouts count until the call is over, not until the first message."""
    rule = {"timeouts": {limit: "200ms"}}
    async with (
        run_scripted_backend(send_message_without_status) as address,
        run_gateway_with_call(tmp_path, address, rule=rule) as (_, call),
    ):
        status, details = await call()

    assert status == "DEADLINE_EXCEEDED"
    assert details.startswith(f"{address} did not ")
    assert " within 0." in details


@pytest.mark.parametrize("limit", ["request", "backendRequest"])
async def test_stream_response_outlasts_the_timeouts_of_its_rule(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two response messages show that the call is a stream, which lasts as long as its caller wants."""
    streams: list[Stream] = []

    def send_two_messages(stream: Stream) -> None:
        stream.send_headers(HEAD)
        stream.send_data(MESSAGE * 2)
        streams.append(stream)

    rule = {"timeouts": {limit: "300ms"}}
    async with (
        run_scripted_backend(send_two_messages, lambda stream: None) as backend,
        run_gateway(tmp_path, {"svc:1": [backend]}, route(rule)) as (gateway, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        timers = HeldTimers(gateway, monkeypatch)
        call = channel.unary_stream(UNARY)(b"hi", timeout=60)
        assert [await call.read(), await call.read()] == [b"hi", b"hi"]
        unary_call = channel.unary_unary(f"{ECHO}Hang")(b"hi", timeout=60)
        await timers.fire(2)
        assert await unary_call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        streams[0].send_data(MESSAGE)
        assert await call.read() == b"hi"
        streams[0].send_headers(OK, end=True)

        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_bidirectional_stream_outlasts_the_timeouts_of_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose request has not ended between messages is a stream."""
    echo = await Echo().start()
    async with (
        run_gateway(tmp_path, {"svc:1": [echo.address]}, route({"timeouts": {"request": "200ms"}})) as (
            gateway,
            address,
        ),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        timers = HeldTimers(gateway, monkeypatch)
        call = channel.stream_stream(f"{ECHO}Both")(timeout=60)
        silent_call = channel.stream_stream(f"{ECHO}Both")(timeout=60)
        await call.write(b"a")
        assert await call.read() == b"a"
        unary_call = channel.unary_unary(f"{ECHO}Hang")(b"hi", timeout=60)
        await timers.fire(3)
        assert await unary_call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        for stream in (call, silent_call):
            await stream.write(b"b")
            assert await stream.read() == b"b"
            await stream.done_writing()
            assert await stream.code() is grpc.StatusCode.OK
    await echo.stop()


async def test_backend_gets_the_deadline_of_the_caller_only(tmp_path: Path) -> None:
    """The timeouts of a rule are not sent to the backend, because streams may outlast them."""
    echo = await Echo().start()
    rule = {"timeouts": {"request": "30s", "backendRequest": "20s"}}
    async with run_gateway_with_call(tmp_path, echo.address, rule=rule) as (_, call):
        assert await call(method=f"{ECHO}Unary", timeout=None) == b"hi"
        assert await call(method=f"{ECHO}Unary", timeout=3000) == b"hi"
    await echo.stop()

    (_, _, missing_deadline), (_, _, remaining_seconds) = echo.calls
    assert missing_deadline is None
    assert remaining_seconds is not None
    # gRPC rounds up the deadline that it sends, by a third of a percent here.
    assert 2000 < remaining_seconds < 3100


@pytest.mark.parametrize("limit", ["request", "backendRequest"])
async def test_large_request_has_timeouts_and_no_retries(limit: str, tmp_path: Path) -> None:
    """A request above the retry buffer cannot be sent again, but its timeouts still count."""
    backend = await FailingBackend().start()
    retry = {"reasons": ["deadline-exceeded", "unavailable"], "attempts": 3, "backoff": "1ms"}
    async with (
        run_gateway(
            tmp_path, {"svc:1": [backend.address]}, route({"retry": retry, "timeouts": {limit: "2s"}})
        ) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):

        async def call(metadata: list[tuple[str, str]]) -> str:
            unary_call = channel.unary_unary(UNARY)(LARGE_BODY, metadata=metadata, timeout=60)
            return str((await unary_call.code()).name)

        hanging_metadata, failing_metadata = failure_metadata(hang=True), failure_metadata(code="UNAVAILABLE")
        assert await call(hanging_metadata) == "DEADLINE_EXCEEDED"
        assert await call(failing_metadata) in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
    await backend.stop()

    assert backend.count(hanging_metadata) <= 1
    assert backend.count(failing_metadata) <= 1


async def test_large_request_that_backend_does_not_read_times_out(tmp_path: Path) -> None:
    """The call is stuck in its only message, so it is no stream, and `request` ends it."""
    rule = {"timeouts": {"request": "200ms"}}
    async with (
        run_scripted_backend(answer_ok) as backend,
        run_gateway(tmp_path, {"svc:1": [backend]}, route(rule)) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        call = channel.unary_unary(UNARY)(LARGE_BODY, timeout=60)

        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "within 0." in (await call.details() or "")


def reset_at_once(stream: Stream) -> None:
    """Reset the call like a backend that applies the caller's deadline before the gateway does."""
    stream.reset(ErrorCode.CANCEL)


async def test_deadline_reset_by_the_backend_does_not_count_against_it(tmp_path: Path) -> None:
    """The caller gets DEADLINE_EXCEEDED."""
    async with (
        run_scripted_backend(reset_at_once) as backend,
        run_gateway(tmp_path, {"svc:1": [backend]}) as (gateway, address),
    ):
        connection = await raw_calls.open_connection(address)
        for _ in range(20):
            call = raw_calls.call(connection, UNARY, timeout="5m")
            status, _ = await call.end_future
            assert status is Status.DEADLINE_EXCEEDED
        connection.close()

        assert _reason(gateway, backend) is not HealthReason.FAILURE_RATE


async def test_reset_before_the_deadline_counts_against_the_backend(tmp_path: Path) -> None:
    """The backend becomes unhealthy by its failure rate."""
    async with (
        run_scripted_backend(reset_at_once) as backend,
        run_gateway(tmp_path, {"svc:1": [backend]}) as (gateway, address),
    ):
        connection = await raw_calls.open_connection(address)
        for _ in range(12):
            call = raw_calls.call(connection, UNARY, timeout="60S")
            assert (await call.end_future)[0] is Status.CANCELLED
        connection.close()

        await eventually(lambda: _reason(gateway, backend) is HealthReason.FAILURE_RATE)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_deadline_below_a_millisecond_ends_only_its_call(loop: Any, tmp_path: Path) -> None:
    """uvloop has no timers below a millisecond; the call still ends, and its connection stays open."""

    async def check() -> None:
        async with (
            run_scripted_backend(answer_ok) as backend,
            run_gateway(tmp_path, {"svc:1": [backend]}) as (_, address),
        ):
            connection = await raw_calls.open_connection(address)
            assert (await raw_calls.call(connection, UNARY).end_future)[0] is Status.OK
            for timeout in ("450u", "1n", "0n", "0m", "999u", "1m") * 5:
                status, details = await raw_calls.call(connection, UNARY, timeout=timeout).end_future
                assert status in {Status.OK, Status.DEADLINE_EXCEEDED}, (timeout, details)
            assert (await raw_calls.call(connection, UNARY).end_future)[0] is Status.OK
            assert not connection.is_ended
            connection.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


def _reason(gateway: Gateway, name: str) -> HealthReason:
    destination = gateway.backends.destinations.get(name)
    assert destination is not None
    return destination.verdict.reason
