"""Keep a tunnel client registered: redial with backoff, and move to a new connection before the old one is dropped.

A server that shuts down, or whose connections may only become so old, says GOAWAY: the streams that are open live on,
and new ones would go to a new connection where no tag of ours is known. So at its first sign, the channel's leaving
READY, a second client registers on a channel of its own; the old one serves its sessions to their end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio

from fleet.processes import background
from fleet.protocol.backoff import Backoff
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport.tunnel.client import TunnelClient
from fleet.transport.tunnel.handlers import Handler, call_back
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)

#: Every gRPC server answers this, if only that it does not know the method.
_PROBE = "/grpc.health.v1.Health/Check"
#: Register of a lost connection ends within this of the channel's leaving READY, seconds.
_LOST_WITHIN = 0.2


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How a link is kept. Seconds."""

    backoff: Backoff = field(default_factory=Backoff)
    #: From dialling to all targets' answers.
    up_within: float = 20.0
    #: A call on the connection this often: stock Go servers forbid HTTP/2 pings more often than every 5 minutes, and
    #: an answer, even a refusal, proves more. None leaves it to HTTP/2 pings of the channel.
    probe_every: float | None = 10.0
    probe_within: float = 10.0
    #: Sessions of a connection that was left may go on for so long; None is to their own end.
    drain_within: float | None = None


@dataclass(frozen=True, slots=True)
class TunnelSpec:
    """What a link's client is, on whichever connection."""

    wire: WireVersion = WireVersion.V0_2
    targets: tuple[Target, ...] = ()
    #: Types of others' targets to hear of; empty text stands for all.
    subscribe: tuple[str, ...] = ()
    handler: Handler | None = None
    #: By this a server of ours knows a client that comes back.
    name: str = ""
    on_news: Callable[[Target, bool], None] | None = None

    def client(self, channel: grpc.aio.Channel) -> TunnelClient:
        """Make the client of one connection."""
        # Of two connections of ours the younger one is right, whatever became of our process between them.
        generation = time.time_ns()
        return TunnelClient(
            channel,
            self.wire,
            handler=self.handler,
            name=self.name,
            generation=generation,
            on_news=self.on_news,
        )


class TunnelLink:
    """A tunnel client that is always registered, or on its way to be."""

    def __init__(
        self,
        open_channel: Callable[[], grpc.aio.Channel],
        spec: TunnelSpec,
        *,
        settings: LinkSettings | None = None,
        on_up: Callable[[bool, str], None] | None = None,
    ) -> None:
        """Make one. `on_up` hears when it is registered (True) and when it is not (False), with the reason."""
        self._open_channel = open_channel
        self._spec = spec
        self._settings = settings or LinkSettings()
        self._on_up = on_up
        self._current: _Attempt | None = None
        self._up = asyncio.Event()
        self._leave_tasks: set[asyncio.Task[None]] = set()

    @property
    def registered_targets(self) -> frozenset[Target]:
        """Targets that the server has taken."""
        return frozenset() if self._current is None else self._current.client.registered_targets

    @property
    def rejected_targets(self) -> dict[Target, str]:
        """Targets that the server does not want now, and why; each is tried again."""
        return {} if self._current is None else self._current.client.rejected_targets

    async def run(self) -> None:
        """Stay registered, for ever."""
        failures = 0
        try:
            while True:
                attempt = await self._dial()
                started_at = time.monotonic()
                if attempt.is_up:
                    await self._wait_for_end(attempt)
                    if attempt.should_move:
                        failures = 0
                        continue  # before break: the next one is dialled while this one still serves
                failures = self._settings.backoff.failures(
                    failures, time.monotonic() - started_at if attempt.is_up else 0.0
                )
                await asyncio.sleep(self._settings.backoff.wait(failures, random.random()))
        finally:
            await self._end()

    async def open_session(self, target: Target, *, within: float | None = None) -> TunnelStream:
        """Ask for a session, once registered. Raises TunnelError; TimeoutError when that takes longer than `within`."""
        async with asyncio.timeout(within):
            while self._current is None:  # it may be lost again before we are woken
                await self._up.wait()
        return await self._current.client.open_session(target)

    async def _dial(self) -> _Attempt:
        attempt = _Attempt(self._spec, self._open_channel())
        try:
            reason = await attempt.wait_registered(self._settings.up_within)
        except asyncio.CancelledError:
            await attempt.close()
            raise
        if reason:
            self._retire(attempt)
            if self._current is None or not self._current.client.is_up:
                self._on_lost(f"cannot register: {reason}")
            return attempt
        old, self._current = self._current, attempt
        if old is not None:
            self._retire(old, attempt)
        self._up.set()
        call_back(self._on_up, True, "")
        return attempt

    async def _wait_for_end(self, attempt: _Attempt) -> None:
        """Wait for its end, or for the first sign that it is to be left."""
        register_task = asyncio.create_task(self._register_missing(attempt.client), name="refused targets")
        try:
            attempt.should_move = await attempt.wait_for_end(self._settings)
        finally:
            await background.stop([register_task])
        if attempt.should_move:
            log.info("the server lets go of this connection: registering on a new one")
            return
        self._on_lost(attempt.reason)

    async def _register_missing(self, client: TunnelClient) -> None:
        """Ask again for the targets that the server refused, with growing waits, until it has taken them all.

        Its reason may pass: most often it still has a connection of ours that is lost, and does not know that yet.
        """
        failures = 0
        while missing_targets := [target for target in self._spec.targets if target not in client.registered_targets]:
            failures += 1
            await asyncio.sleep(self._settings.backoff.wait(failures, random.random()))
            for target in missing_targets:
                with contextlib.suppress(TunnelError):  # the client has logged it, if it is another reason
                    await client.add_target(target)

    def _on_lost(self, reason: str) -> None:
        if self._current is not None:
            self._retire(self._current)
        self._current = None
        self._up.clear()
        call_back(self._on_up, False, reason)

    def _retire(self, old: _Attempt, new: _Attempt | None = None) -> None:
        task = asyncio.create_task(self._leave(old, new), name="tunnel that is left")
        self._leave_tasks.add(task)
        task.add_done_callback(self._leave_tasks.discard)

    async def _leave(self, old: _Attempt, new: _Attempt | None) -> None:
        try:
            if new is not None:
                await _move(old.client, new.client)
                await old.client.finish()
            old.client.stop()
            if old.is_dead:
                return
            async with asyncio.timeout(self._settings.drain_within):
                await old.client.wait_drained()
        except TimeoutError:
            log.warning("%d sessions of a connection that was left are cut", len(old.client.streams))
        finally:
            await old.close()

    async def _end(self) -> None:
        await background.stop(self._leave_tasks)
        if self._current is not None:
            await self._current.close()


