"""What calls of a gateway need of the gateway around them. docs/gateway.md"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleet.nodes.gateway.sessions import Sessions
from fleet.nodes.shared.pump import Tasks
from fleet.protocol.retry.grpc_http2 import Status
from fleet.protocol.retry.policy import RetryPolicy
from fleet.protocol.retry.route_table import RouteEntry
from fleet.transport.destinations import Destinations, Pool
from fleet.transport.http2.backend_dialer import BackendDialer


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A rule, ready for calls."""

    route_entry: RouteEntry
    policy: RetryPolicy
    pool: Pool
    #: None: each call of the rule is picked for anew.
    sessions: Sessions | None = None

    @property
    def name(self) -> str:
        """For metrics and sentences."""
        return self.route_entry.name


class OpenCall(Protocol):
    """A call under way."""

    #: When it came, by the monotonic clock.
    began_at: float

    def end(self, reason: str) -> None:
        """End it with UNAVAILABLE and this sentence."""


class CallContext(Protocol):
    """The gateway around its calls."""

    max_message: int
    tasks: Tasks
    destinations: Destinations

    def chance(self) -> float:
        """A number in [0, 1)."""
        ...

    def find(self, authority: str, path: str) -> Entry | None:
        """The rule for a call."""

    def dialer(self, name: str) -> BackendDialer:
        """The connections to an address."""
        ...

    def record_first_attempt(self, now: float) -> None:
        """Count a first try."""

    def allow_retry(self, now: float) -> bool:
        """Whether a retry may be sent; it is counted if so."""
        ...

    def record_retry(self, entry: Entry, status: Status) -> None:
        """A try is followed by another."""

    def record_stream_method(self, path: str) -> None:
        """Remember a method whose answer is a stream."""

    def on_call_end(self, call: OpenCall, entry: Entry | None, status: str) -> None:
        """A call is over."""
