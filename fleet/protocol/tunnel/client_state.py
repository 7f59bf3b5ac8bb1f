"""Decisions of a tunnel client: its targets, its subscriptions, and the sessions of both ends.

Follows the design "TCP over gRPC Tunnel", section "Client", and the message sequences of openconfig/grpctunnel 0.2.
Unlike there, a refusal does not end the client: the caller gets the error. Pure: `now` is seconds of a monotonic clock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

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
from fleet.protocol.tunnel.server_state import Limits


@dataclass(frozen=True, slots=True)
class SendToServer:
    """Send a message on Register."""

    message: Message


@dataclass(frozen=True, slots=True)
class QueryRegisterHandler:
    """Ask the register handler, without blocking the reader, then call `respond`."""

    tag: int
    target: Target


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a Tunnel stream whose first message is the tag: for the handler, or for the local caller (tag < 0)."""

    tag: int
    target: Target


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session requested under `tag` failed."""

    tag: int
    error: str


@dataclass(frozen=True, slots=True)
class TargetAccepted:
    """The server accepted the registration or the removal of a target."""

    target: Target


@dataclass(frozen=True, slots=True)
class TargetRejected:
    """The server refused the registration or the removal of a target."""

    target: Target
    error: str


@dataclass(frozen=True, slots=True)
class TargetChange:
    """A target of another client was added (ADD) or removed (REMOVE)."""

    op: Op
    target: Target


@dataclass(frozen=True, slots=True)
class SubscriptionResponse:
    """The server answered a subscription; `error` is empty when it succeeded."""

    op: Op
    type: str
    error: str


Effect: TypeAlias = (
    SendToServer
    | QueryRegisterHandler
    | OpenStream
    | SessionFailed
    | TargetAccepted
    | TargetRejected
    | TargetChange
    | SubscriptionResponse
)


class ClientState:
    """State of a tunnel client for one Register stream."""

    def __init__(self, wire: WireVersion, *, has_handler: bool, limits: Limits | None = None) -> None:
        self._wire = wire
        self._has_handler = has_handler
        self._limits = limits or Limits()
        self._tags = Tags(-1)
        self._targets: set[Target] = set()
        #: Changes without an answer of the server yet; it answers in order.
        self._pending_changes: Counter[Target] = Counter()
        self._outgoing_requests: dict[int, Session] = {}
        self._incoming_requests: dict[int, Session] = {}
        self._deadlines: deque[tuple[float, Session]] = deque()
        #: Version 0.1: whether the server has a handler; None before its capabilities arrived.
        self.server_has_handler: bool | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether sessions can be requested: version 0.1 waits for the server's capabilities."""
        return self._wire is WireVersion.V0_2 or self.server_has_handler is not None

    @property
    def registered_targets(self) -> frozenset[Target]:
        """The targets that the server has accepted."""
        return frozenset(target for target in self._targets if not self._pending_changes[target])

    def start(self, targets: Iterable[Target] = (), subscribe: Iterable[str] = ()) -> list[Effect]:
        """Return the first messages of an open stream. Raises TunnelError for what version 0.1 does not support."""
        if self._wire is WireVersion.V0_1:
            if any(True for _ in targets) or any(True for _ in subscribe):
                raise TunnelError("version 0.1 supports neither targets nor subscriptions")
            return [SendToServer(Capabilities(self._has_handler))]
        effects = [effect for target in targets for effect in self.add(target)]
        return effects + [SendToServer(Subscription(Op.ADD, kind)) for kind in subscribe]

    def add(self, target: Target) -> list[Effect]:
        """Register a target. Raises TunnelError if it is registered already."""
        self._require_targets()
        if target in self._targets:
            raise TunnelError(f"target {target} is already registered")
        self._targets.add(target)
        self._pending_changes[target] += 1
        return [SendToServer(Registration(Op.ADD, target))]

    def remove(self, target: Target) -> list[Effect]:
        """Deregister a target. Raises TunnelError if it is not registered."""
        self._require_targets()
        if target not in self._targets:
            raise TunnelError(f"target {target} is not registered")
        self._targets.discard(target)
        self._pending_changes[target] += 1
        return [SendToServer(Registration(Op.REMOVE, target))]

    def _require_targets(self) -> None:
        if self._wire is WireVersion.V0_1:
            raise TunnelError("version 0.1 does not support targets")

    def receive(self, message: Message, now: float) -> list[Effect]:
        """Process a message of the server. Raises TunnelError if the stream must end."""
        if self._wire is WireVersion.V0_1 and self.server_has_handler is None:
            return self._on_capabilities(message)
        if isinstance(message, Registration):
            return self._on_registration(message)
        if isinstance(message, Session):
            return self._on_session(message, now)
        if isinstance(message, Subscription):
            return [SubscriptionResponse(message.op, message.type, message.error)]
        return []

    def _on_capabilities(self, message: Message) -> list[Effect]:
        if not isinstance(message, Capabilities):
            raise TunnelError("the first message of version 0.1 must be capabilities")
        if not (message.handler or self._has_handler):
            raise TunnelError("no handlers defined: neither end can serve a session")
        self.server_has_handler = message.handler
        return []

    def _on_registration(self, message: Registration) -> list[Effect]:
        target = message.target
        if message.error or message.accept:
            self._pending_changes[target] -= 1
            if self._pending_changes[target] <= 0:
                del self._pending_changes[target]
                if message.error:
                    self._targets.discard(target)
            return [TargetRejected(target, message.error) if message.error else TargetAccepted(target)]
        if message.op is Op.UNKNOWN or target in self._targets:
            return []
        return [TargetChange(message.op, target)]

    # -- sessions --------------------------------------------------------------------------------

    def request_session(self, target: Target, now: float) -> tuple[int, list[Effect]]:
        """Request a session from the server; return its tag. Raises TunnelError."""
        if not self.is_ready:
            raise TunnelError("the tunnel is not established yet")
        if self._wire is WireVersion.V0_1 and not self.server_has_handler:
            raise TunnelError("the server has no handler")
        if len(self._outgoing_requests) >= self._limits.max_pending_sessions:
            raise TunnelError("too many sessions are being set up")
        session = Session(self._tags.take(), target)
        self._outgoing_requests[session.tag] = session
        self._deadlines.append((now + self._limits.set_up_timeout, session))
        return session.tag, [SendToServer(session)]

    def abandon(self, tag: int) -> None:
        """Drop a request. The server is not told: an error for a tag it has dropped blocks some servers forever."""
        self._outgoing_requests.pop(tag, None)

    def respond(self, tag: int, error: str | None) -> list[Effect]:
        """Process the handler's decision about the server's session; `error` refuses it."""
        session = self._incoming_requests.pop(tag, None)
        if session is None:
            return []
        if error is not None:
            return [SendToServer(Session(tag, session.target, error=error))]
        return [OpenStream(tag, session.target)]

    def on_stream_failed(self, tag: int, target: Target, error: str) -> list[Effect]:
        """Return the error for the server when the stream for its session could not be opened."""
        return [SendToServer(Session(tag, target, error=error))] if tag > 0 else []

    def wake_at(self) -> float | None:
        """Return when `expire` has work to do; None without a deadline."""
        while self._deadlines and not self._is_pending(self._deadlines[0][1]):
            self._deadlines.popleft()
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> list[Effect]:
        """Fail session set-ups whose time limit has passed."""
        effects: list[Effect] = []
        while (at := self.wake_at()) is not None and at <= now:
            tag = self._deadlines.popleft()[1].tag
            if tag < 0:
                self.abandon(tag)
                effects.append(SessionFailed(tag, "the server did not answer in time"))
            else:
                effects += self.respond(tag, "the handler did not answer in time")
        return effects

    def end(self, reason: str) -> list[Effect]:
        """Fail every pending session, because Register ended."""
        effects: list[Effect] = [SessionFailed(tag, reason) for tag in self._outgoing_requests]
        self._outgoing_requests.clear()
        self._incoming_requests.clear()
        return effects

    def _on_session(self, message: Session, now: float) -> list[Effect]:
        tag, target = message.tag, message.target
        if message.malformed_reason:
            self._incoming_requests.pop(tag, None)
            effects: list[Effect] = [SendToServer(Session(tag, target, error=message.malformed_reason))]
            is_ours = self._outgoing_requests.pop(tag, None) is not None
            return [*effects, SessionFailed(tag, message.malformed_reason)] if is_ours else effects
        if tag < 0:
            return self._on_session_response(message)
        if message.error:  # the server dropped its request
            self._incoming_requests.pop(tag, None)
            return []
        error = self._rejection_reason(message)
        if error:
            return [SendToServer(Session(tag, target, error=error))]
        self._incoming_requests[tag] = message
        self._deadlines.append((now + self._limits.set_up_timeout, message))
        return [QueryRegisterHandler(tag, target)]

    def _rejection_reason(self, message: Session) -> str:
        if message.tag == 0:
            return "tags of a server must be positive"
        if not message.accept:
            return "the server's session request does not have accept set"
        if not self._has_handler:
            return "this client has no handler"
        if message.tag in self._incoming_requests:
            return f"tag {message.tag} is in use"
        if len(self._incoming_requests) >= self._limits.max_pending_sessions:
            return "too many sessions are being set up"
        return ""

    def _on_session_response(self, message: Session) -> list[Effect]:
        request = self._outgoing_requests.get(message.tag)
        if request is None:
            return []  # late: the request was dropped
        if not (message.accept or message.error):
            return []  # neither accepted nor refused
        del self._outgoing_requests[message.tag]
        if message.error:
            return [SessionFailed(message.tag, message.error)]
        return [OpenStream(message.tag, request.target)]

    def _is_pending(self, session: Session) -> bool:
        # Compare the session itself: a server may reuse a tag, and then the deadline belongs to another session.
        return (self._incoming_requests if session.tag > 0 else self._outgoing_requests).get(
            session.tag
        ) is session