class _Attempt:
    """One connection and its client."""

    def __init__(self, spec: TunnelSpec, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.client = spec.client(channel)
        self._run = asyncio.create_task(self.client.run(spec.targets, spec.subscribe), name="tunnel client")
        self.is_up = False
        self.should_move = False
        #: Nobody answers there: its sessions would hang until TCP gives up.
        self.is_dead = False
        self.reason = ""

    async def wait_registered(self, within: float) -> str:
        """Wait until it is registered; the reason when it does not get there."""
        await asyncio.sleep(0)  # let the client begin
        up_task = asyncio.create_task(self.client.wait_until_up())
        try:
            await asyncio.wait((up_task, self._run), timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up_task.cancel()
        if self._run.done():
            return self._reason()
        self.is_up = self.client.is_up
        return "" if self.is_up else f"no answer within {within:g} s"

    async def wait_for_end(self, settings: LinkSettings) -> bool:
        """Wait; whether its connection is to be left while Register still lives."""
        goaway_task = asyncio.create_task(_wait_for_goaway(self.channel))
        probe_task = asyncio.create_task(_probe(self.channel, self.client, settings))
        try:
            await asyncio.wait((goaway_task, probe_task, self._run), return_when=asyncio.FIRST_COMPLETED)
            if goaway_task.done() and not probe_task.done():
                self.client.on_goaway()
                # A connection that is lost leaves READY too: then Register ends at once.
                await asyncio.wait((self._run,), timeout=_LOST_WITHIN)
            if not self._run.done() and probe_task.done():
                self.reason = probe_task.result()
                self.is_dead = True
                return False
            if self._run.done():
                self.reason = self._reason()
                return False
            return True
        finally:
            for task in (goaway_task, probe_task):
                task.cancel()

    async def close(self) -> None:
        """End it and everything on it."""
        await self.client.close()
        await self.channel.close()
        await background.stop([self._run])

    def _reason(self) -> str:
        if self._run.cancelled():
            return "it was stopped"
        return str(self._run.exception() or "the server ended it")


async def _wait_for_goaway(channel: grpc.aio.Channel) -> None:
    while (state := channel.get_state()) is not grpc.ChannelConnectivity.READY:
        await channel.wait_for_state_change(state)
    await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)


async def _probe(channel: grpc.aio.Channel, client: TunnelClient, settings: LinkSettings) -> str:
    """Ask again and again; return what is wrong once there is no answer."""
    if settings.probe_every is None:
        await asyncio.Event().wait()
    check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_PROBE)
    while True:
        await asyncio.sleep(settings.probe_every or 0)
        requested_at = asyncio.get_running_loop().time()
        call = check(b"", timeout=settings.probe_within)
        if await call.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            continue
        # A slow line may be full of what sessions carry: while that arrives, the server is there.
        if not any(stream.last_seen_at >= requested_at for stream in client.streams):
            return f"the server did not answer within {settings.probe_within:g} s"


async def _move(old: TunnelClient, new: TunnelClient) -> None:
    """Give the new client what the server refused it because the old one still had it; not a server of ours."""
    for target in new.rejected_targets:
        try:
            await old.remove_target(target)
            await new.add_target(target)
        except TunnelError as error:
            log.warning("target %s did not move to the new connection: %s", target, error)
