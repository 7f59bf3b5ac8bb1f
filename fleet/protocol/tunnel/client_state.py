"""What a tunnel client decides: its targets, its subscriptions and the sessions of either end.

Follows the seed's "Client" section and the message sequences of openconfig/grpctunnel 0.2. Unlike there, nothing that
is refused ends the client: who asked is told. Pure: `now` is seconds of a monotonic clock.
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
class Send:
    """Write to Register."""

    message: Message


@dataclass(frozen=True, slots=True)
class AskHandler:
    """Ask the register handler, beside the reader, then call `answer`."""

    tag: int
    target: Target


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a Tunnel stream whose first message is the tag: for the handler, or for who asked (tag < 0)."""

    tag: int
    target: Target


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session that was asked for under `tag` will not be."""

    tag: int
    error: str


@dataclass(frozen=True, slots=True)
class TargetAccepted:
    """The server took a target, or let it go."""

    target: Target


@dataclass(frozen=True, slots=True)
class TargetRejected:
    """The server refused to take a target, or to let it go."""

    target: Target
    error: str


@dataclass(frozen=True, slots=True)
class TargetChange:
    """Another client's target came (ADD) or went (REMOVE)."""

    op: Op
    target: Target


@dataclass(frozen=True, slots=True)
class SubscriptionResponse:
    """A subscription was answered; `error` is empty when it stands."""

    op: Op
    type: str
    error: str


Effect: TypeAlias = Send | AskHandler | OpenStream | SessionFailed | TargetAccepted | TargetRejected | TargetChange | SubscriptionResponse


