"""The pool of backend connections on a real Valkey, with connections that a forward resets or holds."""

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
from fleet.transport.backend_pool import BackendConnectionPool, NotSentError, is_lost
from fleet.wire import types_pb2
from tests.fakes.forwarded import forwarded_backend
from tests.fakes.waiting import eventually
from tests.fleet.conftest import HASTY

Run = Callable[[Coroutine[Any, Any, None]], None]
both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


def server(name: str) -> types_pb2.ServerV2:
    return types_pb2.ServerV2(kind="proxy", metadata=types_pb2.Metadata(name=name))


def idle_connections(backend: Backend) -> list[Any]:
    return backend._pool._available_connections


async def reset_during_call(
    forward: Forward, backend: Backend, request: Awaitable[Any]
) -> asyncio.Future[Any]:
    """Send a request on a held connection, reset the connection, and return the call."""
    await forward.change(mode=ForwardMode.HOLD)
    call = asyncio.ensure_future(request)
    await eventually(lambda: not idle_connections(backend))
    for link in list(forward.pairs):
        link.reset()
    return call


async def open_connections(forward: Forward, backend: Backend, count: int) -> None:
    """Open connections by concurrent calls, and leave them idle in the pool."""
    await forward.change(mode=ForwardMode.HOLD)
    before = forward.accepted_count
    calls = [asyncio.ensure_future(backend.list_instances("proxy")) for _ in range(count)]
    await eventually(lambda: forward.accepted_count == before + count)
    await forward.change(mode=ForwardMode.PASS)
    await asyncio.gather(*calls)
    assert len(idle_connections(backend)) == count


@both_loops
def test_reset_idle_connections_are_replaced(run: Run, valkey_url: str, prefix: str) -> None:
    """Neither reads nor writes fail: lost connections reconnect before use."""

    async def run_calls() -> None:
        async with forwarded_backend(valkey_url, prefix) as (forward, backend):
            await open_connections(forward, backend, 8)
            await forward.change(mode=ForwardMode.CUT)
            await eventually(lambda: all(is_lost(connection) for connection in idle_connections(backend)))
            await forward.change(mode=ForwardMode.PASS)
            for number in range(8):
                await backend.put_instance("proxy", server(f"p{number}"), 60.0)
            assert len(await backend.list_instances("proxy")) == 8

    run(run_calls())


@both_loops
def test_read_on_a_reset_connection_is_retried(run: Run, valkey_url: str, prefix: str) -> None:
    """It is sent once more on a new connection."""

    async def run_calls() -> None:
        async with forwarded_backend(valkey_url, prefix) as (forward, backend):
            await backend.put_instance("proxy", server("a"), 60.0)
            call = await reset_during_call(forward, backend, backend.list_instances("proxy"))
            await eventually(lambda: forward.accepted_count == 2)
            await forward.change(mode=ForwardMode.PASS)
            assert [instance.metadata.name for instance in await call] == ["a"]

    run(run_calls())


@both_loops
def test_write_on_a_reset_connection_is_uncertain(run: Run, valkey_url: str, prefix: str) -> None:
    """It is sent once and fails at once; the error says that it may have taken effect. The next write
    succeeds.
    """

    async def run_calls() -> None:
        async with forwarded_backend(valkey_url, prefix) as (forward, backend):
            await backend.put_instance("proxy", server("a"), 60.0)
            call = await reset_during_call(forward, backend, backend.put_instance("proxy", server("b"), 60.0))
            with pytest.raises(BackendUnavailableError, match="the write may have taken effect") as caught:
                await call
            assert caught.value.is_uncertain
            assert not isinstance(caught.value, BackendTimeoutError)
            await forward.change(mode=ForwardMode.PASS)
            await backend.put_instance("proxy", server("b"), 60.0)

    run(run_calls())


def test_failed_connection_empties_the_pool(
    valkey_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent network path affects all connections: later calls do not try them one by one."""

    async def run_calls() -> None:
        async with forwarded_backend(valkey_url, prefix) as (forward, backend):
            await open_connections(forward, backend, 5)
            await forward.change(mode=ForwardMode.HOLD)
            monkeypatch.setattr(backend_module, "TIMEOUT", HASTY)
            with pytest.raises(BackendTimeoutError):
                await backend.list_instances("proxy")
            monkeypatch.setattr(backend_module, "TIMEOUT", 40.0)
            # The failed connection reconnects anyway; the other four calls show whether the rest was dropped.
            await open_connections(forward, backend, 5)

    uvloop.run(run_calls())


async def test_refused_connection_sends_nothing(unused_tcp_port: int) -> None:
    """A write that was not sent is not uncertain."""
    pool = BackendConnectionPool.from_url(f"redis://127.0.0.1:{unused_tcp_port}/0")
    with pytest.raises(NotSentError):
        await pool.get_connection()
    backend = Backend(f"redis://127.0.0.1:{unused_tcp_port}/0", "default")
    with pytest.raises(BackendUnavailableError, match="cannot be used") as caught:
        await backend.put_instance("proxy", server("a"), 60.0)
    assert not caught.value.is_uncertain
    await backend.close()
