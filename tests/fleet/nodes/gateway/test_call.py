"""Backends that fail in different ways: every call ends with a clear status or is tried again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from fleet.nodes.gateway.server import Gateway
from fleet.protocol.destination.health import Health, HealthReason
from fleet.transport.channels import channel_options
from fleet.transport.http2 import frames
from fleet.transport.http2.fields import encode, plain
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream
from tests.fakes.echoing import ECHO, Echo, route, run_gateway
from tests.fakes.failing import UNARY, FailingBackend, failure_metadata
from tests.fakes.scripted import (
    HEAD,
    MESSAGE,
    OK,
    RETRIED,
    Answer,
    answer_ok,
    run_gateway_with_call,
    run_scripted_backend,
    run_tcp_backend,
)
from tests.fakes.waiting import eventually


def reset_with(code: ErrorCode) -> Answer:
    return lambda stream: stream.reset(code)


def send_head_and_reset(code: ErrorCode) -> Answer:
    def response(stream: Stream) -> None:
        stream.send_headers(HEAD)
        stream.reset(code)

    return response


def send_part_and_reset(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(MESSAGE)
    stream.reset(ErrorCode.INTERNAL_ERROR)


def send_http(status: bytes) -> Answer:
    block = encode(plain((b":status", status), (b"content-type", b"text/html")))
    return lambda stream: stream.send_headers(block, end=True)


def end_without_status(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(MESSAGE, end=True)


def send_data_first(stream: Stream) -> None:
    stream.send_data(MESSAGE)


def send_two_heads(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_headers(HEAD)


def send_huge_message(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(b"\0\xff\xff\xff\xff" + b"x" * 100)


@pytest.mark.parametrize(
    ("response", "status", "details"),
    [
        (reset_with(ErrorCode.INTERNAL_ERROR), "INTERNAL", "reset the call: INTERNAL_ERROR"),
        (reset_with(ErrorCode.CANCEL), "CANCELLED", "reset the call: CANCEL"),
        (reset_with(ErrorCode.ENHANCE_YOUR_CALM), "RESOURCE_EXHAUSTED", "reset the call: ENHANCE_YOUR_CALM"),
        (send_head_and_reset(ErrorCode.PROTOCOL_ERROR), "INTERNAL", "reset the call: PROTOCOL_ERROR"),
        (send_part_and_reset, "INTERNAL", "reset the call: INTERNAL_ERROR"),
        (send_http(b"503"), "UNAVAILABLE", "responded with HTTP 503 instead of gRPC"),
        (send_http(b"404"), "UNIMPLEMENTED", "responded with HTTP 404 instead of gRPC"),
        (send_http(b"abc"), "UNKNOWN", "responded with HTTP 0 instead of gRPC"),
        (end_without_status, "INTERNAL", "ended the call without a status"),
        (send_data_first, "INTERNAL", "sent data before headers"),
        (send_two_heads, "INTERNAL", "sent two header lists before the body"),
        (send_huge_message, "RESOURCE_EXHAUSTED", "responded with a message larger than 4194304 bytes"),
    ],
)
async def test_invalid_response_becomes_a_status(
    response: Answer, status: str, details: str, tmp_path: Path
) -> None:
    """The details name the backend and its mistake."""
    async with (
        run_scripted_backend(response) as address,
        run_gateway_with_call(tmp_path, address) as (_, call),
    ):
        assert await call() == (status, f"{address} {details}")


@pytest.mark.parametrize("code", [ErrorCode.REFUSED_STREAM, ErrorCode.INTERNAL_ERROR, ErrorCode.CANCEL])
async def test_reset_call_is_retried_if_its_reason_is_listed(code: ErrorCode, tmp_path: Path) -> None:
    """The whole request is sent again; a refused stream is retried without a rule."""
    reasons = {"retry": {"reasons": ["internal", "cancelled"], "attempts": 1, "backoff": "1ms"}}
    rule = {} if code is ErrorCode.REFUSED_STREAM else reasons
    response = reset_with(code) if code is ErrorCode.REFUSED_STREAM else send_head_and_reset(code)
    async with (
        run_scripted_backend(response, answer_ok) as address,
        run_gateway_with_call(tmp_path, address, rule=rule) as (_, call),
    ):
        assert await call() == b"hi"


async def test_reset_after_first_response_data_is_not_retried(tmp_path: Path) -> None:
    """The caller may have received the data already."""
    rule = {"retry": {"reasons": ["internal"], "attempts": 3, "backoff": "1ms"}}
    async with (
        run_scripted_backend(send_part_and_reset, answer_ok) as address,
        run_gateway_with_call(tmp_path, address, rule=rule) as (_, call),
    ):
        assert (await call())[0] == "INTERNAL"


async def test_refused_connection_is_reported_and_makes_backend_unhealthy(tmp_path: Path) -> None:
    """The retries fail as well, and the status has the reason of the last attempt."""
    async with run_scripted_backend(answer_ok) as address:
        pass
    async with run_gateway_with_call(tmp_path, address, rule=RETRIED) as (gateway, call):
        assert await call() == ("UNAVAILABLE", f"{address}: connection refused")
        await eventually(lambda: _health(gateway, address) is Health.UNHEALTHY)


async def test_backend_without_http2_is_unavailable(tmp_path: Path) -> None:
    """The details say that the peer does not speak HTTP/2."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with run_tcp_backend(serve) as address, run_gateway_with_call(tmp_path, address) as (_, call):
        status, details = await call()
        assert status == "UNAVAILABLE"
        assert details.startswith(f"{address}: the peer does not speak HTTP/2")


