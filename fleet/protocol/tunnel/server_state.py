"""Decisions of a tunnel server: registered targets, sessions being set up, and who is notified of what.

Follows the design "TCP over gRPC Tunnel", section "Server", and the message sequences of openconfig/grpctunnel 0.2
without its defects: a refused session affects only its caller, the Register reader never blocks, set-ups are bounded
and time out, and a client that reconnects replaces its stale registration. Pure: `now` is seconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from fleet.protocol import text_limits
from fleet.protocol.tunnel.messages import (
    Capabilities,
    Message,
    Op,
    Registration,
    Session,
    Subscription,
    Tags,
    Target,
    TunnelError,
    WireVersion,
)

#: Number of set-up deadlines above which those of finished set-ups are removed.
_MIN_DEADLINE_LIMIT = 1_000
#: Maximum length of a client's refusal of a session, characters: callers see it.
_LONGEST_ERROR = 500


@dataclass(frozen=True, slots=True)
class Peer:
    """The client at the other end of a Register stream."""

    #: Names that its certificate proves; empty without a certificate.
    identity: tuple[str, ...] = ()
    #: Name that a client of Refloat gives itself, and the number of its connection; empty and 0 for others.
    name: str = ""
    generation: int = 0

    def replaces(self, other_peer: Peer, *, silent: bool = False) -> bool:
        """Return whether this is `other_peer` after a reconnect, so that the registrations of the other are stale.

        A certificate proves it. Without one the name must do: a client that lies about it could claim the target
        anyway. Generations come from a clock that may have been set back: if the other is `silent`, they are ignored.
        """
        if (self.identity, self.name) != (other_peer.identity, other_peer.name) or not (
            self.identity or self.name
        ):
            return False
        return not self.name or self.generation > other_peer.generation or silent


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for one client."""

    #: Sessions being set up at the same time, per connection and direction.
    max_pending_sessions: int = 256
    #: Seconds from the request for a session to its stream.
    set_up_timeout: float = 10.0
    max_targets: int = 1_000
    #: Open sessions that one connection requested: each may be a connection to a service.
    max_sessions: int = 10_000


@dataclass(eq=False, slots=True)
class ClientConnection:
    """Register stream of one client."""

    key: Hashable
    peer: Peer
    #: Version 0.1: whether the client has a handler; None before its capabilities arrived.
    has_handler: bool | None = None
    targets: set[Target] = field(default_factory=set)
    #: Types that the client subscribed to; the empty type means all.
    subscriptions: set[str] = field(default_factory=set)
    tags: Tags = field(default_factory=lambda: Tags(1))
    #: Sessions requested by this server, by its tag.
    outgoing_requests: dict[int, OutgoingRequest] = field(default_factory=dict)
    #: Sessions requested by the client, by the client's tag.
    incoming_requests: dict[int, IncomingRequest] = field(default_factory=dict)
    #: Tags of open streams.
    open_tags: set[int] = field(default_factory=set)
    #: Number of open streams that the client requested.
    client_session_count: int = 0


@dataclass(eq=False, slots=True)
class IncomingRequest:
    """A session that a client requested."""

    target: Target
    #: The client may open its stream.
    is_accepted: bool = False


