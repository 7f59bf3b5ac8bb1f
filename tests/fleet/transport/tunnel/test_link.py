"""A link stays registered despite lost connections, old connections, stale registrations and frozen servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import pytest

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.protocol.backoff import Backoff
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport import channels
from fleet.transport.tunnel.handlers import AcceptedSession, FunctionSession
from fleet.transport.tunnel.link import LinkSettings, TunnelLink, TunnelSpec
from fleet.transport.tunnel.server import TunnelServer, serve_tunnels
from fleet.transport.tunnel.stream import TunnelStream
from tests.fakes.waiting import eventually

ECHO = Target("echo", "TEST")
FAST_SETTINGS = LinkSettings(backoff=Backoff(first=0.02, ceiling=0.1), up_within=5.0, probe_interval=None)


@dataclass
class LinkEvents:
    """Recorded notifications of a link."""

    up_states: list[bool] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def record(self, is_up: bool, reason: str) -> None:
        self.up_states.append(is_up)
        if reason:
            self.reasons.append(reason)


async def echo(stream: TunnelStream) -> None:
    while data := await stream.read():
        await stream.write(data)


async def accept_session(target: Target) -> AcceptedSession:
    del target
    return FunctionSession(echo)


@contextlib.asynccontextmanager
async def run_server(
    port: int = 0, options: list[tuple[str, Any]] | None = None
) -> AsyncIterator[tuple[TunnelServer, int]]:
    tunnel = TunnelServer(WireVersion.V0_2)
    server = grpc.aio.server(options=[*channels.server_options(), *(options or [])])
    serve_tunnels(server, tunnel)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield tunnel, port
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def run_link(
    port: int, link_settings: LinkSettings = FAST_SETTINGS, name: str = "host-1"
) -> AsyncIterator[tuple[TunnelLink, LinkEvents]]:
    events = LinkEvents()
    spec = TunnelSpec(targets=(ECHO,), handler=accept_session, name=name)
    link = TunnelLink(
        lambda: channels.open_channel(f"127.0.0.1:{port}"),
        spec,
        settings=link_settings,
        on_up_change=events.record,
    )
    run_task = asyncio.create_task(link.run())
    try:
        yield link, events
    finally:
        run_task.cancel()
        await asyncio.wait((run_task,))


async def test_link_registers_again_after_its_server_was_gone() -> None:
    """A server that restarts on its port gets the target again, and sessions work."""
    async with contextlib.AsyncExitStack() as stack:
        async with run_server() as (tunnel, port):
            _, events = await stack.enter_async_context(run_link(port))
            await eventually(lambda: ECHO in tunnel.targets())
        await eventually(lambda: len(events.reasons) >= 2)
        tunnel, _ = await stack.enter_async_context(run_server(port))
        await eventually(lambda: ECHO in tunnel.targets())
        stream = await tunnel.open_session(ECHO)
        await stream.write(b"again")
        assert await stream.read() == b"again"
        await stream.close()
        assert events.up_states[0] is True
        assert events.up_states[-1] is True
        assert False in events.up_states


async def test_link_moves_before_an_old_connection_is_dropped() -> None:
    """With a maximum connection age, registrations never lapse, and an open session continues."""
    age = [("grpc.max_connection_age_ms", 700), ("grpc.max_connection_age_grace_ms", 60_000)]
    async with run_server(options=age) as (tunnel, port), run_link(port) as (_, events):
        await eventually(lambda: ECHO in tunnel.targets())
        owner = tunnel.owner(ECHO)
        old_stream = await tunnel.open_session(ECHO)
        lapses = 0
        while (current_owner := tunnel.owner(ECHO)) is owner or current_owner is None:
            lapses += current_owner is None
            await asyncio.sleep(0.005)
        await old_stream.write(b"still here")
        assert await old_stream.read() == b"still here"
        new_stream = await tunnel.open_session(ECHO)
        await new_stream.write(b"and there")
        assert await new_stream.read() == b"and there"
        await asyncio.gather(old_stream.close(), new_stream.close())
    assert lapses == 0
    assert False not in events.up_states


async def test_link_moves_its_target_if_the_server_refuses_duplicates() -> None:
    """The second registration succeeds once the first is removed, as with Go's server."""
    age = [("grpc.max_connection_age_ms", 500), ("grpc.max_connection_age_grace_ms", 60_000)]
    async with run_server(options=age) as (tunnel, port), run_link(port, name="") as (_, events):
        await eventually(lambda: ECHO in tunnel.targets())
        owner = tunnel.owner(ECHO)
        await eventually(lambda: tunnel.owner(ECHO) not in (owner, None))
        stream = await tunnel.open_session(ECHO)
        await stream.close()
    assert False not in events.up_states


async def test_link_with_a_frozen_server_is_ended_by_its_probe() -> None:
    """A server that accepts bytes and does not respond is left after the probe's timeout."""
    link_settings = LinkSettings(backoff=FAST_SETTINGS.backoff, probe_interval=0.05, probe_within=0.2)
    async with run_server() as (_, port):
        forward = Forward("server", ("127.0.0.1", 0), ("127.0.0.1", port))
        await forward.start()
        try:
            async with run_link(forward.listen[1], link_settings) as (_, events):
                await eventually(lambda: events.up_states[-1:] == [True])
                await forward.change(mode=ForwardMode.HOLD)
                await eventually(lambda: events.up_states[-1] is False)
                await forward.change(mode=ForwardMode.PASS)
                await eventually(lambda: events.up_states[-1] is True)
        finally:
            await forward.stop()
    assert any("did not answer within 0.2 s" in reason for reason in events.reasons)


