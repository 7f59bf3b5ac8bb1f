"""Where calls through the gateway go: again elsewhere, to the backend of their session, or once if they are streams."""

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
from fleet.transport.http2.frames import Code
from fleet.transport.http2.stream import Stream
from tests.fakes.echoing import ECHO, Echo, gateway_before, route
from tests.fakes.scripted import RETRIED, before, scripted, well
from tests.fakes.waiting import eventually

#: Nothing is probed twice.
NEVER = {"probe_interval": 3600.0}


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    backend = await Echo().start()
    yield backend
    await backend.stop()


async def dead() -> str:
    """An address where nobody listens."""
    backend = await Echo().start()
    await backend.stop()
    return backend.address


def sicken(gateway: Gateway, address: str) -> None:
    """Let so many requests to an address fail that it is Unhealthy."""
    for _ in range(100):
        gateway.backends.destinations.record_request(address, RequestOutcome.FAILURE)


def health(gateway: Gateway, address: str) -> Health:
    destination = gateway.backends.destinations.get(address)
    assert destination is not None
    return destination.verdict.health


async def test_what_was_never_sent_goes_elsewhere(echo: Echo, tmp_path: Path) -> None:
    """One of two refuses connections: no call fails, though the rule has no retries, and streams neither."""
    async with (
        gateway_before(tmp_path, {"svc:1": [echo.address, await dead()]}, **NEVER) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        for _ in range(10):
            assert await channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=60) == b"a"
            call = channel.stream_stream(f"{ECHO}Both")(timeout=60)
            await call.write(b"a")
            assert await call.read() == b"a"
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK


async def test_what_was_never_sent_is_no_retry(echo: Echo, tmp_path: Path) -> None:
    """The backend is not told of tries before, and a budget of none does not stop it."""
    async with before(tmp_path, echo.address, await dead(), retry_budget=0, **NEVER) as (_, call):
        for _ in range(30):
            assert await call(method=f"{ECHO}Unary") == b"hi"

    assert all("grpc-previous-rpc-attempts" not in dict(metadata) for _, metadata, _ in echo.calls)


async def test_backends_that_are_all_dead(tmp_path: Path) -> None:
    """Each is dialed once, and the call fails as the last one did."""
    addresses = [await dead() for _ in range(3)]
    async with before(tmp_path, *addresses, **NEVER) as (_, call):
        status, details = await call()

    assert status == "UNAVAILABLE"
    assert details in {f"{address}: connection refused" for address in addresses}


async def test_retry_goes_to_an_unhealthy_one_that_was_not_tried(tmp_path: Path) -> None:
    """One breaks every call, the other is out although it answers: that one is tried before the call is given up."""

    def breaking(stream: Stream) -> None:
        stream.reset(Code.INTERNAL_ERROR)

    rule = {"retry": {"reasons": ["internal"], "attempts": 1, "backoff": "1ms"}}
    async with (
        scripted(breaking) as broken,
        scripted(well) as good,
        before(tmp_path, broken, good, rule=rule, **NEVER) as (gateway, call),
    ):
        await eventually(lambda: health(gateway, broken) is Health.HEALTHY)
        await eventually(lambda: health(gateway, good) is Health.HEALTHY)
        sicken(gateway, good)
        assert health(gateway, good) is Health.UNHEALTHY
        assert [await call() for _ in range(20)] == [b"hi"] * 20


async def test_retry_of_an_answer_prefers_who_answered_to_who_is_dead(echo: Echo, tmp_path: Path) -> None:
    """A backend that answers with an error works: its retry goes there, not to one that is Unhealthy."""
    rule = {"retry": {"reasons": ["internal"], "attempts": 2, "backoff": "1ms"}}
    refusing = await dead()
    async with before(tmp_path, echo.address, refusing, rule=rule, **NEVER) as (gateway, call):
        await eventually(lambda: health(gateway, refusing) is Health.UNHEALTHY)
        await eventually(lambda: health(gateway, echo.address) is Health.HEALTHY)
        status, _ = await call(method=f"{ECHO}Unary", metadata=(("x-code", "INTERNAL"),))

    assert status == "INTERNAL"
    assert len(echo.calls) == 3


async def test_method_that_answered_with_a_stream_is_not_retried(echo: Echo, tmp_path: Path) -> None:
    """From then on its calls are passed on once; a unary method of the same rule is retried still."""
    failing = (("x-code", "UNAVAILABLE"),)
    async with (
        gateway_before(tmp_path, {"svc:1": [echo.address]}, route(RETRIED)) as (gateway, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):

        async def tries(method: str) -> int:
            before = len(echo.calls)
            call = channel.unary_stream(ECHO + method)(b"abc", timeout=60, metadata=failing)
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            return len(echo.calls) - before

        assert await tries("Down") == 4
        assert [message async for message in channel.unary_stream(f"{ECHO}Down")(b"abc", timeout=60)] == [
            b"a",
            b"b",
            b"c",
        ]
        await eventually(lambda: gateway.listener.streams == [f"{ECHO}Down"])
        assert await tries("Down") == 1
        assert await channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=60) == b"a"
        assert await tries("Unary") == 4


class Session:
    """Calls that carry the token that the last one brought."""

    def __init__(self, channel: grpc.aio.Channel, backends: list[Echo]) -> None:
        self._channel = channel
        self._backends = backends
        self.token = ""

    async def address(self) -> str:
        """Call; the address of the backend that answered."""
        before = {backend.address: len(backend.calls) for backend in self._backends}
        sent = (("x-session", self.token),) if self.token else ()
        call = self._channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=60, metadata=sent)
        await call
        head: dict[str, Any] = dict(await call.initial_metadata())
        self.token = head.get("x-session", self.token)
        (address,) = [
            backend.address for backend in self._backends if len(backend.calls) > before[backend.address]
        ]
        return address


async def test_session_stays_where_it_is(echo: Echo, tmp_path: Path) -> None:
    """Also while its backend is Degraded or drains; an Unhealthy one is left, with a new token."""
    other = await Echo().start()
    rule = {"sessionPersistence": {"type": "Header", "sessionName": "X-Session"}}
    backends = [echo, other]
    addresses = {backend.address for backend in backends}
    async with (
        gateway_before(tmp_path, {"svc:1": sorted(addresses)}, route(rule), **NEVER) as (gateway, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        session = Session(channel, backends)
        await eventually(lambda: {health(gateway, name) for name in addresses} == {Health.HEALTHY})
        home = await session.address()
        token = session.token
        assert token
        assert {await session.address() for _ in range(10)} == {home}
        destinations = gateway.backends.destinations
        destinations.declare_degraded(home)
        assert {await session.address() for _ in range(10)} == {home}
        destinations.drain(home, "kernel update")
        assert {await session.address() for _ in range(10)} == {home}
        assert session.token == token
        # Who has no session does not go there.
        assert {await Session(channel, backends).address() for _ in range(10)} == addresses - {home}
        sicken(gateway, home)
        away = await session.address()
        assert away != home
        assert session.token != token
        assert {await session.address() for _ in range(10)} == {away}
    await other.stop()
