"""A tunnel client: the I/O around `ClientState`, on any grpc.aio channel. Its lifetime is that of its Register stream.

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
    Effect,
    OpenStream,
    QueryRegisterHandler,
    SendToServer,
    SessionFailed,
    SubscriptionResponse,
    TargetAccepted,
    TargetChange,
    TargetRejected,
)
from fleet.protocol.tunnel.messages import Op, Session, Target, TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import Limits
from fleet.transport.tunnel import codec, metadata
from fleet.transport.tunnel.handlers import AcceptedSession, Handler, call_back
from fleet.transport.tunnel.register_stream import RegisterStream
from fleet.transport.tunnel.stream import ClientStream, TunnelStream, is_cancelled

log = logging.getLogger(__name__)


#: Both methods carry bytes; `codec` encodes and decodes them.
Calls = grpc.aio.StreamStreamMultiCallable[bytes, bytes]

#: Maximum seconds for the orderly end of a Register stream.
_FINISH_WITHIN = 5.0
#: Seconds within which a server ends a stream with a tag that it does not know.
_REFUSED_WITHIN = 0.25
_LEAVING_SENTENCE = (
    "the client is leaving this connection. Request the session again to use the next connection"
)


class RegisterEndedError(TunnelError):
    """The Register stream ended, or could not be opened; the message is the server's, gRPC's, or the client's own."""


