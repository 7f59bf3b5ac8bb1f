"""A tunnel client: the shell around `ClientState`, on any grpc.aio channel. It lives as long as its Register stream.

client = TunnelClient(channel, handler=serve_ssh)
await client.run([Target("router-7", "SSH")])
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import grpc
import grpc.aio

from fleet.protocol.tunnel import Op, Target, TunnelError, Wire
from fleet.protocol.tunnel_client import (
    AskHandler,
    ClientState,
    Effect,
    Failed,
    News,
    NotRegistered,
    OpenStream,
    Registered,
    Send,
    Subscribed,
)
from fleet.protocol.tunnel_server import Limits
from fleet.transport.tunnel import codec, metadata
from fleet.transport.tunnel.handlers import Handler, Taken, tell
from fleet.transport.tunnel.stream import ClientStream, TunnelStream, is_cancelled

log = logging.getLogger(__name__)


#: Both methods carry bytes: `codec` reads and writes them.
Calls = grpc.aio.StreamStreamMultiCallable[bytes, bytes]

#: Messages waiting for a server that does not read its Register stream; then the tunnel is ended.
_MOST_UNREAD = 10_000


class RegisterEnded(TunnelError):
    """The Register stream is over, or never was; the sentence is the server's, gRPC's, or says that it was stopped."""


class TunnelClient:
    """The client end of one tunnel. `run` it again after it ended."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        wire: Wire = Wire.V0_2,
        *,
        handler: Handler | None = None,
        name: str = "",
        generation: int = 0,
        limits: Limits | None = None,
        on_news: Callable[[Target, bool], None] | None = None,
    ) -> None:
        """Make one.

        `handler` serves sessions that the server asks for. `name` and a growing `generation` let a server of ours
        recognise a client that comes back. `on_news` hears of others' targets that come (True) and go, if `run`
        subscribes.
        """
        self._wire = wire
        self._handler = handler
        self._greeting = metadata.greet(wire, name, generation)
        self._limits = limits or Limits()
        self._on_news = on_news
        self._open_register: Calls = channel.stream_stream(codec.REGISTER)
        self._open_tunnel: Calls = channel.stream_stream(codec.TUNNEL)
        self._run: _Run | None = None
        #: Sessions that are open, of this Register stream and of earlier ones.
        self.streams: set[ClientStream] = set()
        self._sessions: set[asyncio.Task[None]] = set()

    @property
    def is_up(self) -> bool:
        """Whether sessions may be asked for."""
        return self._run is not None and self._run.up.is_set()

    async def run(self, targets: Iterable[Target] = (), subscribe: Iterable[str] = ()) -> None:
        """Register, and serve until the server ends it. Raises RegisterEnded, TunnelError when it runs already."""
        if self._run is not None:
            raise TunnelError("this client runs already")
        run = self._run = _Run(self._wire, self._handler is not None, self._limits)
        try:
            await self._register(run, targets, subscribe)
        finally:
            self._run = None
            run.finish()

    @property
    def refused(self) -> dict[Target, str]:
        """Targets that the server does not want, and why."""
        return {} if self._run is None else dict(self._run.refused)

    async def wait_until_up(self) -> None:
        """Wait until it is connected and the server answered for every target, or it stopped."""
        while self._run is not None and not self._run.up.is_set():
            await self._run.up.wait()

    async def open_session(self, target: Target) -> TunnelStream:
        """Ask the server for a session. Raises TunnelError, in twice the set-up time at the latest."""
        run = self._running()
        tag, effects = run.state.open(target, time.monotonic())
        waiter: asyncio.Future[ClientStream] = asyncio.get_running_loop().create_future()
        run.waiters[tag] = waiter
        self._do(run, effects)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().abort("its caller is gone")
            raise
        finally:
            del run.waiters[tag]
            run.state.abandon(tag)

    async def add_target(self, target: Target) -> None:
        """Register one more. Raises TunnelError when the server does not want it."""
        await self._change(target, self._running().state.add)

    async def remove_target(self, target: Target) -> None:
        """Let go of one. Raises TunnelError."""
        await self._change(target, self._running().state.remove)

    def stop(self) -> None:
        """End the Register stream; sessions live on."""
        if self._run is not None and self._run.call is not None:
            self._run.call.cancel()

    async def drained(self) -> None:
        """Wait until no session is open or being set up."""
        while self._sessions or self.streams:
            if self._sessions:
                await asyncio.wait(self._sessions)
            for stream in list(self.streams):
                await asyncio.wait((stream.over,))

    async def close(self) -> None:
        """End the Register stream and abort every session."""
        self.stop()
        for task in list(self._sessions):
            task.cancel()
        if self._sessions:
            await asyncio.wait(self._sessions)
        for stream in list(self.streams):
            stream.abort("the client is closed")

    # -- Register --------------------------------------------------------------------------------

    async def _register(self, run: _Run, targets: Iterable[Target], subscribe: Iterable[str]) -> None:
        try:
            call = run.call = self._open_register(metadata=self._greeting)
        except grpc.aio.UsageError:
            raise RegisterEnded("the channel is closed") from None
        writer = asyncio.create_task(_write(call, run), name="tunnel register")
        try:
            # Nothing is awaited first: servers send their headers with their first message.
            targets = tuple(targets)
            for target in targets:
                run.expect(target, None)
            self._do(run, run.state.start(targets, subscribe))
            while isinstance(raw := await call.read(), bytes):
                if not run.greeted:
                    run.greeted = True
                    run.half_close, run.token = metadata.read_answer(await call.initial_metadata() or ())
                self._do(run, run.state.receive(codec.decode(self._wire, raw), time.monotonic()))
                run.check()
        except grpc.aio.AioRpcError as error:
            raise RegisterEnded(error.details() or error.code().name) from None
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise RegisterEnded("it was stopped") from None
        finally:
            writer.cancel()
            call.cancel()
        raise RegisterEnded("the server ended it")

    def _running(self) -> _Run:
        if self._run is None:
            raise TunnelError("this client is not registered")
        return self._run

    async def _change(self, target: Target, change: Callable[[Target], list[Effect]]) -> None:
        run = self._running()
        effects = change(target)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        run.expect(target, waiter)
        self._do(run, effects)
        try:
            async with asyncio.timeout(self._limits.set_up_within):
                await waiter
        except TimeoutError:
            raise TunnelError(f"target {target}: the server did not answer in time") from None

    # -- effects ---------------------------------------------------------------------------------

    def _do(self, run: _Run, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                run.send(codec.encode(self._wire, effect.message))
            elif isinstance(effect, AskHandler):
                self._start(self._serve(run, effect), f"session to {effect.target}")
            elif isinstance(effect, OpenStream):
                self._start(self._call_back(run, effect), f"session to {effect.target}")
            elif isinstance(effect, Failed):
                run.fail(effect.tag, effect.error)
            elif isinstance(effect, (Registered, NotRegistered)):
                self._answered(run, effect)
            elif isinstance(effect, News):
                tell(self._on_news, effect.target, effect.op is Op.ADD)
            elif isinstance(effect, Subscribed) and effect.error:
                log.warning("subscription to %s refused: %s", effect.type or "all types", effect.error)
        self._set_timer(run)

    def _answered(self, run: _Run, effect: Registered | NotRegistered) -> None:
        waiter = run.answered(effect.target)
        if isinstance(effect, NotRegistered):
            log.warning("target %s refused: %s", effect.target, effect.error)
            run.refused[effect.target] = effect.error
        else:
            run.refused.pop(effect.target, None)
        if waiter is None or waiter.done():
            return
        if isinstance(effect, Registered):
            waiter.set_result(None)
        else:
            waiter.set_exception(TunnelError(effect.error))

    def _start(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)

    async def _serve(self, run: _Run, effect: AskHandler) -> None:
        """Serve a session that the server asks for."""
        taken, error = await self._take(effect.target)
        wanted = next((each for each in run.state.answer(effect.tag, error)), None)
        if isinstance(wanted, Send):
            self._do(run, [wanted])
        if not isinstance(wanted, OpenStream):
            if taken is not None:
                tell(taken.discard)
            return
        assert taken is not None, "without an error it was taken"
        try:
            stream = await self._open(run, wanted)
        except TunnelError as failure:
            tell(taken.discard)
            self._do(run, run.state.broke(effect.tag, effect.target, str(failure)))
            return
        except asyncio.CancelledError:
            tell(taken.discard)
            raise
        await _serve(taken, stream)

    async def _take(self, target: Target) -> tuple[Taken | None, str | None]:
        assert self._handler is not None, "without a handler nothing is asked"
        try:
            async with asyncio.timeout(self._limits.set_up_within):
                return await self._handler(target), None
        except TimeoutError:
            return None, "the handler did not answer in time"
        except TunnelError as refusal:
            return None, str(refusal)
        except Exception:  # a handler is a stranger's code: its fault must end its session and no more
            log.exception("the handler failed to take a session to %s", target)
            return None, "the handler failed"

    async def _call_back(self, run: _Run, effect: OpenStream) -> None:
        """Open the stream of a session that was asked for here."""
        try:
            stream = await self._open(run, effect)
        except TunnelError as failure:
            run.fail(effect.tag, str(failure))
            return
        waiter = run.waiters.get(effect.tag)
        if waiter is None or waiter.done():
            stream.abort("its caller is gone")
        else:
            waiter.set_result(stream)

    async def _open(self, run: _Run, effect: OpenStream) -> ClientStream:
        try:
            call = self._open_tunnel(metadata=metadata.of_stream(run.token))
        except grpc.aio.UsageError:
            raise TunnelError("the channel is closed") from None
        stream = ClientStream(call, effect.target, effect.tag, half_close=run.half_close)
        self.streams.add(stream)
        stream.over.add_done_callback(lambda _: self.streams.discard(stream))
        try:
            async with asyncio.timeout(self._limits.set_up_within):
                await stream.send(codec.first_message(effect.tag))
        except TimeoutError:
            stream.abort("it was not opened in time")
            raise TunnelError("the session's stream could not be opened in time") from None
        return stream

    def _set_timer(self, run: _Run) -> None:
        at = run.state.wake_at()
        if at is not None and run.timer is None:
            delay = max(at - time.monotonic(), 0) + 0.01
            run.timer = asyncio.get_running_loop().call_later(delay, self._expire, run)

    def _expire(self, run: _Run) -> None:
        run.timer = None
        self._do(run, run.state.expire(time.monotonic()))


class _Run:
    """One Register stream."""

    def __init__(self, wire: Wire, has_handler: bool, limits: Limits) -> None:
        self.state = ClientState(wire, has_handler=has_handler, limits=limits)
        self.call: Any = None
        self.outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self.waiters: dict[int, asyncio.Future[ClientStream]] = {}
        #: Changes of a target that the server did not answer yet, and who waits for each. It answers in their order.
        self.changes: dict[Target, deque[asyncio.Future[None] | None]] = {}
        self.refused: dict[Target, str] = {}
        self.connected = False
        self.up = asyncio.Event()
        self.greeted = False
        self.half_close = False
        self.token = ""
        self.timer: asyncio.TimerHandle | None = None

    def check(self) -> None:
        """Whether it is up now."""
        if self.connected and self.state.ready and not self.changes:
            self.up.set()

    def send(self, raw: bytes) -> None:
        """Say something; a server that does not listen is left."""
        if self.outgoing.qsize() < _MOST_UNREAD:
            self.outgoing.put_nowait(raw)
        else:
            log.warning("the tunnel's server does not read its Register stream: the tunnel is ended")
            self.call.cancel()

    def expect(self, target: Target, waiter: asyncio.Future[None] | None) -> None:
        """A change of a target is said: there will be an answer."""
        self.changes.setdefault(target, deque()).append(waiter)

    def answered(self, target: Target) -> asyncio.Future[None] | None:
        """The server answered the oldest change of a target: who waits for that."""
        changes = self.changes.get(target)
        if not changes:
            return None
        waiter = changes.popleft()
        if not changes:
            del self.changes[target]
        return waiter

    def fail(self, tag: int, error: str) -> None:
        """Tell who waits for a session."""
        waiter = self.waiters.get(tag)
        if waiter is not None and not waiter.done():
            waiter.set_exception(TunnelError(error))

    def finish(self) -> None:
        """It is over: nobody waits any longer."""
        why = "the tunnel went down"
        for effect in self.state.end(why):
            assert isinstance(effect, Failed)
            self.fail(effect.tag, effect.error)
        for waiters in self.changes.values():
            for waiter in waiters:
                if waiter is not None and not waiter.done():
                    waiter.set_exception(TunnelError(why))
        if self.timer is not None:
            self.timer.cancel()
        self.up.set()


async def _write(call: Any, run: _Run) -> None:
    # A broken stream is noticed by who reads.
    with contextlib.suppress(grpc.aio.BaseError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await call.wait_for_connection()
        run.connected = True
        run.check()
        while True:
            await call.write(await run.outgoing.get())


async def _serve(taken: Taken, stream: ClientStream) -> None:
    try:
        await taken.serve(stream)
    except TunnelError as error:
        why = str(error)
    except asyncio.CancelledError:
        stream.abort("this end was stopped")
        raise
    except Exception:  # a handler is a stranger's code: its fault must end its session and no more
        log.exception("the handler of a session to %s failed", stream.target)
        why = "the handler failed"
    else:
        await stream.close()
        return
    await stream.settle()
    stream.abort(why)