class ClientState:
    """All that a tunnel client knows of one Register stream."""

    def __init__(self, wire: WireVersion, *, has_handler: bool, limits: Limits | None = None) -> None:
        self._wire = wire
        self._has_handler = has_handler
        self._limits = limits or Limits()
        self._tags = Tags(-1)
        self._targets: set[Target] = set()
        #: Changes that the server did not answer yet; it does so in their order.
        self._pending_changes: Counter[Target] = Counter()
        self._outgoing_requests: dict[int, Session] = {}
        self._incoming_requests: dict[int, Session] = {}
        self._deadlines: deque[tuple[float, Session]] = deque()
        #: Version 0.1: whether the server serves sessions; None until it said so.
        self.server_has_handler: bool | None = None

    @property
    def ready(self) -> bool:
        """Whether sessions may be asked for: version 0.1 waits for the server's capabilities."""
        return self._wire is WireVersion.V0_2 or self.server_has_handler is not None

    @property
    def registered_targets(self) -> frozenset[Target]:
        """Targets that the server has taken."""
        return frozenset(target for target in self._targets if not self._pending_changes[target])

    def start(self, targets: Iterable[Target] = (), subscribe: Iterable[str] = ()) -> list[Effect]:
        """The stream is open: what is said first. Raises TunnelError for what version 0.1 does not know."""
        if self._wire is WireVersion.V0_1:
            if any(True for _ in targets) or any(True for _ in subscribe):
                raise TunnelError("version 0.1 knows neither targets nor subscriptions")
            return [Send(Capabilities(self._has_handler))]
        effects = [effect for target in targets for effect in self.add(target)]
        return effects + [Send(Subscription(Op.ADD, kind)) for kind in subscribe]

    def add(self, target: Target) -> list[Effect]:
        """Register a target. Raises TunnelError."""
        self._require_targets()
        if target in self._targets:
            raise TunnelError(f"target {target} is registered already")
        self._targets.add(target)
        self._pending_changes[target] += 1
        return [Send(Registration(Op.ADD, target))]

    def remove(self, target: Target) -> list[Effect]:
        """Let go of a target. Raises TunnelError."""
        self._require_targets()
        if target not in self._targets:
            raise TunnelError(f"target {target} is not registered")
        self._targets.discard(target)
        self._pending_changes[target] += 1
        return [Send(Registration(Op.REMOVE, target))]

    def _require_targets(self) -> None:
        if self._wire is WireVersion.V0_1:
            raise TunnelError("version 0.1 knows no targets")

    def receive(self, message: Message, now: float) -> list[Effect]:
        """The server said something. Raises TunnelError when the stream must end for it."""
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
            raise TunnelError("capabilities must be the first message of version 0.1")
        if not (message.handler or self._has_handler):
            raise TunnelError("no handlers defined: neither end could serve a session")
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

    def open(self, target: Target, now: float) -> tuple[int, list[Effect]]:
        """Ask the server for a session. Raises TunnelError."""
        if not self.ready:
            raise TunnelError("the tunnel is not up yet")
        if self._wire is WireVersion.V0_1 and not self.server_has_handler:
            raise TunnelError("the server has no handler")
        if len(self._outgoing_requests) >= self._limits.max_pending:
            raise TunnelError("too many sessions are being set up")
        session = Session(self._tags.take(), target)
        self._outgoing_requests[session.tag] = session
        self._deadlines.append((now + self._limits.set_up_within, session))
        return session.tag, [Send(session)]

    def abandon(self, tag: int) -> None:
        """Whoever asked wants it no more. Servers are not told: an error for a tag they let go blocks some for ever."""
        self._outgoing_requests.pop(tag, None)

    def respond(self, tag: int, error: str | None) -> list[Effect]:
        """The handler takes the server's session, or refuses it."""
        session = self._incoming_requests.pop(tag, None)
        if session is None:
            return []
        if error is not None:
            return [Send(Session(tag, session.target, error=error))]
        return [OpenStream(tag, session.target)]

    def on_stream_failed(self, tag: int, target: Target, error: str) -> list[Effect]:
        """The stream that was to carry the server's session could not be opened: it is told at once."""
        return [Send(Session(tag, target, error=error))] if tag > 0 else []

    def wake_at(self) -> float | None:
        """When `expire` has something to do."""
        while self._deadlines and not self._is_pending(self._deadlines[0][1]):
            self._deadlines.popleft()
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> list[Effect]:
        """Give up set-ups whose time is over."""
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
        """Register is over: who still waits is told."""
        effects: list[Effect] = [SessionFailed(tag, reason) for tag in self._outgoing_requests]
        self._outgoing_requests.clear()
        self._incoming_requests.clear()
        return effects

    def _on_session(self, message: Session, now: float) -> list[Effect]:
        tag, target = message.tag, message.target
        if message.malformed_reason:
            self._incoming_requests.pop(tag, None)
            effects: list[Effect] = [Send(Session(tag, target, error=message.malformed_reason))]
            is_ours = self._outgoing_requests.pop(tag, None) is not None
            return [*effects, SessionFailed(tag, message.malformed_reason)] if is_ours else effects
        if tag < 0:
            return self._on_session_response(message)
        if message.error:  # the server gave up on what it asked
            self._incoming_requests.pop(tag, None)
            return []
        error = self._rejection_reason(message)
        if error:
            return [Send(Session(tag, target, error=error))]
        self._incoming_requests[tag] = message
        self._deadlines.append((now + self._limits.set_up_within, message))
        return [AskHandler(tag, target)]

    def _rejection_reason(self, message: Session) -> str:
        if message.tag == 0:
            return "a server's tags are positive"
        if not message.accept:
            return "the session is not accepted by the server that asks for it"
        if not self._has_handler:
            return "this client has no handler"
        if message.tag in self._incoming_requests:
            return f"tag {message.tag} is in use"
        if len(self._incoming_requests) >= self._limits.max_pending:
            return "too many sessions are being set up"
        return ""

    def _on_session_response(self, message: Session) -> list[Effect]:
        request = self._outgoing_requests.get(message.tag)
        if request is None:
            return []  # late: its caller is gone
        if not (message.accept or message.error):
            return []  # neither yes nor no
        del self._outgoing_requests[message.tag]
        if message.error:
            return [SessionFailed(message.tag, message.error)]
        return [OpenStream(message.tag, request.target)]

    def _is_pending(self, session: Session) -> bool:
        # By itself: a server may use a tag again, and then another deadline is the tag's.
        return (self._incoming_requests if session.tag > 0 else self._outgoing_requests).get(session.tag) is session
