"""A tunnel server: the I/O around `ServerState`, for any grpc.aio server.

tunnel = TunnelServer(WireVersion.V0_2)
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
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import grpc
import grpc.aio

from fleet.protocol.tunnel.messages import Session, Target, TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import (
    ClientConnection,
    Effect,
    Limits,
    OutgoingRequest,
    Peer,
    QuerySessionHandler,
    RequestFailed,
    SendToClient,
    ServerState,
    TargetAdded,
    TargetRemoved,
)
from fleet.transport.tunnel import codec, metadata
from fleet.transport.tunnel.handlers import AcceptedSession, BridgeSession, SessionHandler, call_back
from fleet.transport.tunnel.outgoing_queue import OutgoingQueue
from fleet.transport.tunnel.stream import ServerStream, TunnelStream

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

#: Seconds within which a Tunnel stream must send its tag.
_TAG_WITHIN = 10.0
#: Seconds in which a client can read the pending messages of a Register stream that is ending.
_FINISH_WITHIN = 5.0


class _Client:
    """State and I/O of one Register stream."""

    def __init__(self, connection: ClientConnection, can_half_close: bool) -> None:
        self.connection = connection
        self.can_half_close = can_half_close
        self.token = secrets.token_urlsafe(16)
        self.outgoing_queue = OutgoingQueue()
        #: Sessions of the client that the handler accepted, until their streams open.
        self.accepted_sessions: dict[int, AcceptedSession] = {}
        self.handler_tasks: dict[int, asyncio.Task[None]] = {}
        self.streams: set[ServerStream] = set()
        self.register_task = asyncio.current_task()
        self.is_ending = False
        self.end_reason = ""
        self.end_timer: asyncio.TimerHandle | None = None

    def end(self, reason: str) -> None:
        """End the Register stream after its pending messages, within a few seconds; ignore later requests."""
        self.is_ending = True
        self.end_reason = self.end_reason or reason
        self.outgoing_queue.end()
        if self.register_task is not None and self.end_timer is None:
            self.end_timer = asyncio.get_running_loop().call_later(_FINISH_WITHIN, self.register_task.cancel)

    def send(self, raw: bytes) -> None:
        """Queue a message; end the call of a client that does not read."""
        if not self.outgoing_queue.put(raw) and self.register_task is not None:
            log.warning("a tunnel client does not read its Register stream: ending its call")
            self.register_task.cancel()


class TunnelServer:
    """The server end of all tunnels of one wire version."""

    def __init__(
        self,
        wire: WireVersion = WireVersion.V0_2,
        *,
        handler: SessionHandler | None = None,
        local: Iterable[Target] | None = None,
        bridge: bool = False,
        may_claim: Callable[[Peer, Target], bool] | None = None,
        is_silent: Callable[[ClientConnection], bool] | None = None,
        limits: Limits | None = None,
        on_target: Callable[[Target, bool], None] | None = None,
        on_client: Callable[[ClientConnection, bool], None] | None = None,
        on_capabilities: Callable[[ClientConnection], None] | None = None,
    ) -> None:
        """Create a server.

        `handler` serves sessions that clients request, to `local` targets or, without those, to any. `bridge` connects
        clients to each other's targets. `is_silent` returns whether a client missed a keep-alive: after a reconnect it
        then replaces itself, whatever its clock says. `on_target` and `on_client` are called for those that come (True)
        and go, `on_capabilities` for each client of version 0.1 once it has sent its capabilities.
        """
        self.wire = wire
        self._limits = limits or Limits()
        self._state = ServerState(
            wire,
            has_handler=handler is not None,
            local=None if local is None else frozenset(local),
            bridge=bridge,
            may_claim=None if may_claim is None else _deny_on_error(may_claim),
            is_silent=is_silent,
            limits=self._limits,
        )
        self._handler = handler
        self._on_target = on_target
        self._on_client = on_client
        self._on_capabilities = on_capabilities
        self._clients: dict[ClientConnection, _Client] = {}
        self._clients_by_token: dict[str, _Client] = {}
        self._waiters: dict[OutgoingRequest, asyncio.Future[TunnelStream]] = {}
        #: Open streams of all clients, also of those whose Register stream has ended.
        self._streams: set[ServerStream] = set()
        self._timer: asyncio.TimerHandle | None = None

    def targets(self) -> dict[Target, Peer]:
        """Return the registered targets with their owners."""
        return {target: owner.peer for target, owner in self._state.targets().items()}

    def session_counts(self) -> dict[Target, int]:
        """Return the number of open sessions by target. A session between two clients counts once."""
        owners = self._state.targets()
        return dict(
            Counter(
                # Negative tags: the client dialled. Of a bridged session only the stream of the owner counts.
                stream.target
                for stream in self._streams
                if stream.tag > 0 or stream.target not in owners
            )
        )

    @property
    def client_count(self) -> int:
        """Number of clients with a Register stream."""
        return len(self._clients)

    def owner(self, target: Target) -> ClientConnection | None:
        """Return the connection of the client that registered a target; None without one."""
        return self._state.owner_of(target)

    def end_client(self, connection: ClientConnection, reason: str) -> None:
        """End a client's Register stream; its open sessions continue. Does nothing if the client is gone."""
        client = self._clients.get(connection)
        if client is not None:
            client.end(reason)

    async def open_session(self, target: Target, *, to: ClientConnection | None = None) -> TunnelStream:
        """Open a session to a target and return its stream. Raises TunnelError, at the latest after the set-up time."""
        request, effects = self._state.request_session(target, time.monotonic(), to)
        waiter: asyncio.Future[TunnelStream] = asyncio.get_running_loop().create_future()
        self._waiters[request] = waiter
        self._apply_effects(effects)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().abort("the caller is gone")
            raise
        finally:
            del self._waiters[request]
            self._state.abandon(request)

    # -- Register --------------------------------------------------------------------------------

    async def register(self, context: Context, register_metadata: metadata.RegisterMetadata) -> None:
        """Serve a client's Register stream until it ends."""
        try:
            connection, effects = self._state.connect(
                _connection_key(context), register_metadata.peer(_identity(context))
            )
        except TunnelError as error:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
        client = _Client(connection, register_metadata.can_half_close)
        self._clients[connection] = client
        self._clients_by_token[client.token] = client
        self._apply_effects(effects)  # before any read: a response must not overtake these messages
        reader = asyncio.create_task(self._read(client, context), name="tunnel register")
        reader.add_done_callback(
            lambda _: client.end("")
        )  # whatever ended it, the client does not read any more
        call_back(self._on_client, connection, True)
        try:
            await context.send_initial_metadata(metadata.create_response_metadata(client.token))
            while (raw := await client.outgoing_queue.get()) is not None:
                await context.write(raw)
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            log.debug("a Register stream broke: %s", error)
        finally:
            reader.cancel()
            self._remove_client(client)
        if client.end_reason:
            with contextlib.suppress(grpc.aio.InternalError):  # the client is gone
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, client.end_reason)

    async def _read(self, client: _Client, context: Context) -> None:
        try:
            while (raw := await context.read()) is not grpc.aio.EOF and not client.is_ending:
                message = codec.decode(self.wire, raw)
                is_first = self.wire is WireVersion.V0_1 and client.connection.has_handler is None
                self._apply_effects(self._state.receive(client.connection, message, time.monotonic()))
                if is_first:
                    call_back(self._on_capabilities, client.connection)
                _discard_withdrawn(client)
            client.end("")
        except TunnelError as error:
            client.end(str(error))
        except (grpc.aio.BaseError, asyncio.InvalidStateError):
            client.end("the connection was lost")
        except Exception:
            log.exception("reading a Register stream failed")
            client.end("internal error of the tunnel server")

    def _remove_client(self, client: _Client) -> None:
        client.register_task = None
        if client.end_timer is not None:
            client.end_timer.cancel()
        del self._clients[client.connection]
        del self._clients_by_token[client.token]
        for task in client.handler_tasks.values():
            task.cancel()
        for tag in list(client.accepted_sessions):
            _discard(client, tag)
        self._apply_effects(self._state.disconnect(client.connection))
        call_back(self._on_client, client.connection, False)

    # -- Tunnel ----------------------------------------------------------------------------------

    def find_connection(self, context: Context) -> ClientConnection | None:
        """Return the connection to which a Tunnel stream belongs; None without one."""
        token, key = metadata.token_of(context.invocation_metadata() or ()), _connection_key(context)
        client = self._clients_by_token.get(token) if token else None
        if client is None:
            return self._state.connection(key)
        # On another connection, the certificate must identify the same client, too.
        if client.connection.key == key or client.connection.peer.identity == _identity(context):
            return client.connection
        return None

    async def tunnel(self, connection: ClientConnection, tag: int, context: Context) -> None:
        """Serve a client's Tunnel stream until it ends."""
        client = self._clients[connection]
        try:
            request = self._state.attach_stream(connection, tag)
        except TunnelError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        target = request.target if isinstance(request, OutgoingRequest) else request
        session = client.accepted_sessions.pop(tag, None)
        stream = ServerStream(context, target, tag, can_half_close=client.can_half_close)
        stream.on_fault = lambda reason: client.send(
            codec.encode(self.wire, Session(tag, target, error=reason))
        )
        client.streams.add(stream)
        self._streams.add(stream)
        try:
            # Sent separately: a write that is cancelled would keep gRPC from sending them, and the end with them.
            await context.send_initial_metadata(())
            if isinstance(request, OutgoingRequest):
                self._deliver(request, stream)
                await asyncio.wait((stream.call_over_future,))
            else:
                assert session is not None, "a session is taken before it is accepted"
                served_session, session = session, None
                await _serve(served_session, stream)
        finally:
            if isinstance(request, OutgoingRequest):
                self._fail(request, "the client disconnected")
            elif session is not None:
                call_back(session.discard)
            stream.on_client_gone()
            client.streams.discard(stream)
            self._streams.discard(stream)
            self._state.detach_stream(connection, tag)
        if stream.abort_reason:
            with contextlib.suppress(grpc.aio.InternalError):  # the client is gone
                await context.abort(grpc.StatusCode.ABORTED, stream.abort_reason)

    def _deliver(self, request: OutgoingRequest, stream: ServerStream) -> None:
        waiter = self._waiters.get(request)
        if waiter is None or waiter.done():
            stream.abort("the caller is gone")
        else:
            waiter.set_result(stream)

    def _fail(self, request: OutgoingRequest, reason: str) -> None:
        waiter = self._waiters.get(request)
        if waiter is not None and not waiter.done():
            waiter.set_exception(TunnelError(reason))

    # -- effects ---------------------------------------------------------------------------------

    def _apply_effects(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendToClient):
                self._send(effect)
            elif isinstance(effect, QuerySessionHandler):
                self._start_handler(effect)
            elif isinstance(effect, RequestFailed):
                self._fail(effect.request, effect.error)
            elif isinstance(effect, (TargetAdded, TargetRemoved)):
                call_back(self._on_target, effect.target, isinstance(effect, TargetAdded))
        self._set_timer()

    def _send(self, effect: SendToClient) -> None:
        client = self._clients.get(effect.connection)
        if client is not None:
            client.send(codec.encode(self.wire, effect.message))

    def _start_handler(self, effect: QuerySessionHandler) -> None:
        client = self._clients[effect.connection]
        task = asyncio.create_task(self._accept_session(client, effect), name=f"session to {effect.target}")
        client.handler_tasks[effect.tag] = task
        task.add_done_callback(lambda _: _remove_handler_task(client, effect.tag, task))

    async def _accept_session(self, client: _Client, effect: QuerySessionHandler) -> None:
        handler = self._bridge if effect.bridge else self._handler
        assert handler is not None, "without a handler only bridges are requested"
        error = None
        try:
            async with asyncio.timeout(self._limits.set_up_timeout):
                client.accepted_sessions[effect.tag] = await handler(effect.target)
        except TimeoutError:
            error = "the handler did not answer in time"
        except TunnelError as refusal:
            error = str(refusal)
        except Exception:  # a handler is foreign code: its error must end only its session
            log.exception("the handler failed on the request for a session to %s", effect.target)
            error = "the handler failed"
        effects = self._state.respond(effect.connection, effect.tag, error)
        if not effects:
            _discard(client, effect.tag)  # the request was dropped
        self._apply_effects(effects)

    async def _bridge(self, target: Target) -> AcceptedSession:
        return BridgeSession(await self.open_session(target))

    def _set_timer(self) -> None:
        at = self._state.wake_at()
        if at is not None and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(at - time.monotonic(), 0) + 0.01, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._apply_effects(self._state.expire(time.monotonic()))
        for client in self._clients.values():
            _discard_withdrawn(client)