async def test_link_with_a_frozen_server_aborts_its_sessions() -> None:
    """They would hang until TCP times out."""
    link_settings = LinkSettings(backoff=FAST_SETTINGS.backoff, probe_interval=0.05, probe_within=1.0)
    stream_future: asyncio.Future[TunnelStream] = asyncio.get_running_loop().create_future()

    async def hold(stream: TunnelStream) -> None:
        if not stream_future.done():
            stream_future.set_result(stream)
        await stream.read()

    async def accept_and_hold(target: Target) -> AcceptedSession:
        del target
        return FunctionSession(hold)

    async with run_server() as (tunnel, port):
        forward = Forward("server", ("127.0.0.1", 0), ("127.0.0.1", port))
        await forward.start()
        spec = TunnelSpec(targets=(ECHO,), handler=accept_and_hold, name="host-1")
        link = TunnelLink(
            lambda: channels.open_channel(f"127.0.0.1:{forward.listen[1]}"), spec, settings=link_settings
        )
        run_task = asyncio.create_task(link.run())
        try:
            await eventually(lambda: ECHO in tunnel.targets())
            await tunnel.open_session(ECHO)
            stream = await stream_future
            await forward.change(mode=ForwardMode.HOLD)
            await eventually(stream.call_over_future.done)
        finally:
            run_task.cancel()
            await asyncio.wait((run_task,))
            await forward.stop()


async def test_link_stopped_while_it_dials_leaves_nothing() -> None:
    """The server accepts the connection and does not respond: the attempt ends with the link."""
    before = asyncio.all_tasks()
    is_accepted, is_closed = asyncio.Event(), asyncio.Event()

    async def accept_silently(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_accepted.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_closed.set()

    silent_server = await asyncio.start_server(accept_silently, "127.0.0.1", 0)
    async with silent_server:
        async with run_link(silent_server.sockets[0].getsockname()[1]):
            await is_accepted.wait()
        async with asyncio.timeout(60):
            await is_closed.wait()
    await eventually(
        lambda: not [task for task in asyncio.all_tasks() - before if "tunnel" in task.get_name()]
    )


async def test_open_session_waits_again_if_the_link_went_down() -> None:
    """A waiting caller may wake after the link went down again."""
    async with run_server() as (_, port):
        link = TunnelLink(
            lambda: channels.open_channel(f"127.0.0.1:{port}"), TunnelSpec(), settings=FAST_SETTINGS
        )
        session_task = asyncio.create_task(link.open_session(ECHO, within=0.2))
        await asyncio.sleep(0)
        link._up_event.set()
        link._up_event.clear()
        try:
            await session_task
        except TimeoutError:
            return
        raise AssertionError("there was no tunnel")


async def test_link_whose_callback_fails_stays_up(caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged."""

    def fail(*notification: object) -> None:
        raise ZeroDivisionError(notification)

    async with run_server() as (tunnel, port):
        spec = TunnelSpec(targets=(ECHO,), handler=accept_session, name="host-1")
        link = TunnelLink(
            lambda: channels.open_channel(f"127.0.0.1:{port}"),
            spec,
            settings=FAST_SETTINGS,
            on_up_change=fail,
        )
        run_task = asyncio.create_task(link.run())
        try:
            await eventually(lambda: ECHO in tunnel.targets())
            await eventually(lambda: "a callback of the tunnel's user failed" in caplog.text)
            with pytest.raises(TunnelError, match="nobody"):  # the link is up, and sent the request
                await link.open_session(Target("nobody"), within=5)
        finally:
            run_task.cancel()
            await asyncio.wait((run_task,))


async def test_link_retries_a_target_of_another_client() -> None:
    """The target is refused while another client has it, and accepted once that client is gone."""
    async with run_server() as (tunnel, port), contextlib.AsyncExitStack() as stack:
        async with run_link(port, name="other"):
            await eventually(lambda: ECHO in tunnel.targets())
            link, events = await stack.enter_async_context(run_link(port))
            await eventually(
                lambda: "already registered by another client" in link.rejected_targets.get(ECHO, "")
            )
            assert link.registered_targets == frozenset()
        await eventually(lambda: link.registered_targets == {ECHO})
        assert link.rejected_targets == {}
        stream = await tunnel.open_session(ECHO)
        await stream.write(b"mine")
        assert await stream.read() == b"mine"
        await stream.close()
        assert events.up_states == [True]


async def test_link_gets_its_target_back_from_its_own_stale_registration() -> None:
    """The server does not know that the connection is lost; the link gets the target once it does."""
    link_settings = LinkSettings(backoff=FAST_SETTINGS.backoff, probe_interval=0.1, probe_within=1.0)
    async with run_server() as (tunnel, port):
        forwards = [Forward(name, ("127.0.0.1", 0), ("127.0.0.1", port)) for name in ("lost", "new")]
        for forward in forwards:
            await forward.start()
        current_forward = forwards[0]
        spec = TunnelSpec(targets=(ECHO,), handler=accept_session)
        link = TunnelLink(
            lambda: channels.open_channel(f"127.0.0.1:{current_forward.listen[1]}"),
            spec,
            settings=link_settings,
        )
        run_task = asyncio.create_task(link.run())
        try:
            await eventually(lambda: ECHO in tunnel.targets())
            stale = tunnel.owner(ECHO)
            current_forward = forwards[1]
            await forwards[0].change(mode=ForwardMode.HOLD)
            await eventually(lambda: "already registered" in link.rejected_targets.get(ECHO, ""))
            assert tunnel.owner(ECHO) is stale
            await forwards[0].change(mode=ForwardMode.CUT)
            await eventually(lambda: link.registered_targets == {ECHO})
            stream = await tunnel.open_session(ECHO)
            await stream.write(b"back")
            assert await stream.read() == b"back"
            await stream.close()
        finally:
            run_task.cancel()
            await asyncio.wait((run_task,))
            for forward in forwards:
                await forward.stop()