async def test_silent_backend_fails_after_dial_timeout(tmp_path: Path) -> None:
    """The backend accepts the connection and sends nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with (
        run_tcp_backend(serve) as address,
        run_gateway_with_call(tmp_path, address, dial_timeout=0.1) as (_, call),
    ):
        assert await call() == ("UNAVAILABLE", f"{address}: not connected within 0.1 s")


async def test_hanging_backend_becomes_unhealthy(tmp_path: Path) -> None:
    """The backendRequest timeout ends each attempt, the retry goes elsewhere, and later calls avoid the backend."""
    counts = {"hang": 0}

    def hang(stream: Stream) -> None:
        counts["hang"] += 1

    rule = {"retry": {"attempts": 3, "backoff": "1ms"}, "timeouts": {"backendRequest": "1s"}}
    async with (
        run_scripted_backend(hang) as hanging_address,
        run_scripted_backend(answer_ok) as working_address,
        run_gateway_with_call(
            tmp_path, hanging_address, working_address, rule=rule, probe_interval=600.0
        ) as (gateway, call),
    ):
        for _ in range(12):
            for response in await asyncio.gather(*(call() for _ in range(20))):
                assert response in {
                    b"hi",
                    ("DEADLINE_EXCEEDED", f"{hanging_address} did not respond within 1 s"),
                }
            if _health(gateway, hanging_address) is Health.UNHEALTHY:
                break
        attempt_count = counts["hang"]
        assert (_health(gateway, hanging_address), _health_reason(gateway, hanging_address)) == (
            Health.UNHEALTHY,
            HealthReason.FAILURE_RATE,
        )
        for _ in range(20):
            assert await call() == b"hi"

    assert counts["hang"] == attempt_count


async def test_late_response_of_an_abandoned_attempt_is_ignored(tmp_path: Path) -> None:
    """The caller does not receive it, and the connection stays open."""
    late: list[Stream] = []
    rule = {"retry": {"attempts": 20, "backoff": "1ms"}, "timeouts": {"backendRequest": "100ms"}}
    async with (
        run_scripted_backend(late.append, answer_ok) as address,
        run_gateway_with_call(tmp_path, address, rule=rule) as (_, call),
    ):
        assert await call() == b"hi"
        answer_ok(late[0])
        assert await call() == b"hi"


async def test_request_timeout_ends_a_hanging_call(tmp_path: Path) -> None:
    """The timeout `request` counts with or without retries."""
    rule = {"timeouts": {"request": "50ms"}}
    async with (
        run_scripted_backend(lambda stream: None) as address,
        run_gateway_with_call(tmp_path, address, rule=rule) as (_, call),
    ):
        status, details = await call()
        assert status == "DEADLINE_EXCEEDED"
        assert details.startswith(f"{address} did not respond within 0.0")


async def test_flapping_backend_is_hidden_from_callers(tmp_path: Path) -> None:
    """All calls succeed while another backend is healthy."""
    stable_backend = await Echo().start()
    unstable_backend = await Echo().start()
    port = unstable_backend.port
    async with run_gateway_with_call(
        tmp_path, stable_backend.address, unstable_backend.address, rule=RETRIED
    ) as (_, call):
        for _ in range(4):
            await unstable_backend.stop()
            assert [await call(method=f"{ECHO}Unary") for _ in range(10)] == [b"hi"] * 10
            unstable_backend = await Echo().start(port=port)
            assert [await call(method=f"{ECHO}Unary") for _ in range(10)] == [b"hi"] * 10
    await stable_backend.stop()
    await unstable_backend.stop()


async def test_stream_ends_if_its_backend_connection_is_lost(tmp_path: Path) -> None:
    """The status is UNAVAILABLE, and the details name the lost connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.settings({}) + frames.frame(frames.FrameType.SETTINGS, frames.ACK, 0))
        while b"gone" not in await reader.read(65536):
            pass
        writer.transport.abort()

    async with (
        run_tcp_backend(serve) as address,
        run_gateway(tmp_path, {"svc:1": [address]}) as (_, gateway_address),
        grpc.aio.insecure_channel(gateway_address, options=channel_options()) as channel,
    ):
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"here")
        await call.write(b"gone")

        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert (await call.details() or "").startswith(f"the connection to {address} was lost")


