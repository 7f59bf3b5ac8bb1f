"""A tunnel server: the shell around `ServerState`, for any grpc.aio server.

tunnel = TunnelServer(Wire.V0_2)
serve_tunnels(grpc_server, tunnel)
...
stream = await tunnel.open_session(Target("router-7", "SSH"))
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import grpc
import grpc.aio

from fleet.protocol.tunnel.messages import Session, Target, TunnelError, Wire
from fleet.protocol.tunnel.server_state import (
    Appeared,
    AskHandler,
    Connection,
    Effect,
    Failed,
    Limits,
    Peer,
    Request,
    Send,
    ServerState,
    Vanished,
)
from fleet.transport.tunnel import codec, metadata
from fleet.transport.tunnel.handlers import Bridge, Handler, Taken, tell
from fleet.transport.tunnel.outgoing_queue import Outgoing
from fleet.transport.tunnel.stream import ServerStream, TunnelStream

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

#: A Tunnel stream must say its tag within this, seconds.
_TAG_WITHIN = 10.0
#: A client whose Register stream is to end may take so long to read what was said before that, seconds.
_SAID_WITHIN = 5.0


class _Registered:
    """The shell of one Register stream."""

    def __init__(self, connection: Connection, half_close: bool) -> None:
        self.connection = connection
        self.half_close = half_close
        self.token = secrets.token_urlsafe(16)
        self.outgoing = Outgoing()
        #: Sessions of the client that the handler took, until their streams come.
        self.taken: dict[int, Taken] = {}
        self.asking: dict[int, asyncio.Task[None]] = {}
        self.streams: set[ServerStream] = set()
        self.task = asyncio.current_task()
        self.why = ""
        self.ending: asyncio.TimerHandle | None = None

    def end(self, why: str) -> None:
        """Let the Register stream end after what is to be said, and soon."""
        self.why = self.why or why
        self.outgoing.end()
        if self.task is not None and self.ending is None:
            self.ending = asyncio.get_running_loop().call_later(_SAID_WITHIN, self.task.cancel)

    def send(self, raw: bytes) -> None:
        """Say something; a client that does not listen is ended."""
        if not self.outgoing.put(raw) and self.task is not None:
            log.warning("a client of tunnels does not read its Register stream: its call is ended")
            self.task.cancel()


class TunnelServer:
    """The server end of all tunnels of one version of the wire."""

    def __init__(
        self,
        wire: Wire = Wire.V0_2,
        *,
        handler: Handler | None = None,
        local: Iterable[Target] | None = None,
        bridge: bool = False,
        may_claim: Callable[[Peer, Target], bool] | None = None,
        is_silent: Callable[[Connection], bool] | None = None,
        limits: Limits | None = None,
        on_target: Callable[[Target, bool], None] | None = None,
        on_client: Callable[[Connection, bool], None] | None = None,
        on_capabilities: Callable[[Connection], None] | None = None,
    ) -> None:
        """Make one.

        `handler` serves sessions that clients ask for, of `local` targets or, without those, of any. `bridge` connects
        clients with each other's targets. `is_silent` knows whether a client let a keep-alive go by: come back it
        displaces itself then, whatever its clock says. `on_target` and `on_client` hear of those that come (True) and
        go, `on_capabilities` of each client of version 0.1 once it has sent its capabilities.
        """
        self.wire = wire
        self._limits = limits or Limits()
        self._state = ServerState(
            wire,
            has_handler=handler is not None,
            local=None if local is None else frozenset(local),
            bridge=bridge,
            may_claim=None if may_claim is None else _careful(may_claim),
            is_silent=is_silent,
            limits=self._limits,
        )
        self._handler = handler
        self._on_target = on_target
        self._on_client = on_client
        self._on_capabilities = on_capabilities
        self._registered: dict[Connection, _Registered] = {}
        self._tokens: dict[str, _Registered] = {}
        self._waiters: dict[Request, asyncio.Future[TunnelStream]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def targets(self) -> dict[Target, Peer]:
        """Registered targets and whose they are."""
        return {target: owner.peer for target, owner in self._state.targets().items()}

    def owner(self, target: Target) -> Connection | None:
        """The client that registered a target."""
        return self._state.owner(target)

    def end_client(self, connection: Connection, why: str) -> None:
        """End a client's Register stream; its open sessions live on. Nothing when it is gone."""
        registered = self._registered.get(connection)
        if registered is not None:
            registered.end(why)

    async def open_session(self, target: Target, *, to: Connection | None = None) -> TunnelStream:
        """Ask for a session to a target and return its stream. Raises TunnelError, in set-up time at the latest."""
        request, effects = self._state.open(target, time.monotonic(), to)
        waiter: asyncio.Future[TunnelStream] = asyncio.get_running_loop().create_future()
        self._waiters[request] = waiter
        self._do(effects)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().abort("its caller is gone")
            raise
        finally:
            del self._waiters[request]
            self._state.abandon(request)

    # -- Register --------------------------------------------------------------------------------

    async def register(self, context: Context, greeting: metadata.Greeting) -> None:
        """Serve a client's Register stream to its end."""
        try:
            connection, effects = self._state.connect(_key(context), greeting.peer(_identity(context)))
        except TunnelError as error:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
        registered = _Registered(connection, greeting.half_close)
        self._registered[connection] = registered
        self._tokens[registered.token] = registered
        self._do(effects)  # before anything is read: what answers must not come before it
        reader = asyncio.create_task(self._read(registered, context), name="tunnel register")
        reader.add_done_callback(lambda _: registered.end(""))  # however it ended, nobody listens any more
        tell(self._on_client, connection, True)
        try:
            await context.send_initial_metadata(metadata.answer(registered.token))
            while (raw := await registered.outgoing.get()) is not None:
                await context.write(raw)
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            log.debug("register stream broke: %s", error)
        finally:
            reader.cancel()
            self._leave(registered)
        if registered.why:
            with contextlib.suppress(grpc.aio.InternalError):  # nobody is there any more to be told
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, registered.why)

    async def _read(self, registered: _Registered, context: Context) -> None:
        try:
            while (raw := await context.read()) is not grpc.aio.EOF:
                message = codec.decode(self.wire, raw)
                is_first = self.wire is Wire.V0_1 and registered.connection.has_handler is None
                self._do(self._state.receive(registered.connection, message, time.monotonic()))
                if is_first:
                    tell(self._on_capabilities, registered.connection)
                _discard_unwanted(registered)
            registered.end("")
        except TunnelError as error:
            registered.end(str(error))
        except (grpc.aio.BaseError, asyncio.InvalidStateError):
            registered.end("the connection broke")
        except Exception:
            log.exception("reading a Register stream failed")
            registered.end("this server failed")

    def _leave(self, registered: _Registered) -> None:
        registered.task = None
        if registered.ending is not None:
            registered.ending.cancel()
        del self._registered[registered.connection]
        del self._tokens[registered.token]
        for task in registered.asking.values():
            task.cancel()
        for tag in list(registered.taken):
            _discard(registered, tag)
        self._do(self._state.disconnect(registered.connection))
        tell(self._on_client, registered.connection, False)

    # -- Tunnel ----------------------------------------------------------------------------------

    def find(self, context: Context) -> Connection | None:
        """The connection to which a Tunnel stream belongs."""
        token = metadata.token_of(context.invocation_metadata() or ())
        found = self._tokens.get(token) if token else None
        if found is None:
            return self._state.connection(_key(context))
        # On another connection it must be the same client by what its certificate proves, too.
        if found.connection.key == _key(context) or found.connection.peer.identity == _identity(context):
            return found.connection
        return None

    async def tunnel(self, connection: Connection, tag: int, context: Context) -> None:
        """Serve a client's Tunnel stream to its end."""
        registered = self._registered[connection]
        try:
            wanted = self._state.attach(connection, tag)
        except TunnelError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        target = wanted.target if isinstance(wanted, Request) else wanted
        taken = registered.taken.pop(tag, None)
        stream = ServerStream(context, target, tag, half_close=registered.half_close)
        stream.on_fault = lambda why: registered.send(
            codec.encode(self.wire, Session(tag, target, error=why))
        )
        registered.streams.add(stream)
        try:
            # By themselves: a write that is cut short would leave gRPC unable to send them, and with them the end.
            await context.send_initial_metadata(())
            if isinstance(wanted, Request):
                self._give(wanted, stream)
                await asyncio.wait((stream.over,))
            else:
                assert taken is not None, "it was taken before it was accepted"
                serving, taken = taken, None
                await _serve(serving, stream)
        finally:
            if isinstance(wanted, Request):
                self._fail(wanted, "the client went away")
            elif taken is not None:
                tell(taken.discard)
            stream.client_is_gone()
            registered.streams.discard(stream)
            self._state.detach(connection, tag)
        if stream.why:
            with contextlib.suppress(grpc.aio.InternalError):  # nobody is there any more to be told
                await context.abort(grpc.StatusCode.ABORTED, stream.why)

    def _give(self, request: Request, stream: ServerStream) -> None:
        waiter = self._waiters.get(request)
        if waiter is None or waiter.done():
            stream.abort("its caller is gone")
        else:
            waiter.set_result(stream)

    def _fail(self, request: Request, why: str) -> None:
        waiter = self._waiters.get(request)
        if waiter is not None and not waiter.done():
            waiter.set_exception(TunnelError(why))

    # -- effects ---------------------------------------------------------------------------------

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, AskHandler):
                self._ask(effect)
            elif isinstance(effect, Failed):
                self._fail(effect.request, effect.error)
            elif isinstance(effect, (Appeared, Vanished)):
                tell(self._on_target, effect.target, isinstance(effect, Appeared))
        self._set_timer()

    def _send(self, effect: Send) -> None:
        registered = self._registered.get(effect.to)
        if registered is not None:
            registered.send(codec.encode(self.wire, effect.message))

    def _ask(self, effect: AskHandler) -> None:
        registered = self._registered[effect.connection]
        task = asyncio.create_task(self._take(registered, effect), name=f"session to {effect.target}")
        registered.asking[effect.tag] = task
        task.add_done_callback(lambda _: _forget_asking(registered, effect.tag, task))

    async def _take(self, registered: _Registered, effect: AskHandler) -> None:
        ask = self._bridge if effect.bridge else self._handler
        assert ask is not None, "without a handler only bridges are asked for"
        error = None
        try:
            async with asyncio.timeout(self._limits.set_up_within):
                registered.taken[effect.tag] = await ask(effect.target)
        except TimeoutError:
            error = "the handler did not answer in time"
        except TunnelError as refusal:
            error = str(refusal)
        except Exception:  # a handler is a stranger's code: its fault must end its session and no more
            log.exception("the handler failed to take a session to %s", effect.target)
            error = "the handler failed"
        effects = self._state.answer(effect.connection, effect.tag, error)
        if not effects:
            _discard(registered, effect.tag)  # it came too late
        self._do(effects)

    async def _bridge(self, target: Target) -> Taken:
        return Bridge(await self.open_session(target))

    def _set_timer(self) -> None:
        at = self._state.wake_at()
        if at is not None and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(at - time.monotonic(), 0) + 0.01, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._do(self._state.expire(time.monotonic()))
        for registered in self._registered.values():
            _discard_unwanted(registered)


