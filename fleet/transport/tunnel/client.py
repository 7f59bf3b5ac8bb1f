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
from fleet.transport.tunnel.call_status import CallStatus
from fleet.transport.tunnel.handlers import AcceptedSession, SessionHandler, call_back
from fleet.transport.tunnel.register_stream import RegisterStream
from fleet.transport.tunnel.stream import ClientStream, TunnelStream, is_being_cancelled

log = logging.getLogger(__name__)


#: Both methods carry bytes; `codec` encodes and decodes them.
BytesMethod = grpc.aio.StreamStreamMultiCallable[bytes, bytes]

#: Maximum seconds for the orderly end of a Register stream.
_FINISH_WITHIN = 5.0
#: Seconds within which a server ends a stream with a tag that it does not know.
_REFUSED_WITHIN = 0.25
_LEAVING_REASON = (
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
        handler: SessionHandler | None = None,
        name: str = "",
        generation: int = 0,
        limits: Limits | None = None,
        on_target_change: Callable[[Target, bool], None] | None = None,
    ) -> None:
        """Create a client that is not running.

        `handler` serves sessions that the server requests. `name` and an increasing `generation` let a server of
        Refloat recognise a client that reconnects. `on_target_change` is called with targets of other clients that are
        added (True) and removed, if `run` subscribes.
        """
        self._wire = wire
        self._handler = handler
        self._register_metadata = metadata.create_register_metadata(wire, name, generation)
        self._limits = limits or Limits()
        self._on_target_change = on_target_change
        self._channel = channel
        self._open_register: BytesMethod = channel.stream_stream(codec.REGISTER_METHOD)
        self._open_tunnel: BytesMethod = channel.stream_stream(codec.TUNNEL_METHOD)
        self._register_stream: RegisterStream | None = None
        #: Open sessions, of this Register stream and of earlier ones.
        self.streams: set[ClientStream] = set()
        self._session_tasks: set[asyncio.Task[None]] = set()

    @property
    def is_up(self) -> bool:
        """Return whether sessions can be requested."""
        return self._register_stream is not None and self._register_stream.up_event.is_set()

    async def run(self, targets: Iterable[Target] = (), subscribed_types: Iterable[str] = ()) -> None:
        """Register, and serve until the server ends the stream.

        Raises RegisterEndedError, and TunnelError if running.
        """
        if self._register_stream is not None:
            raise TunnelError("this client is already running")
        register_stream = self._register_stream = RegisterStream(
            self._wire, self._handler is not None, self._limits
        )
        try:
            await self._register(register_stream, targets, subscribed_types)
        finally:
            self._register_stream = None
            register_stream.fail_waiters()
            register_stream.end_event.set()

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
        while self._register_stream is not None and not self._register_stream.up_event.is_set():
            await self._register_stream.up_event.wait()

    async def open_session(self, target: Target) -> TunnelStream:
        """Request a session from the server. Raises TunnelError, after twice the set-up time at the latest."""
        register_stream = self._require_stream()
        tag, effects = register_stream.state.request_session(target, time.monotonic())
        waiter: asyncio.Future[ClientStream] = asyncio.get_running_loop().create_future()
        register_stream.session_waiters[tag] = waiter
        self._apply_effects(register_stream, effects)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().abort("the caller is gone")
            raise
        finally:
            del register_stream.session_waiters[tag]
            register_stream.state.abandon(tag)

    async def add_target(self, target: Target) -> None:
        """Register another target. Raises TunnelError if the server refuses it."""
        await self._change_target(target, self._require_stream().state.add)

    async def remove_target(self, target: Target) -> None:
        """Deregister a target. Raises TunnelError."""
        await self._change_target(target, self._require_stream().state.remove)

    def stop(self) -> None:
        """End the Register stream; open sessions continue."""
        if self._register_stream is not None and self._register_stream.call is not None:
            self._register_stream.call.cancel()

    async def finish(self) -> None:
        """End the Register stream after its pending messages; open sessions continue.

        Every request for a session gets an answer: a server that waits for a stream misses that Register ended.
        """
        register_stream = self._register_stream
        if register_stream is None or register_stream.call is None:
            return
        register_stream.is_leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FINISH_WITHIN):
                await register_stream.wait_until_answered()
                await self._wait_for_refusals(register_stream)
                register_stream.outgoing_queue.end()
                await register_stream.end_event.wait()
        self.stop()

    def on_goaway(self) -> None:
        """Record that the server is closing the connection: new streams would use another one.

        Other servers than Refloat's do not know the tags there, so their requests are refused from now on.
        """
        if self._register_stream is not None:
            self._register_stream.has_goaway = True

    async def wait_drained(self) -> None:
        """Wait until no session is open or being set up."""
        while self._session_tasks or self.streams:
            if self._session_tasks:
                await asyncio.wait(self._session_tasks)
            for stream in list(self.streams):
                await asyncio.wait((stream.call_over_future,))

    async def close(self) -> None:
        """End the Register stream and abort every session."""
        self.stop()
        await background.stop(self._session_tasks)
        for stream in list(self.streams):
            stream.abort("the client was closed")

    # -- Register --------------------------------------------------------------------------------

    async def _register(
        self, register_stream: RegisterStream, targets: Iterable[Target], subscribed_types: Iterable[str]
    ) -> None:
        try:
            call = register_stream.call = self._open_register(metadata=self._register_metadata)
        except grpc.aio.UsageError:
            raise RegisterEndedError("the channel is closed") from None
        status = CallStatus(call)
        writer = asyncio.create_task(register_stream.write_queued(), name="tunnel register")
        try:
            # No await before this: servers send their headers with their first message.
            targets = tuple(targets)
            for target in targets:
                register_stream.add_change_waiter(target, None)
            self._apply_effects(register_stream, register_stream.state.start(targets, subscribed_types))
            while isinstance(raw := await call.read(), bytes):
                if not register_stream.has_metadata:
                    register_stream.has_metadata = True
                    register_stream.can_half_close, register_stream.token = metadata.read_response_metadata(
                        await call.initial_metadata() or ()
                    )
                self._apply_effects(
                    register_stream,
                    register_stream.state.receive(codec.decode(self._wire, raw), time.monotonic()),
                )
                register_stream.update_up()
        except grpc.aio.AioRpcError as error:
            raise RegisterEndedError(status.describe(error)) from None
        except asyncio.CancelledError:
            if is_being_cancelled():
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

    async def _change_target(self, target: Target, change: Callable[[Target], list[Effect]]) -> None:
        register_stream = self._require_stream()
        effects = change(target)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        register_stream.add_change_waiter(target, waiter)
        self._apply_effects(register_stream, effects)
        try:
            async with asyncio.timeout(self._limits.set_up_timeout):
                await waiter
        except TimeoutError:
            raise TunnelError(f"target {target}: the server did not answer in time") from None

    # -- effects ---------------------------------------------------------------------------------

    def _apply_effects(self, register_stream: RegisterStream, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendToServer):
                register_stream.send(codec.encode(self._wire, effect.message))
            elif isinstance(effect, QueryRegisterHandler):
                register_stream.pending_tags.add(effect.tag)
                self._start_session_task(self._serve(register_stream, effect), f"session to {effect.target}")
            elif isinstance(effect, OpenStream):
                self._start_session_task(
                    self._open_for_caller(register_stream, effect), f"session to {effect.target}"
                )
            elif isinstance(effect, SessionFailed):
                register_stream.fail_session(effect.tag, effect.error)
            elif isinstance(effect, (TargetAccepted, TargetRejected)):
                self._on_target_response(register_stream, effect)
            elif isinstance(effect, TargetChange):
                call_back(self._on_target_change, effect.target, effect.op is Op.ADD)
            elif isinstance(effect, SubscriptionResponse) and effect.error:
                log.warning("subscription to %s was refused: %s", effect.type or "all types", effect.error)
        self._set_timer(register_stream)

    def _on_target_response(
        self, register_stream: RegisterStream, effect: TargetAccepted | TargetRejected
    ) -> None:
        waiter = register_stream.pop_change_waiter(effect.target)
        if isinstance(effect, TargetRejected):
            # Repeated refusals are logged once.
            if register_stream.rejected_targets.get(effect.target) != effect.error:
                log.warning("target %s was refused: %s", effect.target, effect.error)
            register_stream.rejected_targets[effect.target] = effect.error
        elif register_stream.rejected_targets.pop(effect.target, None) is not None:
            log.info("target %s is registered now, after it was refused", effect.target)
        if waiter is None or waiter.done():
            return
        if isinstance(effect, TargetAccepted):
            waiter.set_result(None)
        else:
            waiter.set_exception(TunnelError(effect.error))

    def _start_session_task(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._session_tasks.add(task)
        task.add_done_callback(self._session_tasks.discard)

    async def _serve(self, register_stream: RegisterStream, effect: QueryRegisterHandler) -> None:
        """Serve a session that the server requested."""
        session, error = (
            (None, _LEAVING_REASON)
            if self._is_leaving(register_stream)
            else await self._accept_session(effect.target)
        )
        if session is not None and self._is_leaving(register_stream):  # the handler took time
            call_back(session.discard)
            session, error = None, _LEAVING_REASON
        response_effect = next(iter(register_stream.state.respond(effect.tag, error)), None)
        if isinstance(response_effect, SendToServer):
            self._apply_effects(register_stream, [response_effect])
        if not isinstance(response_effect, OpenStream):
            register_stream.on_session_set_up(effect.tag)
            if session is not None:
                call_back(session.discard)
            return
        assert session is not None, "without an error there is a session"
        try:
            stream = await self._open(register_stream, response_effect)
        except TunnelError as failure:
            call_back(session.discard)
            self._apply_effects(
                register_stream,
                register_stream.state.on_stream_failed(effect.tag, effect.target, str(failure)),
            )
            return
        except asyncio.CancelledError:
            call_back(session.discard)
            raise
        finally:
            register_stream.on_session_set_up(effect.tag)
        stream.call_over_future.add_done_callback(
            lambda _: self._on_session_end(register_stream, effect, stream)
        )
        await _serve(session, stream)

    def _is_leaving(self, register_stream: RegisterStream) -> bool:
        """Return whether a new stream would not reach the server that requested it."""
        # Refloat's servers find a stream by its token on any connection.
        if register_stream.is_leaving or register_stream.token:
            return register_stream.is_leaving
        return register_stream.has_goaway or self._channel.get_state() is not grpc.ChannelConnectivity.READY

    def _on_session_end(
        self, register_stream: RegisterStream, effect: QueryRegisterHandler, stream: ClientStream
    ) -> None:
        """Process the end of a session that the server requested; report one that never reached the server."""
        if stream.is_unacknowledged and not stream.abort_reason and self._register_stream is register_stream:
            task = asyncio.create_task(
                self._send_refusal(register_stream, effect, stream), name="refused session"
            )
            register_stream.refusal_tasks.add(task)
            task.add_done_callback(register_stream.refusal_tasks.discard)

    async def _send_refusal(
        self, register_stream: RegisterStream, effect: QueryRegisterHandler, stream: ClientStream
    ) -> None:
        if reason := await stream.failure_reason():
            self._apply_effects(
                register_stream, register_stream.state.on_stream_failed(effect.tag, effect.target, reason)
            )

    async def _wait_for_refusals(self, register_stream: RegisterStream) -> None:
        """Wait until it is known whether recently opened streams reached the server."""
        recent_futures = [
            stream.call_over_future
            for stream in self.streams
            if stream.is_unacknowledged and stream.age_seconds < _REFUSED_WITHIN
        ]
        if recent_futures:
            await asyncio.wait(recent_futures, timeout=_REFUSED_WITHIN)
        if register_stream.refusal_tasks:
            await asyncio.wait(set(register_stream.refusal_tasks))

    async def _accept_session(self, target: Target) -> tuple[AcceptedSession | None, str | None]:
        assert self._handler is not None, "without a handler no session is requested"
        try:
            async with asyncio.timeout(self._limits.set_up_timeout):
                return await self._handler(target), None
        except TimeoutError:
            return None, "the handler did not answer in time"
        except TunnelError as refusal:
            return None, str(refusal)
        except Exception:  # a handler is foreign code: its error must end only its session
            log.exception("the handler failed on the request for a session to %s", target)
            return None, "the handler failed"

    async def _open_for_caller(self, register_stream: RegisterStream, effect: OpenStream) -> None:
        """Open the stream of a session that the local caller requested."""
        try:
            stream = await self._open(register_stream, effect)
        except TunnelError as failure:
            register_stream.fail_session(effect.tag, str(failure))
            return
        waiter = register_stream.session_waiters.get(effect.tag)
        if waiter is None or waiter.done():
            stream.abort("the caller is gone")
        else:
            waiter.set_result(stream)

    async def _open(self, register_stream: RegisterStream, effect: OpenStream) -> ClientStream:
        try:
            call = self._open_tunnel(metadata=metadata.create_stream_metadata(register_stream.token))
        except grpc.aio.UsageError:
            raise TunnelError("the channel is closed") from None
        stream = ClientStream(call, effect.target, effect.tag, can_half_close=register_stream.can_half_close)
        stream.on_fault = lambda reason: self._send_fault(register_stream, effect, reason)
        self.streams.add(stream)
        stream.call_over_future.add_done_callback(lambda _: self.streams.discard(stream))
        try:
            async with asyncio.timeout(self._limits.set_up_timeout):
                await stream.send(codec.first_message(effect.tag))
        except TimeoutError:
            stream.abort("the session was not opened in time")
            raise TunnelError("the stream of the session could not be opened in time") from None
        return stream

    def _send_fault(self, register_stream: RegisterStream, effect: OpenStream, reason: str) -> None:
        if self._register_stream is register_stream:
            self._apply_effects(
                register_stream, [SendToServer(Session(effect.tag, effect.target, error=reason))]
            )

    def _set_timer(self, register_stream: RegisterStream) -> None:
        at = register_stream.state.wake_at()
        if at is not None and register_stream.timer is None:
            delay = max(at - time.monotonic(), 0) + 0.01
            register_stream.timer = asyncio.get_running_loop().call_later(
                delay, self._expire, register_stream
            )

    def _expire(self, register_stream: RegisterStream) -> None:
        register_stream.timer = None
        self._apply_effects(register_stream, register_stream.state.expire(time.monotonic()))


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
    await stream.ensure_tag_sent()
    stream.abort(reason)