async def test_streams_are_not_retried(tmp_path: Path) -> None:
    """A call with two messages is sent once, whatever its rule is."""
    backend = await FailingBackend().start()
    rule = {"retry": {"reasons": ["unavailable"], "attempts": 3}}
    async with (
        run_gateway(tmp_path, {"svc:1": [backend.address]}, route(rule)) as (_, gateway_address),
        grpc.aio.insecure_channel(gateway_address, options=channel_options()) as channel,
    ):
        metadata = failure_metadata(code="UNAVAILABLE")

        async def send_two() -> AsyncIterator[bytes]:
            yield b"a"
            yield b"b"

        with pytest.raises(grpc.aio.AioRpcError):
            await channel.stream_unary(UNARY)(send_two(), metadata=metadata)
    await backend.stop()

    assert backend.count(metadata) <= 1


async def test_retry_budget_limits_retries(tmp_path: Path) -> None:
    """Beyond the budget a call fails with its own error."""
    backend = await FailingBackend().start()
    rule = {"retry": {"reasons": ["unavailable"], "attempts": 1, "backoff": "0s"}}
    async with run_gateway_with_call(tmp_path, backend.address, rule=rule, retry_budget=0) as (_, call):
        attempt_counts = []
        for _ in range(15):
            call_metadata = failure_metadata(code="UNAVAILABLE")
            assert (await call(metadata=call_metadata))[0] == "UNAVAILABLE"
            attempt_counts.append(backend.count(call_metadata))
    await backend.stop()

    # Ten retries per second are always allowed (GEP-3388, minRetryRate).
    assert attempt_counts[:10] == [2] * 10
    assert set(attempt_counts) <= {1, 2}


async def test_retry_sends_the_request_and_the_attempt_count(tmp_path: Path) -> None:
    """Each retry has the same bytes and the number of previous attempts."""
    backend = await FailingBackend().start()
    async with run_gateway_with_call(tmp_path, backend.address, rule=RETRIED) as (_, call):
        call_metadata = failure_metadata(code="UNAVAILABLE", succeed_after=3)
        assert await call(metadata=call_metadata) == b"hi"
    await backend.stop()

    assert backend.tries[dict(call_metadata)["x-call"]] == [None, "1", "2", "3"]


