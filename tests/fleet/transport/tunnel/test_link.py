"""A link stays registered: over lost connections, old connections, stale registrations and frozen servers."""

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
SOON = LinkSettings(backoff=Backoff(first=0.02, most=0.1), up_within=5.0, probe_every=None)


@dataclass
class Seen:
    """What a link told."""

    ups: list[bool] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def hear(self, up: bool, why: str) -> None:
        self.ups.append(up)
        if why:
            self.reasons.append(why)


async def echo(stream: TunnelStream) -> None:
    while data := await stream.read():
        await stream.write(data)


async def take(target: Target) -> AcceptedSession:
    del target
    return FunctionSession(echo)


@contextlib.asynccontextmanager
async def serving(
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
async def linked(
    port: int, keeping: LinkSettings = SOON, name: str = "host-1"
) -> AsyncIterator[tuple[TunnelLink, Seen]]:
    seen = Seen()
    spec = TunnelSpec(targets=(ECHO,), handler=take, name=name)
    link = TunnelLink(
        lambda: channels.open_channel(f"127.0.0.1:{port}"), spec, settings=keeping, on_up=seen.hear
    )
    running = asyncio.create_task(link.run())
    try:
        yield link, seen
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def test_link_registers_again_after_its_server_was_gone() -> None:
    """A server that ends and comes back on its port has the target again, and sessions work."""
    async with contextlib.AsyncExitStack() as stack:
        async with serving() as (tunnel, port):
            _, seen = await stack.enter_async_context(linked(port))
            await eventually(lambda: ECHO in tunnel.targets())
        await eventually(lambda: len(seen.reasons) >= 2)
        tunnel, _ = await stack.enter_async_context(serving(port))
        await eventually(lambda: ECHO in tunnel.targets())
        stream = await tunnel.open_session(ECHO)
        await stream.write(b"again")
        assert await stream.read() == b"again"
        await stream.close()
        assert seen.ups[0] is True
        assert seen.ups[-1] is True
        assert False in seen.ups


async def test_link_moves_before_an_old_connection_is_dropped() -> None:
    """With a greatest connection age, registrations never lapse and a session opened before the move goes on."""
    age = [("grpc.max_connection_age_ms", 700), ("grpc.max_connection_age_grace_ms", 60_000)]
    async with serving(options=age) as (tunnel, port), linked(port) as (_, seen):
        await eventually(lambda: ECHO in tunnel.targets())
        owner = tunnel.owner(ECHO)
        old = await tunnel.open_session(ECHO)
        lapses = 0
        while (now := tunnel.owner(ECHO)) is owner or now is None:
            lapses += now is None
            await asyncio.sleep(0.005)
        await old.write(b"still here")
        assert await old.read() == b"still here"
        new = await tunnel.open_session(ECHO)
        await new.write(b"and there")
        assert await new.read() == b"and there"
        await asyncio.gather(old.close(), new.close())
    assert lapses == 0
    assert False not in seen.ups


async def test_link_moves_its_target_where_the_server_does_not_know_it_again() -> None:
    """A server that refuses the second registration gets it once the first is taken back, as with Go's."""
    age = [("grpc.max_connection_age_ms", 500), ("grpc.max_connection_age_grace_ms", 60_000)]
    async with serving(options=age) as (tunnel, port), linked(port, name="") as (_, seen):
        await eventually(lambda: ECHO in tunnel.targets())
        owner = tunnel.owner(ECHO)
        await eventually(lambda: tunnel.owner(ECHO) not in (owner, None))
        stream = await tunnel.open_session(ECHO)
        await stream.close()
    assert False not in seen.ups


async def test_link_with_a_frozen_server_is_ended_by_its_probe() -> None:
    """A server that takes bytes and answers nothing is left after the probe's time."""
    keeping = LinkSettings(backoff=SOON.backoff, probe_every=0.05, probe_within=0.2)
    async with serving() as (_, port):
        forward = Forward("server", ("127.0.0.1", 0), ("127.0.0.1", port))
        await forward.start()
        try:
            async with linked(forward.listen[1], keeping) as (_, seen):
                await eventually(lambda: seen.ups[-1:] == [True])
                await forward.change(mode=ForwardMode.HOLD)
                await eventually(lambda: seen.ups[-1] is False)
                await forward.change(mode=ForwardMode.PASS)
                await eventually(lambda: seen.ups[-1] is True)
        finally:
            await forward.stop()
    assert any("did not answer within 0.2 s" in reason for reason in seen.reasons)


async def test_link_with_a_frozen_server_aborts_its_sessions() -> None:
    """They would hang until TCP gives up: whoever has one is told when the probe gives up."""
    keeping = LinkSettings(backoff=SOON.backoff, probe_every=0.05, probe_within=1.0)
    began: asyncio.Future[TunnelStream] = asyncio.get_running_loop().create_future()

    async def hold(stream: TunnelStream) -> None:
        if not began.done():
            began.set_result(stream)
        await stream.read()

    async def take_and_hold(target: Target) -> AcceptedSession:
        del target
        return FunctionSession(hold)

    async with serving() as (tunnel, port):
        forward = Forward("server", ("127.0.0.1", 0), ("127.0.0.1", port))
        await forward.start()
        spec = TunnelSpec(targets=(ECHO,), handler=take_and_hold, name="host-1")
        link = TunnelLink(
            lambda: channels.open_channel(f"127.0.0.1:{forward.listen[1]}"), spec, settings=keeping
        )
        running = asyncio.create_task(link.run())
        try:
            await eventually(lambda: ECHO in tunnel.targets())
            await tunnel.open_session(ECHO)
            stream = await began
            await forward.change(mode=ForwardMode.HOLD)
            await eventually(stream.over_future.done)
        finally:
            running.cancel()
            await asyncio.wait((running,))
            await forward.stop()


async def test_link_stopped_while_it_dials_leaves_nothing() -> None:
    """A server that takes the connection and says nothing: the attempt is ended with the link."""
    before = asyncio.all_tasks()
    accepted, left = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    deaf = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with deaf:
        async with linked(deaf.sockets[0].getsockname()[1]):
            await accepted.wait()
        async with asyncio.timeout(60):
            await left.wait()
    await eventually(
        lambda: not [task for task in asyncio.all_tasks() - before if "tunnel" in task.get_name()]
    )


async def test_link_lost_between_its_coming_up_and_its_use_is_waited_for_again() -> None:
    """Whoever waits for it to be up is woken late: it may be down once more."""
    async with serving() as (_, port):
        link = TunnelLink(lambda: channels.open_channel(f"127.0.0.1:{port}"), TunnelSpec(), settings=SOON)
        waiting = asyncio.create_task(link.open_session(ECHO, within=0.2))
        await asyncio.sleep(0)
        link._up.set()
        link._up.clear()
        try:
            await waiting
        except TimeoutError:
            return
        raise AssertionError("there was no tunnel")


async def test_link_whose_callback_fails_stays_up(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger's fault is logged."""

    def fail(*news: object) -> None:
        raise ZeroDivisionError(news)

    async with serving() as (tunnel, port):
        spec = TunnelSpec(targets=(ECHO,), handler=take, name="host-1")
        link = TunnelLink(lambda: channels.open_channel(f"127.0.0.1:{port}"), spec, settings=SOON, on_up=fail)
        running = asyncio.create_task(link.run())
        try:
            await eventually(lambda: ECHO in tunnel.targets())
            await eventually(lambda: "a callback of the tunnel's user failed" in caplog.text)
            with pytest.raises(TunnelError, match="nobody"):  # so it is up, and asked
                await link.open_session(Target("nobody"), within=5)
        finally:
            running.cancel()
            await asyncio.wait((running,))


async def test_link_asks_again_for_a_target_that_another_client_had() -> None:
    """The target is refused while another one has it, and is ours as soon as that one is gone."""
    async with serving() as (tunnel, port), contextlib.AsyncExitStack() as stack:
        async with linked(port, name="other"):
            await eventually(lambda: ECHO in tunnel.targets())
            link, seen = await stack.enter_async_context(linked(port))
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
        assert seen.ups == [True]


async def test_link_gets_its_target_back_from_its_own_stale_registration() -> None:
    """Its connection was forgotten on the way, which the server does not know: it has the target again once it does."""
    keeping = LinkSettings(backoff=SOON.backoff, probe_every=0.1, probe_within=1.0)
    async with serving() as (tunnel, port):
        ways = [Forward(name, ("127.0.0.1", 0), ("127.0.0.1", port)) for name in ("lost", "new")]
        for way in ways:
            await way.start()
        dialled = ways[0]
        spec = TunnelSpec(targets=(ECHO,), handler=take)
        link = TunnelLink(
            lambda: channels.open_channel(f"127.0.0.1:{dialled.listen[1]}"), spec, settings=keeping
        )
        running = asyncio.create_task(link.run())
        try:
            await eventually(lambda: ECHO in tunnel.targets())
            stale = tunnel.owner(ECHO)
            dialled = ways[1]
            await ways[0].change(mode=ForwardMode.HOLD)
            await eventually(lambda: "already registered" in link.rejected_targets.get(ECHO, ""))
            assert tunnel.owner(ECHO) is stale
            await ways[0].change(mode=ForwardMode.CUT)
            await eventually(lambda: link.registered_targets == {ECHO})
            stream = await tunnel.open_session(ECHO)
            await stream.write(b"back")
            assert await stream.read() == b"back"
            await stream.close()
        finally:
            running.cancel()
            await asyncio.wait((running,))
            for way in ways:
                await way.stop()
