"""What calls of a gateway need of the gateway around them. docs/gateway.md"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleet.nodes.gateway.sessions import Sessions
from fleet.nodes.shared.pump import Tasks
from fleet.protocol.retry.grpc_http2 import Status
from fleet.protocol.retry.policy import Policy
from fleet.protocol.retry.route_table import Found
from fleet.transport.destinations import Destinations, Pool
from fleet.transport.http2.backend_dialer import Dialer


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A rule, ready for calls."""

    found: Found
    policy: Policy
    pool: Pool
    #: None: each call of the rule is picked for anew.
    sessions: Sessions | None = None

    @property
    def name(self) -> str:
        """For metrics and sentences."""
        return self.found.name


class OpenCall(Protocol):
    """A call under way."""

    #: When it came, by the monotonic clock.
    began_at: float

    def end(self, why: str) -> None:
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

    def dialer(self, name: str) -> Dialer:
        """The connections to an address."""
        ...

    def budget_first(self, now: float) -> None:
        """Count a first try."""

    def budget_allows(self, now: float) -> bool:
        """Whether a retry may be sent; it is counted if so."""
        ...

    def retried(self, entry: Entry, status: Status) -> None:
        """A try is followed by another."""

    def saw_stream(self, path: str) -> None:
        """Remember a method whose answer is a stream."""

    def ended(self, call: OpenCall, entry: Entry | None, status: str) -> None:
        """A call is over."""