async def test_degraded_header_of_a_response_is_recorded(tmp_path: Path) -> None:
    """Envoy's header changes the health of the backend; the call succeeds."""
    head = encode(
        plain((b":status", b"200"), (b"content-type", b"application/grpc"), (b"x-envoy-degraded", b"1"))
    )

    def send_degraded(stream: Stream) -> None:
        stream.send_headers(head)
        stream.send_data(MESSAGE)
        stream.send_headers(OK, end=True)

    async with (
        run_scripted_backend(send_degraded) as address,
        run_gateway_with_call(tmp_path, address) as (gateway, call),
    ):
        await eventually(lambda: _health(gateway, address) is Health.HEALTHY)
        assert await call() == b"hi"
        assert _health_reason(gateway, address) is HealthReason.PROXIED_DEGRADED


async def test_stream_limit_of_a_connection_is_respected(tmp_path: Path) -> None:
    """A backend with one stream per connection gets a connection per call and refuses none."""
    streams: list[Stream] = []

    def respond_together(stream: Stream) -> None:
        streams.append(stream)
        if len(streams) == 5:
            for waiting_stream in streams:
                answer_ok(waiting_stream)

    async with (
        run_scripted_backend(
            respond_together, options=ConnectionOptions(max_concurrent_streams=1)
        ) as address,
        run_gateway_with_call(tmp_path, address, probe_interval=3600.0) as (_, call),
    ):
        assert await asyncio.gather(*(call() for _ in range(5))) == [b"hi"] * 5


async def test_cancelled_call_does_not_count_against_the_backend(tmp_path: Path) -> None:
    """A caller's short deadline is not a failure of the backend."""
    async with (
        run_scripted_backend(lambda stream: None) as address,
        run_gateway_with_call(tmp_path, address) as (gateway, call),
    ):
        for _ in range(12):
            assert (await call(timeout=0.02))[0] == "DEADLINE_EXCEEDED"
        assert _health_reason(gateway, address) is not HealthReason.FAILURE_RATE


def _health(gateway: Gateway, name: str) -> Health:
    destination = gateway.backends.destinations.get(name)
    assert destination is not None
    return destination.verdict.health


def _health_reason(gateway: Gateway, name: str) -> HealthReason:
    destination = gateway.backends.destinations.get(name)
    assert destination is not None
    return destination.verdict.reason


@pytest.mark.parametrize(
    "function_name",
    [
        "find_rule",
        "dialer_of",
        "record_first_attempt",
        "allow_retry",
        "record_retry",
        "chance",
        "record_stream_method",
        "on_call_end",
    ],
)
async def test_internal_error_ends_one_call(
    function_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever the error is raised, other calls on the same connections to callers and backends go on."""
    echo = await Echo().start()

    def raise_error(*args: object) -> None:
        raise RuntimeError("a bug")

    async with (
        run_gateway(tmp_path, {"svc:1": [echo.address]}, route(RETRIED)) as (gateway, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        other_call = channel.stream_stream(f"{ECHO}Both")(timeout=60)
        await other_call.write(b"before")
        assert await other_call.read() == b"before"
        with monkeypatch.context() as patch:
            patch.setattr(gateway.listener, function_name, raise_error)
            for method, code in (("Unary", "UNAVAILABLE"), ("Down", "")):
                metadata = (("x-code", code),) if code else ()
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async for _ in channel.unary_stream(ECHO + method)(b"hi", timeout=60, metadata=metadata):
                        pass
        await other_call.write(b"after")
        assert await other_call.read() == b"after"
        await other_call.done_writing()
        assert await other_call.code() is grpc.StatusCode.OK
        assert await channel.unary_unary(f"{ECHO}Unary")(b"hi", timeout=60) == b"hi"
    await echo.stop()

    assert "RuntimeError: a bug" in caplog.text


async def test_internal_error_has_status_internal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The details refer to the log of the gateway."""
    async with (
        run_scripted_backend(answer_ok) as address,
        run_gateway_with_call(tmp_path, address) as (gateway, call),
    ):

        def raise_error(*args: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(gateway.listener, "dialer_of", raise_error)
        assert await call() == ("INTERNAL", "internal error of the gateway; see its log")
