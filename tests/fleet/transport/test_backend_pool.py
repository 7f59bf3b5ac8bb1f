"""The pool of backend connections against a real Valkey, with connections that a forward resets or holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.transport import backend as backend_module
from fleet.transport.backend import Backend, BackendTimeoutError, BackendUnavailableError
from fleet.transport.backend_pool import NotSentError, Pool, is_lost
from fleet.wire import types_pb2
from tests.fakes.forwarded import forwarded
from tests.fakes.waiting import eventually
from tests.fleet.conftest import HASTY

Run = Callable[[Coroutine[Any, Any, None]], None]
both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


def server(name: str) -> types_pb2.ServerV2:
    return types_pb2.ServerV2(kind="proxy", metadata=types_pb2.Metadata(name=name))


def idle(backend: Backend) -> list[Any]:
    return backend._pool._available_connections


async def reset_in_flight(
    forward: Forward, backend: Backend, question: Awaitable[Any]
) -> asyncio.Future[Any]:
    """Ask over a connection that is held and then reset; return the call."""
    await forward.change(mode=ForwardMode.HOLD)
    call = asyncio.ensure_future(question)
    await eventually(lambda: not idle(backend))
    for link in list(forward.links):
        link.reset()
    return call


async def fill(forward: Forward, backend: Backend, count: int) -> None:
    """Have so many calls at once open a connection each, and leave those idle in the pool."""
    await forward.change(mode=ForwardMode.HOLD)
    before = forward.accepted_count
    calls = [asyncio.ensure_future(backend.instances("proxy")) for _ in range(count)]
    await eventually(lambda: forward.accepted_count == before + count)
    await forward.change(mode=ForwardMode.PASS)
    await asyncio.gather(*calls)
    assert len(idle(backend)) == count


@both_loops
def test_idle_connections_that_were_reset_fail_no_call(run: Run, valkey_url: str, prefix: str) -> None:
    """Neither reads nor writes: each lost connection is made anew before it is lent."""

    async def scene() -> None:
        async with forwarded(valkey_url, prefix) as (forward, backend):
            await fill(forward, backend, 8)
            await forward.change(mode=ForwardMode.CUT)
            await eventually(lambda: all(is_lost(connection) for connection in idle(backend)))
            await forward.change(mode=ForwardMode.PASS)
            for number in range(8):
                await backend.put_instance("proxy", server(f"p{number}"), 60.0)
            assert len(await backend.instances("proxy")) == 8

    run(scene())


@both_loops
def test_read_whose_connection_is_reset_is_sent_again(run: Run, valkey_url: str, prefix: str) -> None:
    """Once, over a new connection; the caller notices nothing."""

    async def scene() -> None:
        async with forwarded(valkey_url, prefix) as (forward, backend):
            await backend.put_instance("proxy", server("a"), 60.0)
            call = await reset_in_flight(forward, backend, backend.instances("proxy"))
            await eventually(lambda: forward.accepted_count == 2)
            await forward.change(mode=ForwardMode.PASS)
            assert [found.metadata.name for found in await call] == ["a"]

    run(scene())


@both_loops
def test_write_whose_connection_is_reset_is_uncertain(run: Run, valkey_url: str, prefix: str) -> None:
    """It is sent once, fails at once, and the error says that it may have taken effect; the next one works."""

    async def scene() -> None:
        async with forwarded(valkey_url, prefix) as (forward, backend):
            await backend.put_instance("proxy", server("a"), 60.0)
            call = await reset_in_flight(forward, backend, backend.put_instance("proxy", server("b"), 60.0))
            with pytest.raises(BackendUnavailableError, match="the write may have taken effect") as caught:
                await call
            assert caught.value.is_uncertain
            assert not isinstance(caught.value, BackendTimeoutError)
            await forward.change(mode=ForwardMode.PASS)
            await backend.put_instance("proxy", server("b"), 60.0)

    run(scene())


def test_failure_of_one_connection_empties_the_pool(
    valkey_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that went silent took all connections with it: the next calls do not try them one by one."""

    async def scene() -> None:
        async with forwarded(valkey_url, prefix) as (forward, backend):
            await fill(forward, backend, 5)
            await forward.change(mode=ForwardMode.HOLD)
            monkeypatch.setattr(backend_module, "TIMEOUT", HASTY)
            with pytest.raises(BackendTimeoutError):
                await backend.instances("proxy")
            monkeypatch.setattr(backend_module, "TIMEOUT", 40.0)
            # The connection that failed is made anew in any case: the other four calls show what became of the rest.
            await fill(forward, backend, 5)

    uvloop.run(scene())


async def test_refused_connection_means_that_nothing_was_sent(unused_tcp_port: int) -> None:
    """A write that was never sent is not uncertain."""
    pool = Pool.from_url(f"redis://127.0.0.1:{unused_tcp_port}/0")
    with pytest.raises(NotSentError):
        await pool.get_connection()
    backend = Backend(f"redis://127.0.0.1:{unused_tcp_port}/0", "default")
    with pytest.raises(BackendUnavailableError, match="cannot be used") as caught:
        await backend.put_instance("proxy", server("a"), 60.0)
    assert not caught.value.is_uncertain
    await backend.close()
