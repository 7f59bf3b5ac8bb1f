"""Backends that fail in every way there is: each ends in a clear status, or in another try."""

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
from fleet.transport.http2.frames import Code
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream
from tests.fakes.echoing import ECHO, Echo, gateway_before, route
from tests.fakes.failing import UNARY, FailingBackend, told
from tests.fakes.scripted import HEAD, MESSAGE, OK, RETRIED, Answer, before, raw, scripted, well
from tests.fakes.waiting import eventually


def resetting(code: Code) -> Answer:
    return lambda stream: stream.reset(code)


def head_then(code: Code) -> Answer:
    def answer(stream: Stream) -> None:
        stream.send_headers(HEAD)
        stream.reset(code)

    return answer


def part_then_reset(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(MESSAGE)
    stream.reset(Code.INTERNAL_ERROR)


def http(status: bytes) -> Answer:
    block = encode(plain((b":status", status), (b"content-type", b"text/html")))
    return lambda stream: stream.send_headers(block, end=True)


def no_status(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(MESSAGE, end=True)


def data_first(stream: Stream) -> None:
    stream.send_data(MESSAGE)


def two_heads(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_headers(HEAD)


def huge(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(b"\0\xff\xff\xff\xff" + b"x" * 100)


@pytest.mark.parametrize(
    ("answer", "status", "details"),
    [
        (resetting(Code.INTERNAL_ERROR), "INTERNAL", "reset the call: INTERNAL_ERROR"),
        (resetting(Code.CANCEL), "CANCELLED", "reset the call: CANCEL"),
        (resetting(Code.ENHANCE_YOUR_CALM), "RESOURCE_EXHAUSTED", "reset the call: ENHANCE_YOUR_CALM"),
        (head_then(Code.PROTOCOL_ERROR), "INTERNAL", "reset the call: PROTOCOL_ERROR"),
        (part_then_reset, "INTERNAL", "reset the call: INTERNAL_ERROR"),
        (http(b"503"), "UNAVAILABLE", "responded with HTTP 503 instead of gRPC"),
        (http(b"404"), "UNIMPLEMENTED", "responded with HTTP 404 instead of gRPC"),
        (http(b"abc"), "UNKNOWN", "responded with HTTP 0 instead of gRPC"),
        (no_status, "INTERNAL", "ended the call without a status"),
        (data_first, "INTERNAL", "sent data before headers"),
        (two_heads, "INTERNAL", "sent two header lists before the body"),
        (huge, "RESOURCE_EXHAUSTED", "responded with a message larger than 4194304 bytes"),
    ],
)
async def test_garbage_is_a_clear_status(answer: Answer, status: str, details: str, tmp_path: Path) -> None:
    """The backend is named, and so is what it did."""
    async with scripted(answer) as address, before(tmp_path, address) as (_, call):
        assert await call() == (status, f"{address} {details}")


@pytest.mark.parametrize("code", [Code.REFUSED_STREAM, Code.INTERNAL_ERROR, Code.CANCEL])
async def test_reset_is_retried_when_its_reason_is_listed(code: Code, tmp_path: Path) -> None:
    """What was reset is sent again, whole; a stream that was refused is so without any rule."""
    reasons = {"retry": {"reasons": ["internal", "cancelled"], "attempts": 1, "backoff": "1ms"}}
    rule = {} if code is Code.REFUSED_STREAM else reasons
    answer = resetting(code) if code is Code.REFUSED_STREAM else head_then(code)
    async with scripted(answer, well) as address, before(tmp_path, address, rule=rule) as (_, call):
        assert await call() == b"hi"


async def test_reset_after_the_answer_began_is_not_retried(tmp_path: Path) -> None:
    """The caller may have it already."""
    rule = {"retry": {"reasons": ["internal"], "attempts": 3, "backoff": "1ms"}}
    async with scripted(part_then_reset, well) as address, before(tmp_path, address, rule=rule) as (_, call):
        assert (await call())[0] == "INTERNAL"


async def test_backend_that_is_not_there(tmp_path: Path) -> None:
    """Refused at once, retried, and told as it is."""
    async with scripted(well) as address:
        pass
    async with before(tmp_path, address, rule=RETRIED) as (gateway, call):
        assert await call() == ("UNAVAILABLE", f"{address}: connection refused")
        await eventually(lambda: _health(gateway, address) is Health.UNHEALTHY)


async def test_backend_that_speaks_something_else(tmp_path: Path) -> None:
    """HTTP/1.1, or nonsense."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with raw(serve) as address, before(tmp_path, address) as (_, call):
        status, details = await call()
        assert status == "UNAVAILABLE"
        assert details.startswith(f"{address}: the peer does not speak HTTP/2")


async def test_backend_that_says_nothing_at_all(tmp_path: Path) -> None:
    """It accepts and keeps silent: the time to connect it is over at last."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw(serve) as address, before(tmp_path, address, dial_timeout=0.1) as (_, call):
        assert await call() == ("UNAVAILABLE", f"{address}: not connected within 0.1 s")


async def test_backend_that_hangs_is_left(tmp_path: Path) -> None:
    """The timeout of a try ends it, the next one goes elsewhere; the one that hangs is no longer preferred."""
    answers = {"hang": 0}

    def hang(stream: Stream) -> None:
        answers["hang"] += 1

    rule = {"retry": {"attempts": 3, "backoff": "1ms"}, "timeouts": {"backendRequest": "1s"}}
    async with (
        scripted(hang) as bad,
        scripted(well) as good,
        before(tmp_path, bad, good, rule=rule) as (gateway, call),
    ):
        for _ in range(12):
            for answer in await asyncio.gather(*(call() for _ in range(20))):
                assert answer in {b"hi", ("DEADLINE_EXCEEDED", f"{bad} did not respond within 1 s")}
            if _health(gateway, bad) is Health.UNHEALTHY:
                break
        tried = answers["hang"]
        assert (_health(gateway, bad), _reason(gateway, bad)) == (Health.UNHEALTHY, HealthReason.FAILURE_RATE)
        for _ in range(20):
            assert await call() == b"hi"

    assert answers["hang"] == tried


async def test_answer_that_is_late_is_not_taken(tmp_path: Path) -> None:
    """A try that was given up answers after all: nobody hears it, and the connection stays."""
    late: list[Stream] = []
    rule = {"retry": {"attempts": 20, "backoff": "1ms"}, "timeouts": {"backendRequest": "100ms"}}
    async with scripted(late.append, well) as address, before(tmp_path, address, rule=rule) as (_, call):
        assert await call() == b"hi"
        well(late[0])
        assert await call() == b"hi"


async def test_whole_time_of_a_request(tmp_path: Path) -> None:
    """`request` ends a call that hangs, with or without retries."""
    rule = {"timeouts": {"request": "50ms"}}
    async with scripted(lambda stream: None) as address, before(tmp_path, address, rule=rule) as (_, call):
        status, details = await call()
        assert status == "DEADLINE_EXCEEDED"
        assert details.startswith(f"{address} did not respond within 0.0")


async def test_backend_that_flaps_each_second(tmp_path: Path) -> None:
    """It dies and comes back, again and again: callers notice nothing while there is another one."""
    steady = await Echo().start()
    flapping = await Echo().start()
    port = flapping.port
    async with before(tmp_path, steady.address, flapping.address, rule=RETRIED) as (_, call):
        for _ in range(4):
            await flapping.stop()
            assert [await call(method=f"{ECHO}Unary") for _ in range(10)] == [b"hi"] * 10
            flapping = await Echo().start(port=port)
            assert [await call(method=f"{ECHO}Unary") for _ in range(10)] == [b"hi"] * 10
    await steady.stop()
    await flapping.stop()


async def test_backend_that_vanishes_under_a_stream(tmp_path: Path) -> None:
    """The stream ends with a status that says so; the next one goes on with who is left."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.settings({}) + frames.frame(frames.Type.SETTINGS, frames.ACK, 0))
        while b"gone" not in await reader.read(65536):
            pass
        writer.transport.abort()

    async with (
        raw(serve) as address,
        gateway_before(tmp_path, {"svc:1": [address]}) as (_, door),
        grpc.aio.insecure_channel(door, options=channel_options()) as channel,
    ):
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"here")
        await call.write(b"gone")

        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert (await call.details() or "").startswith(f"the connection to {address} was lost")


async def test_streams_are_not_retried(tmp_path: Path) -> None:
    """A call with two messages goes once, whatever its rule says."""
    backend = await FailingBackend().start()
    rule = {"retry": {"reasons": ["unavailable"], "attempts": 3}}
    async with (
        gateway_before(tmp_path, {"svc:1": [backend.address]}, route(rule)) as (_, door),
        grpc.aio.insecure_channel(door, options=channel_options()) as channel,
    ):
        how = told(code="UNAVAILABLE")

        async def two() -> AsyncIterator[bytes]:
            yield b"a"
            yield b"b"

        with pytest.raises(grpc.aio.AioRpcError):
            await channel.stream_unary(UNARY)(two(), metadata=how)
    await backend.stop()

    assert backend.count(how) <= 1


async def test_budget_ends_retries(tmp_path: Path) -> None:
    """Beyond it a call fails with its own error."""
    backend = await FailingBackend().start()
    rule = {"retry": {"reasons": ["unavailable"], "attempts": 1, "backoff": "0s"}}
    async with before(tmp_path, backend.address, rule=rule, retry_budget=0) as (_, call):
        tries = []
        for _ in range(15):
            how = told(code="UNAVAILABLE")
            assert (await call(metadata=how))[0] == "UNAVAILABLE"
            tries.append(backend.count(how))
    await backend.stop()

    # Ten a second pass in any case (GEP-3388, minRetryRate).
    assert tries[:10] == [2] * 10
    assert set(tries) <= {1, 2}


async def test_retry_carries_the_request_again(tmp_path: Path) -> None:
    """The same bytes, and how many tries were before it."""
    backend = await FailingBackend().start()
    async with before(tmp_path, backend.address, rule=RETRIED) as (_, call):
        how = told(code="UNAVAILABLE", succeed_after=3)
        assert await call(metadata=how) == b"hi"
    await backend.stop()

    assert backend.tries[dict(how)["x-call"]] == [None, "1", "2", "3"]


async def test_degraded_answer_is_noticed(tmp_path: Path) -> None:
    """By Envoy's header; the call itself is well."""
    head = encode(
        plain((b":status", b"200"), (b"content-type", b"application/grpc"), (b"x-envoy-degraded", b"1"))
    )

    def degraded(stream: Stream) -> None:
        stream.send_headers(head)
        stream.send_data(MESSAGE)
        stream.send_headers(OK, end=True)

    async with scripted(degraded) as address, before(tmp_path, address) as (gateway, call):
        await eventually(lambda: _health(gateway, address) is Health.HEALTHY)
        assert await call() == b"hi"
        assert _reason(gateway, address) is HealthReason.PROXIED_DEGRADED


async def test_limit_of_a_connection_is_kept(tmp_path: Path) -> None:
    """A backend that takes one call a connection gets a connection a call, and refuses none."""
    waiting: list[Stream] = []

    def together(stream: Stream) -> None:
        waiting.append(stream)
        if len(waiting) == 5:
            for one in waiting:
                well(one)

    async with (
        scripted(together, options=ConnectionOptions(streams=1)) as address,
        before(tmp_path, address, probe_interval=3600.0) as (_, call),
    ):
        assert await asyncio.gather(*(call() for _ in range(5))) == [b"hi"] * 5


async def test_cancelled_call_says_nothing_of_the_backend(tmp_path: Path) -> None:
    """A caller's impatience is not the backend's failure."""
    async with scripted(lambda stream: None) as address, before(tmp_path, address) as (gateway, call):
        for _ in range(12):
            assert (await call(timeout=0.02))[0] == "DEADLINE_EXCEEDED"
        assert _reason(gateway, address) is not HealthReason.FAILURE_RATE


def _health(gateway: Gateway, name: str) -> Health:
    one = gateway.backends.destinations.get(name)
    assert one is not None
    return one.verdict.health


def _reason(gateway: Gateway, name: str) -> HealthReason:
    one = gateway.backends.destinations.get(name)
    assert one is not None
    return one.verdict.reason


@pytest.mark.parametrize(
    "broken",
    [
        "find",
        "dialer",
        "record_first_attempt",
        "allow_retry",
        "record_retry",
        "chance",
        "record_stream_method",
        "on_call_end",
    ],
)
async def test_error_of_ours_ends_one_call(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it is raised: others on the same connections go on, to the caller as to the backend."""
    echo = await Echo().start()

    def bug(*args: object) -> None:
        raise RuntimeError("a bug")

    async with (
        gateway_before(tmp_path, {"svc:1": [echo.address]}, route(RETRIED)) as (gateway, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        other = channel.stream_stream(f"{ECHO}Both")(timeout=60)
        await other.write(b"before")
        assert await other.read() == b"before"
        with monkeypatch.context() as patched:
            patched.setattr(gateway.listener, broken, bug)
            for method, code in (("Unary", "UNAVAILABLE"), ("Down", "")):
                sent = (("x-code", code),) if code else ()
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async for _ in channel.unary_stream(ECHO + method)(b"hi", timeout=60, metadata=sent):
                        pass
        await other.write(b"after")
        assert await other.read() == b"after"
        await other.done_writing()
        assert await other.code() is grpc.StatusCode.OK
        assert await channel.unary_unary(f"{ECHO}Unary")(b"hi", timeout=60) == b"hi"
    await echo.stop()

    assert "RuntimeError: a bug" in caplog.text


async def test_error_of_ours_has_a_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """INTERNAL, and where to look."""
    async with scripted(well) as address, before(tmp_path, address) as (gateway, call):

        def bug(*args: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(gateway.listener, "dialer", bug)
        assert await call() == ("INTERNAL", "internal error of the gateway; see its log")