def _discard_unwanted(registered: _Registered) -> None:
    """Let go of what was taken, or is being taken, for sessions that are no longer set up."""
    for tag in registered.taken.keys() - registered.connection.asking.keys():
        _discard(registered, tag)
    # Else a client that withdraws what it asked for, again and again, would have any number of them under way.
    for tag in registered.asking.keys() - registered.connection.asking.keys():
        registered.asking.pop(tag).cancel()


def _forget_asking(registered: _Registered, tag: int, task: asyncio.Task[None]) -> None:
    if registered.asking.get(tag) is task:  # the client may use the tag of a session that it withdrew again
        del registered.asking[tag]


def _discard(registered: _Registered, tag: int) -> None:
    if (taken := registered.taken.pop(tag, None)) is not None:
        tell(taken.discard)


def _careful(may_claim: Callable[[Peer, Target], bool]) -> Callable[[Peer, Target], bool]:
    """A rule that fails allows nothing."""

    def rule(peer: Peer, target: Target) -> bool:
        try:
            return may_claim(peer, target)
        except Exception:
            log.exception("the rule of who may claim %s failed", target)
            return False

    return rule


async def _serve(taken: Taken, stream: ServerStream) -> None:
    try:
        await taken.serve(stream)
    except TunnelError as error:
        stream.abort(str(error))
    except Exception:  # a handler is a stranger's code: its fault must end its session and no more
        log.exception("the handler of a session to %s failed", stream.target)
        stream.abort("the handler failed")
    else:
        await stream.close()