class TunnelClient:
    """The client end of one tunnel. `run` may be called again after it ended."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        wire: WireVersion = WireVersion.V0_2,
        *,
        handler: Handler | None = None,
        name: str = "",
        generation: int = 0,
        limits: Limits | None = None,
        on_news: Callable[[Target, bool], None] | None = None,
    ) -> None:
        """Create a client that is not running.

        `handler` serves sessions that the server requests. `name` and an increasing `generation` let a server of
        Refloat recognise a client that reconnects. `on_news` is called with targets of other clients that are added
        (True) and removed, if `run` subscribes.
        """
        self._wire = wire
        self._handler = handler
        self._register_metadata = metadata.create_register_metadata(wire, name, generation)
        self._limits = limits or Limits()
        self._on_news = on_news
        self._channel = channel
        self._open_register: Calls = channel.stream_stream(codec.REGISTER)
        self._open_tunnel: Calls = channel.stream_stream(codec.TUNNEL)
        self._register_stream: RegisterStream | None = None
        #: Open sessions, of this Register stream and of earlier ones.
        self.streams: set[ClientStream] = set()
        self._sessions: set[asyncio.Task[None]] = set()

    @property
    def is_up(self) -> bool:
        """Return whether sessions can be requested."""
        return self._register_stream is not None and self._register_stream.up.is_set()

    async def run(self, targets: Iterable[Target] = (), subscribe: Iterable[str] = ()) -> None:
        """Register, and serve until the server ends the stream.

        Raises RegisterEndedError, and TunnelError if running.
        """
        if self._register_stream is not None:
            raise TunnelError("this client is already running")
        run = self._register_stream = RegisterStream(self._wire, self._handler is not None, self._limits)
        try:
            await self._register(run, targets, subscribe)
        finally:
            self._register_stream = None
            run.finish()
            run.end_event.set()

    @property
    def rejected_targets(self) -> dict[Target, str]:
        """Targets that the server refused, with the reasons."""
        return {} if self._register_stream is None else dict(self._register_stream.rejected_targets)

    @property
    def registered_targets(self) -> frozenset[Target]:
        """Targets that the server has accepted."""
        return (
            frozenset() if self._register_stream is None else self._register_stream.state.registered_targets
        )

    async def wait_until_up(self) -> None:
        """Wait until it is connected and the server has answered for every target, or the client has stopped."""
        while self._register_stream is not None and not self._register_stream.up.is_set():
            await self._register_stream.up.wait()

    async def open_session(self, target: Target) -> TunnelStream:
        """Request a session from the server. Raises TunnelError, after twice the set-up time at the latest."""
        run = self._require_stream()
        tag, effects = run.state.open(target, time.monotonic())
        waiter: asyncio.Future[ClientStream] = asyncio.get_running_loop().create_future()
        run.waiters[tag] = waiter
        self._do(run, effects)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().abort("the caller is gone")
            raise
        finally:
            del run.waiters[tag]
            run.state.abandon(tag)

    async def add_target(self, target: Target) -> None:
        """Register another target. Raises TunnelError if the server refuses it."""
        await self._change(target, self._require_stream().state.add)

    async def remove_target(self, target: Target) -> None:
        """Deregister a target. Raises TunnelError."""
        await self._change(target, self._require_stream().state.remove)

    def stop(self) -> None:
        """End the Register stream; open sessions continue."""
        if self._register_stream is not None and self._register_stream.call is not None:
            self._register_stream.call.cancel()

    async def finish(self) -> None:
        """End the Register stream after its pending messages; open sessions continue.

        Every request for a session gets an answer: a server that waits for a stream misses that Register ended.
        """
        run = self._register_stream
        if run is None or run.call is None:
            return
        run.is_leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FINISH_WITHIN):
                await run.wait_until_answered()
                await self._wait_for_refusals(run)
                run.outgoing_queue.end()
                await run.end_event.wait()
        self.stop()

    def on_goaway(self) -> None:
        """Record that the server is closing the connection: new streams would use another one.

        Other servers than Refloat's do not know the tags there, so their requests are refused from now on.
        """
        if self._register_stream is not None:
            self._register_stream.has_goaway = True

    async def wait_drained(self) -> None:
        """Wait until no session is open or being set up."""
        while self._sessions or self.streams:
            if self._sessions:
                await asyncio.wait(self._sessions)
            for stream in list(self.streams):
                await asyncio.wait((stream.over_future,))

    async def close(self) -> None:
        """End the Register stream and abort every session."""
        self.stop()
        await background.stop(self._sessions)
        for stream in list(self.streams):
            stream.abort("the client was closed")

    # -- Register --------------------------------------------------------------------------------

    async def _register(
        self, run: RegisterStream, targets: Iterable[Target], subscribe: Iterable[str]
    ) -> None:
        try:
            call = run.call = self._open_register(metadata=self._register_metadata)
        except grpc.aio.UsageError:
            raise RegisterEndedError("the channel is closed") from None
        writer = asyncio.create_task(run.write(), name="tunnel register")
        try:
            # No await before this: servers send their headers with their first message.
            targets = tuple(targets)
            for target in targets:
                run.add_waiter(target, None)
            self._do(run, run.state.start(targets, subscribe))
            while isinstance(raw := await call.read(), bytes):
                if not run.has_metadata:
                    run.has_metadata = True
                    run.half_close, run.token = metadata.read_response_metadata(
                        await call.initial_metadata() or ()
                    )
                self._do(run, run.state.receive(codec.decode(self._wire, raw), time.monotonic()))
                run.update_up()
        except grpc.aio.AioRpcError as error:
            raise RegisterEndedError(error.details() or error.code().name) from None
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise RegisterEndedError("the tunnel client was stopped") from None
        finally:
            writer.cancel()
            call.cancel()
        raise RegisterEndedError("the server ended the Register stream")

    def _require_stream(self) -> RegisterStream:
        if self._register_stream is None:
            raise TunnelError("this client is not registered")
        return self._register_stream

    async def _change(self, target: Target, change: Callable[[Target], list[Effect]]) -> None:
        run = self._require_stream()
        effects = change(target)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        run.add_waiter(target, waiter)
        self._do(run, effects)
        try:
            async with asyncio.timeout(self._limits.set_up_within):
                await waiter
        except TimeoutError:
            raise TunnelError(f"target {target}: the server did not answer in time") from None

    # -- effects ---------------------------------------------------------------------------------

    def _do(self, run: RegisterStream, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendToServer):
                run.send(codec.encode(self._wire, effect.message))
            elif isinstance(effect, QueryRegisterHandler):
                run.pending_tags.add(effect.tag)
                self._start(self._serve(run, effect), f"session to {effect.target}")
            elif isinstance(effect, OpenStream):
                self._start(self._call_back(run, effect), f"session to {effect.target}")
            elif isinstance(effect, SessionFailed):
                run.fail(effect.tag, effect.error)
            elif isinstance(effect, (TargetAccepted, TargetRejected)):
                self._on_target_response(run, effect)
            elif isinstance(effect, TargetChange):
                call_back(self._on_news, effect.target, effect.op is Op.ADD)
            elif isinstance(effect, SubscriptionResponse) and effect.error:
                log.warning("subscription to %s was refused: %s", effect.type or "all types", effect.error)
        self._set_timer(run)

    def _on_target_response(self, run: RegisterStream, effect: TargetAccepted | TargetRejected) -> None:
        waiter = run.pop_waiter(effect.target)
        if isinstance(effect, TargetRejected):
            if run.rejected_targets.get(effect.target) != effect.error:  # repeated refusals are logged once
                log.warning("target %s was refused: %s", effect.target, effect.error)
            run.rejected_targets[effect.target] = effect.error
        elif run.rejected_targets.pop(effect.target, None) is not None:
            log.info("target %s is registered now, after it was refused", effect.target)
        if waiter is None or waiter.done():
            return
        if isinstance(effect, TargetAccepted):
            waiter.set_result(None)
        else:
            waiter.set_exception(TunnelError(effect.error))

    def _start(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)

    async def _serve(self, run: RegisterStream, effect: QueryRegisterHandler) -> None:
        """Serve a session that the server requested."""
        session, error = (
            (None, _LEAVING_SENTENCE) if self._is_leaving(run) else await self._accept_session(effect.target)
        )
        if session is not None and self._is_leaving(run):  # the handler took time
            call_back(session.discard)
            session, error = None, _LEAVING_SENTENCE
        next_effect = next(
            (response_effect for response_effect in run.state.respond(effect.tag, error)), None
        )
        if isinstance(next_effect, SendToServer):
            self._do(run, [next_effect])
        if not isinstance(next_effect, OpenStream):
            run.on_session_set_up(effect.tag)
            if session is not None:
                call_back(session.discard)
            return
        assert session is not None, "without an error there is a session"
        try:
            stream = await self._open(run, next_effect)
        except TunnelError as failure:
            call_back(session.discard)
            self._do(run, run.state.on_stream_failed(effect.tag, effect.target, str(failure)))
            return
        except asyncio.CancelledError:
            call_back(session.discard)
            raise
        finally:
            run.on_session_set_up(effect.tag)
        stream.over_future.add_done_callback(lambda _: self._on_session_end(run, effect, stream))
        await _serve(session, stream)

    def _is_leaving(self, run: RegisterStream) -> bool:
        """Return whether a new stream would not reach the server that requested it."""
        if run.is_leaving or run.token:  # Refloat's servers find a stream by its token on any connection
            return run.is_leaving
        return run.has_goaway or self._channel.get_state() is not grpc.ChannelConnectivity.READY

    def _on_session_end(
        self, run: RegisterStream, effect: QueryRegisterHandler, stream: ClientStream
    ) -> None:
        """Process the end of a session that the server requested; report one that never reached the server."""
        if stream.is_unacknowledged and not stream.abort_reason and self._register_stream is run:
            task = asyncio.create_task(self._send_refusal(run, effect, stream), name="refused session")
            run.refusals.add(task)
            task.add_done_callback(run.refusals.discard)

    async def _send_refusal(
        self, run: RegisterStream, effect: QueryRegisterHandler, stream: ClientStream
    ) -> None:
        if reason := await stream.verdict():
            self._do(run, run.state.on_stream_failed(effect.tag, effect.target, reason))

    async def _wait_for_refusals(self, run: RegisterStream) -> None:
        """Wait until it is known whether recently opened streams reached the server."""
        young = [
            stream.over_future
            for stream in self.streams
            if stream.is_unacknowledged and stream.age < _REFUSED_WITHIN
        ]
        if young:
            await asyncio.wait(young, timeout=_REFUSED_WITHIN)
        if run.refusals:
            await asyncio.wait(set(run.refusals))

    async def _accept_session(self, target: Target) -> tuple[AcceptedSession | None, str | None]:
        assert self._handler is not None, "without a handler no session is requested"
        try:
            async with asyncio.timeout(self._limits.set_up_within):
                return await self._handler(target), None
        except TimeoutError:
            return None, "the handler did not answer in time"
        except TunnelError as refusal:
            return None, str(refusal)
        except Exception:  # a handler is foreign code: its error must end only its session
            log.exception("the handler failed on the request for a session to %s", target)
            return None, "the handler failed"

    async def _call_back(self, run: RegisterStream, effect: OpenStream) -> None:
        """Open the stream of a session that the local caller requested."""
        try:
            stream = await self._open(run, effect)
        except TunnelError as failure:
            run.fail(effect.tag, str(failure))
            return
        waiter = run.waiters.get(effect.tag)
        if waiter is None or waiter.done():
            stream.abort("the caller is gone")
        else:
            waiter.set_result(stream)

    async def _open(self, run: RegisterStream, effect: OpenStream) -> ClientStream:
        try:
            call = self._open_tunnel(metadata=metadata.stream_metadata(run.token))
        except grpc.aio.UsageError:
            raise TunnelError("the channel is closed") from None
        stream = ClientStream(call, effect.target, effect.tag, half_close=run.half_close)
        stream.on_fault = lambda reason: self._send_fault(run, effect, reason)
        self.streams.add(stream)
        stream.over_future.add_done_callback(lambda _: self.streams.discard(stream))
        try:
            async with asyncio.timeout(self._limits.set_up_within):
                await stream.send(codec.first_message(effect.tag))
        except TimeoutError:
            stream.abort("the session was not opened in time")
            raise TunnelError("the stream of the session could not be opened in time") from None
        return stream

    def _send_fault(self, run: RegisterStream, effect: OpenStream, reason: str) -> None:
        if self._register_stream is run:
            self._do(run, [SendToServer(Session(effect.tag, effect.target, error=reason))])

    def _set_timer(self, run: RegisterStream) -> None:
        at = run.state.wake_at()
        if at is not None and run.timer is None:
            delay = max(at - time.monotonic(), 0) + 0.01
            run.timer = asyncio.get_running_loop().call_later(delay, self._expire, run)

    def _expire(self, run: RegisterStream) -> None:
        run.timer = None
        self._do(run, run.state.expire(time.monotonic()))


async def _serve(session: AcceptedSession, stream: ClientStream) -> None:
    try:
        await session.serve(stream)
    except TunnelError as error:
        reason = str(error)
    except asyncio.CancelledError:
        stream.abort("the client was stopped")
        raise
    except Exception:  # a handler is foreign code: its error must end only its session
        log.exception("the handler failed in a session to %s", stream.target)
        reason = "the handler failed"
    else:
        await stream.close()
        return
    await stream.settle()
    stream.abort(reason)