@dataclass(eq=False, slots=True)
class OutgoingRequest:
    """A session that this server requested: from one client, or from the first of several that opens it."""

    target: Target
    pending_tags: dict[ClientConnection, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


_SessionRequest = OutgoingRequest | IncomingRequest

# -- effects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendToClient:
    """Send a message on a client's Register stream."""

    connection: ClientConnection
    message: Message


@dataclass(frozen=True, slots=True)
class QuerySessionHandler:
    """Ask the handler about a client's session, without blocking the reader, then call `respond`.

    With `bridge`, request the session from the target's owner.
    """

    connection: ClientConnection
    tag: int
    target: Target
    bridge: bool


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No client opened the requested session."""

    request: OutgoingRequest
    error: str


@dataclass(frozen=True, slots=True)
class TargetAdded:
    """A target was registered."""

    target: Target
    connection: ClientConnection


@dataclass(frozen=True, slots=True)
class TargetRemoved:
    """A target is no longer registered by that connection."""

    target: Target
    connection: ClientConnection


Effect: TypeAlias = SendToClient | QuerySessionHandler | RequestFailed | TargetAdded | TargetRemoved


class ServerState:
    """State of a tunnel server."""

    def __init__(
        self,
        wire: WireVersion,
        *,
        has_handler: bool = False,
        local: frozenset[Target] | None = None,
        bridge: bool = False,
        may_claim: Callable[[Peer, Target], bool] | None = None,
        is_silent: Callable[[ClientConnection], bool] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Start without clients. `local` are the targets of the server's own handler; None: ask it about every target.

        `is_silent` returns whether a client missed a keep-alive, so that it may be dead.
        """
        self._wire = wire
        self._has_handler = has_handler
        self._local = local
        self._bridge = bridge
        self._may_claim = may_claim or (lambda peer, target: True)
        self._is_silent = is_silent or (lambda connection: False)
        self._limits = limits or Limits()
        self._connections: dict[Hashable, ClientConnection] = {}
        self._owners: dict[Target, ClientConnection] = {}
        # All set-ups have the same time limit, so their deadlines are in order.
        self._deadlines: deque[tuple[float, ClientConnection, int, _SessionRequest]] = deque()
        #: Above this number, deadlines of finished set-ups are removed.
        self._deadline_limit = _MIN_DEADLINE_LIMIT

    # -- connections -----------------------------------------------------------------------------

    def connect(self, key: Hashable, peer: Peer) -> tuple[ClientConnection, list[Effect]]:
        """Process the start of a Register stream. Raises TunnelError if its connection has one already."""
        if key in self._connections:
            raise TunnelError("this connection already has a Register stream. Use one stream per connection")
        connection = ClientConnection(key, peer)
        self._connections[key] = connection
        if self._wire is WireVersion.V0_1:
            return connection, [SendToClient(connection, Capabilities(self._has_handler))]
        return connection, []

    def disconnect(self, connection: ClientConnection) -> list[Effect]:
        """Process the end of a Register stream; open Tunnel streams stay open."""
        if self._connections.get(connection.key) is not connection:
            return []
        del self._connections[connection.key]
        effects: list[Effect] = []
        for target in sorted(connection.targets):
            effects += self._drop_target(target, connection)
        connection.subscriptions.clear()
        connection.incoming_requests.clear()
        for tag in list(connection.outgoing_requests):
            effects += self._on_refusal(connection, tag, "the client disconnected")
        return effects

    def connection(self, key: Hashable) -> ClientConnection | None:
        """Return the connection with a key; None without one."""
        return self._connections.get(key)

    def owner_of(self, target: Target) -> ClientConnection | None:
        """Return the connection that registered a target; None without one."""
        return self._owners.get(target)

    def targets(self) -> dict[Target, ClientConnection]:
        """Return all registered targets with their connections."""
        return dict(self._owners)

    # -- Register --------------------------------------------------------------------------------

    def receive(self, connection: ClientConnection, message: Message, now: float) -> list[Effect]:
        """Process a message of a client. Raises TunnelError if the stream must end."""
        if self._wire is WireVersion.V0_1 and connection.has_handler is None:
            return self._on_capabilities(connection, message)
        if isinstance(message, Registration):
            return self._on_registration(connection, message)
        if isinstance(message, Session):
            return self._on_session(connection, message, now)
        if isinstance(message, Subscription):
            return self._on_subscription(connection, message)
        return []  # an empty message, or capabilities again

    def respond(self, connection: ClientConnection, tag: int, error: str | None) -> list[Effect]:
        """Process the handler's decision about a client's session; ignored if the client has dropped it."""
        request = connection.incoming_requests.get(tag)
        if request is None or self._connections.get(connection.key) is not connection:
            return []
        if error is not None:
            del connection.incoming_requests[tag]
            return [SendToClient(connection, Session(tag, request.target, error=error))]
        request.is_accepted = True
        return [SendToClient(connection, Session(tag, request.target, accept=True))]

    def _on_capabilities(self, connection: ClientConnection, message: Message) -> list[Effect]:
        if not isinstance(message, Capabilities):
            raise TunnelError("the first message of version 0.1 must be capabilities")
        if not (message.handler or self._has_handler):
            raise TunnelError("no handlers defined: neither end can serve a session")
        connection.has_handler = message.handler
        return []

    def _on_registration(self, connection: ClientConnection, message: Registration) -> list[Effect]:
        target = message.target
        if message.op is Op.ADD:
            error = self._rejection_reason(connection, target)
            if error:
                return [SendToClient(connection, Registration(Op.UNKNOWN, target, error=error))]
            stale_owner = self._owners.get(target)
            effects = self._drop_target(target, stale_owner) if stale_owner is not None else []
            connection.targets.add(target)
            self._owners[target] = connection
            effects.append(SendToClient(connection, Registration(Op.UNKNOWN, target, accept=True)))
            effects.append(TargetAdded(target, connection))
            return effects + list(self._subscriber_notices(Op.ADD, target, connection))
        if message.op is Op.REMOVE and target in connection.targets:
            response = SendToClient(connection, Registration(Op.UNKNOWN, target, accept=True))
            return [response, *self._drop_target(target, connection)]
        error = (
            "is not registered by this client"
            if message.op is Op.REMOVE
            else "the operation must be ADD or REMOVE"
        )
        return [SendToClient(connection, Registration(Op.UNKNOWN, target, error=f"target {target}: {error}"))]

    def _rejection_reason(self, connection: ClientConnection, target: Target) -> str:
        owner = self._owners.get(target)
        if not target.name:
            return "a target must have a name"
        if self._local is not None and target in self._local:
            return f"target {target} is reserved: it is a target of this server"
        if not self._may_claim(connection.peer, target):
            client_name = " or ".join(connection.peer.identity) or "a client without a certificate"
            return f"target {target} may not be registered by {client_name}"
        if owner is connection:
            return f"target {target} is already registered by this client"
        if owner is not None and not connection.peer.replaces(owner.peer, silent=self._is_silent(owner)):
            return f"target {target} is already registered by another client"
        if len(connection.targets) >= self._limits.max_targets:
            return f"target {target}: this client has the maximum of {self._limits.max_targets:,} targets"
        return ""

    def _drop_target(self, target: Target, connection: ClientConnection) -> list[Effect]:
        connection.targets.discard(target)
        del self._owners[target]
        return [TargetRemoved(target, connection), *self._subscriber_notices(Op.REMOVE, target, connection)]

    def _subscriber_notices(self, op: Op, target: Target, owner: ClientConnection) -> Iterator[Effect]:
        for connection in self._connections.values() if self._bridge else ():
            if connection is not owner and not connection.subscriptions.isdisjoint(("", target.type)):
                yield SendToClient(connection, Registration(op, target))

    def _on_subscription(self, connection: ClientConnection, message: Subscription) -> list[Effect]:
        kind = message.type
        if message.op is Op.REMOVE:
            connection.subscriptions.discard(kind)
            return [SendToClient(connection, Subscription(Op.REMOVE, kind, accept=True))]
        if message.op is not Op.ADD:
            return [
                SendToClient(
                    connection,
                    Subscription(message.op, kind, error="the operation must be SUBSCRIBE or UNSUBSCRIBE"),
                )
            ]
        # The targets that a client can connect to: the server's own, and with bridging those of others. A refusal would
        # end a client of the Go library, so a server without any accepts, too.
        other_owners = self._owners if self._bridge else {}
        visible_targets = {
            *(self._local or ()),
            *(target for target, owner in other_owners.items() if owner is not connection),
        }
        effects: list[Effect] = [
            SendToClient(connection, Registration(Op.ADD, target))
            for target in sorted(visible_targets)
            if kind in ("", target.type)
        ]
        if kind in connection.subscriptions:
            error = f"this client is already subscribed to {kind or 'all types'}"
            return [*effects, SendToClient(connection, Subscription(Op.ADD, kind, error=error))]
        if len(connection.subscriptions) >= self._limits.max_targets:
            error = f"this client has reached the maximum of {self._limits.max_targets} subscriptions"
            return [*effects, SendToClient(connection, Subscription(Op.ADD, kind, error=error))]
        connection.subscriptions.add(kind)
        return [*effects, SendToClient(connection, Subscription(Op.ADD, kind, accept=True))]

    # -- sessions --------------------------------------------------------------------------------

    def request_session(
        self, target: Target, now: float, to: ClientConnection | None = None
    ) -> tuple[OutgoingRequest, list[Effect]]:
        """Request a session: from `to`, else from the target's owner (0.1: from all clients). Raises TunnelError."""
        request = OutgoingRequest(target)
        effects: list[Effect] = []
        for connection in self._candidates(target, to):
            if len(connection.outgoing_requests) >= self._limits.max_pending_sessions:
                request.errors.append("too many sessions are being set up with this client")
                continue
            try:
                tag = connection.tags.take()
            except TunnelError as error:
                request.errors.append(str(error))
                continue
            request.pending_tags[connection] = tag
            connection.outgoing_requests[tag] = request
            self._set_deadline(now, connection, tag, request)
            effects.append(SendToClient(connection, Session(tag, target, accept=True)))
        if not request.pending_tags:
            raise TunnelError("; ".join(request.errors))
        return request, effects

    def abandon(self, request: OutgoingRequest) -> None:
        """Drop a request: its stream is refused from now on."""
        for connection, tag in request.pending_tags.items():
            connection.outgoing_requests.pop(tag, None)
        request.pending_tags.clear()

    def attach_stream(self, connection: ClientConnection, tag: int) -> OutgoingRequest | Target:
        """Assign a new Tunnel stream to a session that this server or the client requested. Raises TunnelError."""
        request = connection.outgoing_requests.pop(tag, None)
        if request is not None:
            del request.pending_tags[connection]
            self.abandon(request)  # the first client wins
            connection.open_tags.add(tag)
            return request
        client_request = connection.incoming_requests.get(tag)
        if client_request is None or not client_request.is_accepted:
            raise TunnelError(f"no session on this connection waits for tag {tag}")
        del connection.incoming_requests[tag]
        connection.open_tags.add(tag)
        connection.client_session_count += 1
        return client_request.target

    def detach_stream(self, connection: ClientConnection, tag: int) -> None:
        """Process the end of a Tunnel stream."""
        if tag in connection.open_tags:
            connection.open_tags.remove(tag)
            connection.client_session_count -= tag < 0

    def wake_at(self) -> float | None:
        """Return when `expire` has work to do; None without a deadline."""
        while self._deadlines and not self._is_pending(*self._deadlines[0][1:]):
            self._deadlines.popleft()
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> list[Effect]:
        """Fail session set-ups whose time limit has passed."""
        effects: list[Effect] = []
        while (at := self.wake_at()) is not None and at <= now:
            _, connection, tag, _ = self._deadlines.popleft()
            if tag > 0:
                effects += self._on_refusal(connection, tag, "the client did not open the stream in time")
            else:
                target = connection.incoming_requests.pop(tag).target
                effects.append(
                    SendToClient(connection, Session(tag, target, error="the session was not set up in time"))
                )
        return effects

    def _set_deadline(
        self, now: float, connection: ClientConnection, tag: int, request: _SessionRequest
    ) -> None:
        self._deadlines.append((now + self._limits.set_up_timeout, connection, tag, request))
        if len(self._deadlines) > self._deadline_limit:
            # Otherwise the deadlines of all dropped set-ups would stay behind one that still waits.
            self._deadlines = deque(entry for entry in self._deadlines if self._is_pending(*entry[1:]))
            self._deadline_limit = _MIN_DEADLINE_LIMIT + 2 * len(self._deadlines)

    def _is_pending(self, connection: ClientConnection, tag: int, request: _SessionRequest) -> bool:
        # Compare the request itself: a client may reuse a tag, and then the deadline belongs to another session.
        return (connection.outgoing_requests if tag > 0 else connection.incoming_requests).get(tag) is request

    def _candidates(self, target: Target, to: ClientConnection | None) -> Iterable[ClientConnection]:
        if to is not None:
            if self._connections.get(to.key) is not to:
                raise TunnelError("this client is not connected")
            if self._wire is WireVersion.V0_1 and not to.has_handler:
                raise TunnelError("this client has no handler")
            return [to]
        if self._wire is WireVersion.V0_1:
            connections = [connection for connection in self._connections.values() if connection.has_handler]
            if not connections:
                raise TunnelError("no client with a handler is connected")
            return connections
        owner = self._owners.get(target)
        if owner is None:
            raise TunnelError(f"target {target} is not registered")
        return [owner]

    def _on_session(self, connection: ClientConnection, message: Session, now: float) -> list[Effect]:
        tag, target = message.tag, message.target
        if message.malformed_reason:
            connection.incoming_requests.pop(tag, None)
            refusal = Session(tag, target, error=message.malformed_reason)
            effects: list[Effect] = [SendToClient(connection, refusal)]
            return effects + (self._on_refusal(connection, tag, message.malformed_reason) if tag > 0 else [])
        if tag > 0 and message.error:
            return self._on_refusal(connection, tag, message.error)
        if tag > 0 and (message.accept or tag in connection.outgoing_requests or tag in connection.open_tags):
            return []  # its stream is the acceptance, so this message is redundant
        if message.error:
            connection.incoming_requests.pop(tag, None)
            return []
        try:
            bridge = self._admit(connection, tag, target)
        except TunnelError as error:
            return [SendToClient(connection, Session(tag, target, error=str(error)))]
        client_request = connection.incoming_requests[tag] = IncomingRequest(target)
        self._set_deadline(now, connection, tag, client_request)
        return [QuerySessionHandler(connection, tag, target, bridge)]

    def _admit(self, connection: ClientConnection, tag: int, target: Target) -> bool:
        """Return whether a bridge serves the session. Raises TunnelError if the server cannot serve it."""
        if tag >= 0:
            raise TunnelError("tags of a client must be negative")
        if tag in connection.incoming_requests or tag in connection.open_tags:
            raise TunnelError(f"tag {tag} is in use")
        if len(connection.incoming_requests) >= self._limits.max_pending_sessions:
            raise TunnelError("too many sessions of this client are being set up")
        if connection.client_session_count + len(connection.incoming_requests) >= self._limits.max_sessions:
            raise TunnelError(f"this client has reached the maximum of {self._limits.max_sessions} sessions")
        owner = self._owners.get(target)
        if self._has_handler and (target in self._local if self._local is not None else owner is None):
            return False
        if owner is None or not self._bridge:
            raise TunnelError(f"target {target} is not registered")
        if owner is connection:
            raise TunnelError(f"target {target} belongs to this client itself")
        return True

    def _on_refusal(self, connection: ClientConnection, tag: int, error: str) -> list[Effect]:
        request = connection.outgoing_requests.pop(tag, None)
        if request is None:
            return []  # late: the request was dropped
        del request.pending_tags[connection]
        request.errors.append(text_limits.cut(error, _LONGEST_ERROR))
        return [] if request.pending_tags else [RequestFailed(request, "; ".join(request.errors))]