def serve_tunnels(server: grpc.aio.Server, default: TunnelServer, *others: TunnelServer) -> None:
    """Let a server serve tunnels: `default` for clients that do not say which version they speak."""
    by_wire = {tunnel.wire: tunnel for tunnel in (default, *others)}

    async def register(_: object, context: Context) -> None:
        try:
            greeting = metadata.read_greeting(context.invocation_metadata() or ())
        except TunnelError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        tunnel = by_wire.get(greeting.wire or default.wire)
        if tunnel is None:
            known = " and ".join(sorted(wire.value for wire in by_wire))
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"this listener speaks version {known} only"
            )
        await tunnel.register(context, greeting)

    async def tunnel(_: object, context: Context) -> None:
        try:
            async with asyncio.timeout(_TAG_WITHIN):
                raw = await context.read()
            tag = codec.tag_of(b"" if raw is grpc.aio.EOF else raw)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no tag came")
        except TunnelError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        for owner in by_wire.values():
            connection = owner.find(context)
            if connection is not None:
                await owner.tunnel(connection, tag, context)
                return
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"no Register stream on this connection, so tag {tag} names nothing: open both on one connection",
        )

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Register": grpc.stream_stream_rpc_method_handler(register),
        "Tunnel": grpc.stream_stream_rpc_method_handler(tunnel),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(codec.SERVICE, handlers),))


def _key(context: Context) -> Hashable:
    # host:port of the client's end: the same for all streams of one TCP connection, and of no other.
    return context.peer()


def _identity(context: Context) -> tuple[str, ...]:
    """What the client's certificate proves: its common name and its alternative names."""
    proven = context.auth_context()
    names = [*proven.get("x509_common_name", ()), *proven.get("x509_subject_alternative_name", ())]
    return tuple(dict.fromkeys(name.decode(errors="replace") for name in names))