def _discard_withdrawn(client: _Client) -> None:
    """Discard accepted sessions, and cancel requests to the handler, that are no longer being set up."""
    for tag in client.accepted_sessions.keys() - client.connection.incoming_requests.keys():
        _discard(client, tag)
    # Otherwise a client that requests and withdraws sessions repeatedly could have any number of them in progress.
    for tag in client.handler_tasks.keys() - client.connection.incoming_requests.keys():
        client.handler_tasks.pop(tag).cancel()


def _remove_handler_task(client: _Client, tag: int, task: asyncio.Task[None]) -> None:
    if client.handler_tasks.get(tag) is task:  # the client may reuse the tag of a session that it withdrew
        del client.handler_tasks[tag]


def _discard(client: _Client, tag: int) -> None:
    if (session := client.accepted_sessions.pop(tag, None)) is not None:
        call_back(session.discard)


def _deny_on_error(may_claim: Callable[[Peer, Target], bool]) -> Callable[[Peer, Target], bool]:
    """Return a rule that denies if `may_claim` raises an exception."""

    def rule(peer: Peer, target: Target) -> bool:
        try:
            return may_claim(peer, target)
        except Exception:
            log.exception("checking the claim on target %s failed", target)
            return False

    return rule


async def _serve(session: AcceptedSession, stream: ServerStream) -> None:
    try:
        await session.serve(stream)
    except TunnelError as error:
        stream.abort(str(error))
    except Exception:  # a handler is foreign code: its error must end only its session
        log.exception("the handler failed in a session to %s", stream.target)
        stream.abort("the handler failed")
    else:
        await stream.close()


