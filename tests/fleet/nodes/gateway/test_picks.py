"""Which backend a call gets: another one after a failure, the one of its session, or one attempt for streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.nodes.gateway.server import Gateway
from fleet.protocol.destination.health import Health, RequestOutcome
from fleet.transport.channels import channel_options
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.stream import Stream
from tests.fakes.echoing import ECHO, Echo, route, run_gateway
from tests.fakes.scripted import RETRIED, answer_ok, run_gateway_with_call, run_scripted_backend
from tests.fakes.waiting import eventually

#: No backend is probed twice.
NO_PROBES = {"probe_interval": 3600.0}


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    backend = await Echo().start()
    yield backend
    await backend.stop()


async def find_dead_address() -> str:
    """Return an address with no listener."""
    backend = await Echo().start()
    await backend.stop()
    return backend.address


def make_unhealthy(gateway: Gateway, address: str) -> None:
    """Record so many failed requests that the address becomes unhealthy."""
    for _ in range(100):
        gateway.backends.destinations.record_request(address, RequestOutcome.FAILURE)


def health_at(gateway: Gateway, address: str) -> Health:
    destination = gateway.backends.destinations.get(address)
    assert destination is not None
    return destination.verdict.health


async def test_unsent_call_goes_to_another_backend(echo: Echo, tmp_path: Path) -> None:
    """One of two backends refuses connections: no call fails, without retries in the rule and for streams too."""
    async with (
        run_gateway(tmp_path, {"svc:1": [echo.address, await find_dead_address()]}, **NO_PROBES) as (
            _,
            address,
        ),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        for _ in range(10):
            assert await channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=60) == b"a"
            call = channel.stream_stream(f"{ECHO}Both")(timeout=60)
            await call.write(b"a")
            assert await call.read() == b"a"
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK


async def test_unsent_call_does_not_count_as_a_retry(echo: Echo, tmp_path: Path) -> None:
    """The backend gets no attempt count, and an empty retry budget does not stop the call."""
    async with run_gateway_with_call(
        tmp_path, echo.address, await find_dead_address(), retry_budget=0, **NO_PROBES
    ) as (
        _,
        call,
    ):
        for _ in range(30):
            assert await call(method=f"{ECHO}Unary") == b"hi"

    assert all("grpc-previous-rpc-attempts" not in dict(metadata) for _, metadata, _ in echo.calls)


async def test_call_fails_after_dialling_every_dead_backend(tmp_path: Path) -> None:
    """Each backend is dialled once, and the call fails with the last error."""
    addresses = [await find_dead_address() for _ in range(3)]
    async with run_gateway_with_call(tmp_path, *addresses, **NO_PROBES) as (_, call):
        status, details = await call()

    assert status == "UNAVAILABLE"
    assert details in {f"{address}: connection refused" for address in addresses}


async def test_retry_uses_unhealthy_backend_before_giving_up(tmp_path: Path) -> None:
    """One backend resets every call; the retry succeeds at the other although it is unhealthy."""

    def reset_call(stream: Stream) -> None:
        stream.reset(ErrorCode.INTERNAL_ERROR)

    rule = {"retry": {"reasons": ["internal"], "attempts": 1, "backoff": "1ms"}}
    async with (
        run_scripted_backend(reset_call) as broken,
        run_scripted_backend(answer_ok) as good,
        run_gateway_with_call(tmp_path, broken, good, rule=rule, **NO_PROBES) as (gateway, call),
    ):
        await eventually(lambda: health_at(gateway, broken) is Health.HEALTHY)
        await eventually(lambda: health_at(gateway, good) is Health.HEALTHY)
        make_unhealthy(gateway, good)
        assert health_at(gateway, good) is Health.UNHEALTHY
        assert [await call() for _ in range(20)] == [b"hi"] * 20


async def test_retry_after_error_response_prefers_the_responding_backend(echo: Echo, tmp_path: Path) -> None:
    """A backend that responds with an error works, so its retry does not go to the unhealthy one."""
    rule = {"retry": {"reasons": ["internal"], "attempts": 2, "backoff": "1ms"}}
    dead_address = await find_dead_address()
    async with run_gateway_with_call(tmp_path, echo.address, dead_address, rule=rule, **NO_PROBES) as (
        gateway,
        call,
    ):
        await eventually(lambda: health_at(gateway, dead_address) is Health.UNHEALTHY)
        await eventually(lambda: health_at(gateway, echo.address) is Health.HEALTHY)
        status, _ = await call(method=f"{ECHO}Unary", metadata=(("x-code", "INTERNAL"),))

    assert status == "INTERNAL"
    assert len(echo.calls) == 3


async def test_method_with_a_stream_response_is_no_longer_retried(echo: Echo, tmp_path: Path) -> None:
    """A unary method of the same rule is still retried."""
    error_metadata = (("x-code", "UNAVAILABLE"),)
    async with (
        run_gateway(tmp_path, {"svc:1": [echo.address]}, route(RETRIED)) as (gateway, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):

        async def count_attempts(method: str) -> int:
            call_count = len(echo.calls)
            call = channel.unary_stream(ECHO + method)(b"abc", timeout=60, metadata=error_metadata)
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            return len(echo.calls) - call_count

        assert await count_attempts("Down") == 4
        assert [message async for message in channel.unary_stream(f"{ECHO}Down")(b"abc", timeout=60)] == [
            b"a",
            b"b",
            b"c",
        ]
        await eventually(lambda: gateway.listener.stream_methods == [f"{ECHO}Down"])
        assert await count_attempts("Down") == 1
        assert await channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=60) == b"a"
        assert await count_attempts("Unary") == 4


class SessionCaller:
    """Send calls with the session token of the last response."""

    def __init__(self, channel: grpc.aio.Channel, backends: list[Echo]) -> None:
        self._channel = channel
        self._backends = backends
        self.token = ""

    async def address(self) -> str:
        """Send a call; return the address of the backend that responded."""
        call_counts = {backend.address: len(backend.calls) for backend in self._backends}
        metadata = (("x-session", self.token),) if self.token else ()
        call = self._channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=60, metadata=metadata)
        await call
        head: dict[str, Any] = dict(await call.initial_metadata())
        self.token = head.get("x-session", self.token)
        (address,) = [
            backend.address for backend in self._backends if len(backend.calls) > call_counts[backend.address]
        ]
        return address


async def test_session_stays_with_its_backend_until_it_is_unhealthy(echo: Echo, tmp_path: Path) -> None:
    """A degraded or draining backend keeps its sessions; an unhealthy one loses them, with a new token."""
    other_backend = await Echo().start()
    rule = {"sessionPersistence": {"type": "Header", "sessionName": "X-Session"}}
    backends = [echo, other_backend]
    addresses = {backend.address for backend in backends}
    async with (
        run_gateway(tmp_path, {"svc:1": sorted(addresses)}, route(rule), **NO_PROBES) as (
            gateway,
            address,
        ),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        session = SessionCaller(channel, backends)
        await eventually(lambda: {health_at(gateway, name) for name in addresses} == {Health.HEALTHY})
        home_address = await session.address()
        token = session.token
        assert token
        assert {await session.address() for _ in range(10)} == {home_address}
        destinations = gateway.backends.destinations
        destinations.declare_degraded(home_address)
        assert {await session.address() for _ in range(10)} == {home_address}
        destinations.drain(home_address, "kernel update")
        assert {await session.address() for _ in range(10)} == {home_address}
        assert session.token == token
        # Calls without a session go to the other backend.
        assert {await SessionCaller(channel, backends).address() for _ in range(10)} == addresses - {
            home_address
        }
        make_unhealthy(gateway, home_address)
        new_address = await session.address()
        assert new_address != home_address
        assert session.token != token
        assert {await session.address() for _ in range(10)} == {new_address}
    await other_backend.stop()
