"""A tunnel client: the shell around `ClientState`, on any grpc.aio channel. It lives as long as its Register stream.

client = TunnelClient(channel, handler=serve_ssh)
await client.run([Target("router-7", "SSH")])
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import grpc
import grpc.aio

from fleet.processes import background
from fleet.protocol.tunnel.client_state import (
    AskHandler,
    Effect,
    Failed,
    News,
    NotRegistered,
    OpenStream,
    Registered,
    Send,
    Subscribed,
)
from fleet.protocol.tunnel.messages import Op, Session, Target, TunnelError, Wire
from fleet.protocol.tunnel.server_state import Limits
from fleet.transport.tunnel import codec, metadata
from fleet.transport.tunnel.handlers import Handler, Taken, tell
from fleet.transport.tunnel.register_stream import RegisterStream
from fleet.transport.tunnel.stream import ClientStream, TunnelStream, is_cancelled

log = logging.getLogger(__name__)


#: Both methods carry bytes: `codec` reads and writes them.
Calls = grpc.aio.StreamStreamMultiCallable[bytes, bytes]

#: A Register stream that is left may take so long to end in an orderly way, seconds.
_FINISH_WITHIN = 5.0
#: A server that does not know the tag of a stream ends it within this, seconds.
_REFUSED_WITHIN = 0.25
_LEFT = "this connection is being left: ask again, and the next one is asked"


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
        self._channel = channel
        self._open_register: Calls = channel.stream_stream(codec.REGISTER)
        self._open_tunnel: Calls = channel.stream_stream(codec.TUNNEL)
        self._run: RegisterStream | None = None
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
        run = self._run = RegisterStream(self._wire, self._handler is not None, self._limits)
        try:
            await self._register(run, targets, subscribe)
        finally:
            self._run = None
            run.finish()
            run.ended.set()

    @property
    def refused(self) -> dict[Target, str]:
        """Targets that the server does not want, and why."""
        return {} if self._run is None else dict(self._run.refused)

    @property
    def registered(self) -> frozenset[Target]:
        """Targets that the server has taken."""
        return frozenset() if self._run is None else self._run.state.registered

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

    async def finish(self) -> None:
        """End the Register stream after what is to be said on it; sessions live on.

        Whoever asked for a session is answered: a server that waits for a stream does not look whether Register ended.
        """
        run = self._run
        if run is None or run.call is None:
            return
        run.is_leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FINISH_WITHIN):
                await run.wait_until_answered()
                await self._wait_for_refusals(run)
                run.outgoing.end()
                await run.ended.wait()
        self.stop()

    def leave_connection(self) -> None:
        """Take note that the server lets go of the connection: new streams would ride another one.

        A server that is none of ours knows no tag there, so what it asks for from now on is refused at once.
        """
        if self._run is not None:
            self._run.is_let_go = True

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
        await background.stop(self._sessions)
        for stream in list(self.streams):
            stream.abort("the client is closed")

    # -- Register --------------------------------------------------------------------------------

    async def _register(
        self, run: RegisterStream, targets: Iterable[Target], subscribe: Iterable[str]
    ) -> None:
        try:
            call = run.call = self._open_register(metadata=self._greeting)
        except grpc.aio.UsageError:
            raise RegisterEnded("the channel is closed") from None
        writer = asyncio.create_task(run.write(), name="tunnel register")
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

    def _running(self) -> RegisterStream:
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

    def _do(self, run: RegisterStream, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                run.send(codec.encode(self._wire, effect.message))
            elif isinstance(effect, AskHandler):
                run.pending_tags.add(effect.tag)
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

    def _answered(self, run: RegisterStream, effect: Registered | NotRegistered) -> None:
        waiter = run.answered(effect.target)
        if isinstance(effect, NotRegistered):
            if run.refused.get(effect.target) != effect.error:  # it may be tried again and again
                log.warning("target %s refused: %s", effect.target, effect.error)
            run.refused[effect.target] = effect.error
        elif run.refused.pop(effect.target, None) is not None:
            log.info("target %s registered after it was refused", effect.target)
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

    async def _serve(self, run: RegisterStream, effect: AskHandler) -> None:
        """Serve a session that the server asks for."""
        taken, error = (None, _LEFT) if self._is_left(run) else await self._take(effect.target)
        if taken is not None and self._is_left(run):  # while the handler was asked
            tell(taken.discard)
            taken, error = None, _LEFT
        wanted = next((each for each in run.state.answer(effect.tag, error)), None)
        if isinstance(wanted, Send):
            self._do(run, [wanted])
        if not isinstance(wanted, OpenStream):
            run.set_up(effect.tag)
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
        finally:
            run.set_up(effect.tag)
        stream.over.add_done_callback(lambda _: self._ended(run, effect, stream))
        await _serve(taken, stream)

    def _is_left(self, run: RegisterStream) -> bool:
        """Whether a stream that is opened now would not reach the server that asks for it."""
        if run.is_leaving or run.token:  # servers of ours find a stream by the token, on whichever connection
            return run.is_leaving
        return run.is_let_go or self._channel.get_state() is not grpc.ChannelConnectivity.READY

    def _ended(self, run: RegisterStream, effect: AskHandler, stream: ClientStream) -> None:
        """A session is over that the server asked for; one that it never heard of, it still waits for."""
        if stream.is_unheard and not stream.why and self._run is run:
            task = asyncio.create_task(self._tell_refusal(run, effect, stream), name="refused session")
            run.refusals.add(task)
            task.add_done_callback(run.refusals.discard)

    async def _tell_refusal(self, run: RegisterStream, effect: AskHandler, stream: ClientStream) -> None:
        if why := await stream.verdict():
            self._do(run, run.state.broke(effect.tag, effect.target, why))

    async def _wait_for_refusals(self, run: RegisterStream) -> None:
        """Wait until streams that were opened a moment ago are known to have reached the server, or not."""
        young = [stream.over for stream in self.streams if stream.is_unheard and stream.age < _REFUSED_WITHIN]
        if young:
            await asyncio.wait(young, timeout=_REFUSED_WITHIN)
        if run.refusals:
            await asyncio.wait(set(run.refusals))

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

    async def _call_back(self, run: RegisterStream, effect: OpenStream) -> None:
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

    async def _open(self, run: RegisterStream, effect: OpenStream) -> ClientStream:
        try:
            call = self._open_tunnel(metadata=metadata.of_stream(run.token))
        except grpc.aio.UsageError:
            raise TunnelError("the channel is closed") from None
        stream = ClientStream(call, effect.target, effect.tag, half_close=run.half_close)
        stream.on_fault = lambda why: self._tell_fault(run, effect, why)
        self.streams.add(stream)
        stream.over.add_done_callback(lambda _: self.streams.discard(stream))
        try:
            async with asyncio.timeout(self._limits.set_up_within):
                await stream.send(codec.first_message(effect.tag))
        except TimeoutError:
            stream.abort("it was not opened in time")
            raise TunnelError("the session's stream could not be opened in time") from None
        return stream

    def _tell_fault(self, run: RegisterStream, effect: OpenStream, why: str) -> None:
        if self._run is run:
            self._do(run, [Send(Session(effect.tag, effect.target, error=why))])

    def _set_timer(self, run: RegisterStream) -> None:
        at = run.state.wake_at()
        if at is not None and run.timer is None:
            delay = max(at - time.monotonic(), 0) + 0.01
            run.timer = asyncio.get_running_loop().call_later(delay, self._expire, run)

    def _expire(self, run: RegisterStream) -> None:
        run.timer = None
        self._do(run, run.state.expire(time.monotonic()))


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