def serve_tunnels(server: grpc.aio.Server, default: TunnelServer, *other_servers: TunnelServer) -> None:
    """Add the tunnel service to a gRPC server: `default` for clients that do not send their version."""
    servers_by_wire = {tunnel.wire: tunnel for tunnel in (default, *other_servers)}

    async def register(_: object, context: Context) -> None:
        try:
            register_metadata = metadata.read_register_metadata(context.invocation_metadata() or ())
        except TunnelError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        tunnel = servers_by_wire.get(register_metadata.wire or default.wire)
        if tunnel is None:
            wires = " and ".join(sorted(wire.value for wire in servers_by_wire))
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the tunnel server supports only wire version {wires} (refloat tunnel: --wire {wires})",
            )
        await tunnel.register(context, register_metadata)

    async def tunnel(_: object, context: Context) -> None:
        try:
            async with asyncio.timeout(_TAG_WITHIN):
                raw = await context.read()
            tag = codec.tag_of(b"" if raw is grpc.aio.EOF else raw)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the tag was not received in time")
        except TunnelError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        for owner in servers_by_wire.values():
            connection = owner.find_connection(context)
            if connection is not None:
                await owner.tunnel(connection, tag, context)
                return
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"tag {tag} is unknown: this connection has no Register stream. Open both streams on one connection",
        )

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Register": grpc.stream_stream_rpc_method_handler(register),
        "Tunnel": grpc.stream_stream_rpc_method_handler(tunnel),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(codec.SERVICE, handlers),))


def _connection_key(context: Context) -> Hashable:
    # host:port of the client: the same for all streams of one TCP connection, and different for all others.
    return context.peer()


def _identity(context: Context) -> tuple[str, ...]:
    """Return the names that the client's certificate proves: its common name and its alternative names."""
    auth_context = context.auth_context()
    names = [
        *auth_context.get("x509_common_name", ()),
        *auth_context.get("x509_subject_alternative_name", ()),
    ]
    return tuple(dict.fromkeys(name.decode(errors="replace") for name in names))
