"""What a call needs of the gateway around it. docs/reference/gateway.md"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fleet.nodes.gateway.sessions import SessionTokens
from fleet.nodes.shared.pump import Tasks
from fleet.protocol.retry.grpc_http2 import Status
from fleet.protocol.retry.policy import RetryPolicy
from fleet.protocol.retry.route_table import RouteEntry
from fleet.transport.destinations import DestinationPool, Destinations
from fleet.transport.http2.backend_dialer import BackendDialer


@dataclass(frozen=True, slots=True, eq=False)
class GatewayRule:
    """A rule with its policy and its pool of backends."""

    route_entry: RouteEntry
    policy: RetryPolicy
    pool: DestinationPool
    #: Session persistence of the rule; None: each call is picked anew.
    session_tokens: SessionTokens | None = None
    #: Name of the rule, for metrics and messages.
    name: str = field(init=False)

    def __post_init__(self) -> None:
        """Make the name once: each call counts by it."""
        object.__setattr__(self, "name", self.route_entry.name)


class OpenCall(Protocol):
    """A call in progress."""

    #: When the call arrived, by the monotonic clock.
    began_at: float

    def end(self, reason: str) -> None:
        """End the call with UNAVAILABLE and this message."""


class CallContext(Protocol):
    """The gateway around its calls."""

    max_message: int
    tasks: Tasks
    destinations: Destinations

    def chance(self) -> float:
        """Return a random number in [0, 1)."""
        ...

    def call_later(
        self, seconds: float, callback: Callable[[float], None], argument: float
    ) -> asyncio.Handle:
        """Call back with the argument in so many seconds: timeouts, and waits before retries."""
        ...

    def find_rule(self, authority: str, path: str) -> GatewayRule | None:
        """Return the rule of a call; None if no rule matches."""

    def dialer_of(self, address: str) -> BackendDialer:
        """Return the connections to an address."""
        ...

    def record_first_attempt(self, now: float) -> None:
        """Count a first attempt in the retry budget."""

    def allow_retry(self, now: float) -> bool:
        """Return whether a retry may be sent, and count it if so."""
        ...

    def record_retry(self, rule: GatewayRule, status: Status) -> None:
        """Count an attempt that is retried."""

    def record_stream_method(self, path: str) -> None:
        """Remember a method whose response is a stream."""

    def on_call_end(self, call: OpenCall, rule: GatewayRule | None, status: str) -> None:
        """Count the end of a call."""
