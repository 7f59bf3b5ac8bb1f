"""Edge instances (gateways and tunnel servers): what they report on their diag ports, and their state. Pure.

They have no agents of their own, so they are in no verdict, count or map: docs/reference/edge-instances.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import InstanceState

#: Failed polls in a row after which an edge instance is not responding, as for auths and proxies.
SILENT_AFTER = 2


class EdgeInstanceKind(StrEnum):
    """Gateway or tunnel server. A poll finds the kind, so nobody enters it."""

    GATEWAY = "gateway"
    TUNNEL_SERVER = "tunnel-server"

    @property
    def label(self) -> str:
        """Return the noun on pages: `tunnel server`."""
        return self.value.replace("-", " ")


@dataclass(frozen=True, slots=True)
class RouteRetry:
    """Retry policy of a rule."""

    #: Retries after the first attempt.
    attempts: int
    #: `unavailable`; empty: the default ones.
    reasons: tuple[str, ...]
    #: Seconds before the first retry.
    backoff: float


@dataclass(frozen=True, slots=True)
class RouteRule:
    """A rule of a gateway, with its counters since the gateway started."""

    name: str
    hostnames: tuple[str, ...]
    #: `service/method`, with `*` for all.
    matches: tuple[str, ...]
    #: Share of the calls, 0 to 1, by backend and address.
    shares: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]
    #: None: its calls are not retried, or the gateway does not report it.
    retry: RouteRetry | None = None
    #: Seconds for the whole call and for each attempt; 0: no timeout.
    request_timeout: float = 0.0
    attempt_timeout: float = 0.0
    call_count: int = 0
    #: Retried attempts by the status that they ended with.
    retry_counts: tuple[tuple[str, int], ...] = ()

    @property
    def retry_count(self) -> int:
        """Return the number of retried attempts."""
        return sum(count for _, count in self.retry_counts)


@dataclass(frozen=True, slots=True)
class GatewayDestination:
    """An address that a gateway sends calls to."""

    address: str
    #: `name:port` of the backends that it belongs to.
    backends: tuple[str, ...]
    health: Health
    #: Why it has this health, as a clause.
    reason: str
    #: Error of the last probe; empty without one.
    error: str
    is_draining: bool
    connection_count: int
    #: A rule has it, and none gives it a share of the calls.
    is_ejected: bool = False


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """What a gateway reports: `/routes` and `/destinations`."""

    routes_file: str
    #: Errors of the routes file: the gateway keeps the previous rules.
    problems: tuple[str, ...]
    #: When the current rules were loaded, seconds since the epoch; None: not reported.
    loaded_at: float | None
    #: Calls in progress.
    open_call_count: int
    rules: tuple[RouteRule, ...]
    destinations: tuple[GatewayDestination, ...]
    #: Backends without an address.
    unresolved_backends: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of its line in the list."""
        return {
            "rules": len(self.rules),
            "destinations": len(self.destinations),
            "ejected": sum(destination.is_ejected for destination in self.destinations),
            "problems": len(self.problems) + len(self.unresolved_backends),
        }


@dataclass(frozen=True, slots=True)
class TunnelTarget:
    """A target of a tunnel server."""

    #: `NAME` or `NAME:TYPE`.
    name: str
    is_registered: bool
    #: Name of the client that registered it; empty without one.
    client: str
    #: host:port of its service, if the server itself serves it.
    service: str
    #: host:port of the local port that leads to it; empty without one.
    forward: str
    session_count: int

    @property
    def is_missing(self) -> bool:
        """Return whether a local port leads to it, but nobody serves it."""
        return bool(self.forward) and not self.is_registered and not self.service


@dataclass(frozen=True, slots=True)
class TunnelServerReport:
    """What a tunnel server reports: `/targets`."""

    client_count: int
    #: Versions of the protocol.
    wires: tuple[str, ...]
    targets: tuple[TunnelTarget, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of its line in the list."""
        return {
            "clients": self.client_count,
            "targets": sum(target.is_registered for target in self.targets),
            "sessions": sum(target.session_count for target in self.targets),
            "missing": sum(target.is_missing for target in self.targets),
        }


EdgeReport = GatewayReport | TunnelServerReport


@dataclass(frozen=True, slots=True)
class EdgePoll:
    """Results of polling an edge instance. Times are seconds since the epoch."""

    name: str
    #: host:port of its diag port.
    address: str
    #: End of the last attempt; 0: never polled.
    at: float = 0.0
    #: End of the last attempt with a response; None without one.
    answered_at: float | None = None
    #: Failed attempts in a row.
    failure_count: int = 0
    #: Why the last attempt failed, or what is wrong with the response; empty if nothing is.
    error: str = ""
    #: Last status code of `/readyz`; None without a response.
    readyz: int | None = None
    #: None until it reported something.
    kind: EdgeInstanceKind | None = None
    #: Numbers of the last report by their name.
    counts: Mapping[str, int] | None = None

    def state(self, now: float, stale_after: float) -> InstanceState:
        """Return the state at `now`; a poll that is older than `stale_after` seconds tells nothing."""
        if not self.at or now - self.at > stale_after:
            return InstanceState.UNKNOWN
        if self.failure_count >= SILENT_AFTER:
            return InstanceState.SILENT
        if self.answered_at is None:
            return InstanceState.UNKNOWN
        if self.failure_count:
            # As before the failure: one attempt alone may have met a busy machine.
            return InstanceState.OK if self.readyz == 200 else InstanceState.UNHEALTHY
        return InstanceState.UNHEALTHY if self.error or self.readyz != 200 else InstanceState.OK


@dataclass(frozen=True, slots=True)
class EdgeResponse:
    """Result of one attempt."""

    #: Status code of `/readyz`; None: there was no response at all.
    readyz: int | None
    report: EdgeReport | None
    error: str


def poll_after(previous: EdgePoll, response: EdgeResponse, at: float) -> EdgePoll:
    """Return the poll after an attempt that ended at `at`. What the instance reported last stays."""
    if response.readyz is None:
        return replace(previous, at=at, failure_count=previous.failure_count + 1, error=response.error)
    poll = replace(
        previous,
        at=at,
        answered_at=at,
        failure_count=0,
        error=response.error,
        readyz=response.readyz,
    )
    if response.report is None:
        return poll
    is_gateway = isinstance(response.report, GatewayReport)
    kind = EdgeInstanceKind.GATEWAY if is_gateway else EdgeInstanceKind.TUNNEL_SERVER
    return replace(poll, kind=kind, counts=response.report.counts)
