"""GRPCRoute of the Gateway API with the retries of GEP-3440: its data model. Pure.

https://gateway-api.sigs.k8s.io/reference/spec/#grpcroute; `timeouts` are those of HTTPRoute (GEP-1742), which GRPCRoute
does not have yet. Fields without effect here are refused with their path, never ignored: docs/reference/retries.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fleet.protocol.retry.gep_duration import GepDuration
from fleet.protocol.retry.policy import DEFAULT_ATTEMPTS, DEFAULT_BACKOFF, NO_RETRY, RetryPolicy, RetryReason


@dataclass(frozen=True, slots=True)
class Retry:
    """`rules[].retry`; None or empty means not set."""

    reasons: tuple[RetryReason, ...] = ()
    attempts: int | None = None
    backoff: GepDuration | None = None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`rules[].timeouts`; None means not set."""

    request: GepDuration | None = None
    backend_request: GepDuration | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """`rules[].matches[].method`, exact match; an empty value matches all."""

    service: str = ""
    method: str = ""

    def matches(self, service: str, method: str) -> bool:
        """Return whether a call matches."""
        return self.service in {"", service} and self.method in {"", method}

    @property
    def precedence(self) -> tuple[int, int]:
        """Precedence, greater first: characters of the service, then of the method."""
        return len(self.service), len(self.method)


@dataclass(frozen=True, slots=True)
class BackendRef:
    """`rules[].backendRefs[]`."""

    name: str
    port: int
    weight: int = 1


class SessionType(StrEnum):
    """`sessionPersistence.type`: where a session's token is."""

    COOKIE = "Cookie"
    HEADER = "Header"


@dataclass(frozen=True, slots=True)
class SessionPersistence:
    """`rules[].sessionPersistence` (GEP-1619): calls of one session go to one address."""

    name: str = "refloat-session"
    #: The default of the GEP.
    kind: SessionType = SessionType.COOKIE


@dataclass(frozen=True, slots=True)
class GRPCRouteRule:
    """`rules[]`: the matches, retries, timeouts and backends of calls."""

    matches: tuple[Match, ...] = ()
    retry: Retry | None = None
    timeouts: Timeouts = Timeouts()
    backends: tuple[BackendRef, ...] = ()
    sessions: SessionPersistence | None = None

    @property
    def policy(self) -> RetryPolicy:
        """Retry policy of the rule: without `retry` no retries, but its timeouts apply."""
        request, per_try = (
            limit.seconds if limit else 0.0
            for limit in (self.timeouts.request, self.timeouts.backend_request)
        )
        if self.retry is None:
            return RetryPolicy(attempts=NO_RETRY.attempts, request=request, backend_request=per_try)
        return RetryPolicy(
            frozenset(self.retry.reasons),
            DEFAULT_ATTEMPTS if self.retry.attempts is None else self.retry.attempts,
            self.retry.backoff.seconds if self.retry.backoff else DEFAULT_BACKOFF,
            request,
            per_try,
        )


@dataclass(frozen=True, slots=True)
class GRPCRoute:
    """A GRPCRoute: its name, parents, host names and rules."""

    name: str
    namespace: str = ""
    parents: tuple[str, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[GRPCRouteRule, ...] = ()

    def rule_for(self, path: str) -> GRPCRouteRule | None:
        """Return the rule for a call of `/service/method`: the most specific match, then the first in the route."""
        service, _, method = path.removeprefix("/").rpartition("/")
        best_precedence, best_rule = (-1, -1), None
        for rule in self.rules:
            for match in rule.matches or (Match(),):
                if match.matches(service, method) and match.precedence > best_precedence:
                    best_precedence, best_rule = match.precedence, rule
        return best_rule

    def policy_for(self, path: str) -> RetryPolicy:
        """Return the retry policy for a call of `/service/method`; no retries without a rule."""
        rule = self.rule_for(path)
        return rule.policy if rule else NO_RETRY


@dataclass(frozen=True, slots=True)
class RouteProblem:
    """A validation problem with the path of its field: `spec.rules[0].retry.attempts`."""

    path: str
    sentence: str


class RouteError(ValueError):
    """A route that is not valid, with all its problems."""

    def __init__(self, problems: Iterable[RouteProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.path}: {problem.sentence}" for problem in self.problems))
