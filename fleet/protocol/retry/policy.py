"""Retries of unary gRPC calls by GEP-3440: which failures, how many attempts, waits and deadlines. Pure.

https://github.com/kubernetes-sigs/gateway-api/issues/3440, with the timeouts of GEP-1742 and the pushback of gRFC A6.
docs/reference/retries.md lists where these texts leave a choice, and our choices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Self

#: Trailer in which a server says when to retry, or that clients must not.
PUSHBACK = "grpc-retry-pushback-ms"
#: Metadata of a retry: the number of earlier attempts.
PREVIOUS_ATTEMPTS = "grpc-previous-rpc-attempts"

#: Number of retries; Envoy, Linkerd and Google's gateway have the same default.
DEFAULT_ATTEMPTS = 1
#: Envoy's base interval, seconds.
DEFAULT_BACKOFF = 0.025

#: Waits double until the maximum; this only keeps the exponent from overflowing.
_MAX_DOUBLINGS = 1000
#: Longest duration of the Gateway API, seconds; clocks and timers of every system support it.
_LONGEST_DURATION = 99_999 * 3600.0
#: Seconds by which a timer may fire early, or the response of a server with the same deadline may arrive early.
EARLY_TOLERANCE = 0.010


class UnknownReasonError(ValueError):
    """A text that is not a retry reason; the message suggests the correct spelling."""

    def __init__(self, text: str, suggestion: RetryReason | None) -> None:
        choice = f"Use {suggestion}" if suggestion else f"Use one of {', '.join(RetryReason)}"
        super().__init__(f"{text!r} is not a retry reason. {choice}")


class RetryReason(StrEnum):
    """The gRPC statuses that may be retried, as spelled in the GEP's schema."""

    CANCELLED = "cancelled"
    DEADLINE_EXCEEDED = "deadline-exceeded"
    INTERNAL = "internal"
    RESOURCE_EXHAUSTED = "resource-exhausted"
    UNAVAILABLE = "unavailable"

    @classmethod
    def read(cls, text: str) -> Self:
        """Return one of the GEP's five reasons by its exact spelling. Raises UnknownReasonError."""
        if text not in set(cls):
            raise UnknownReasonError(text, cls.of_status(text))
        return cls(text)

    @classmethod
    def of_status(cls, name: str) -> Self | None:
        """Return the reason of a gRPC status name; None if that status must not be retried."""
        plain = name.lower().replace("_", "-")
        plain = "cancelled" if plain == "canceled" else plain
        return cls(plain) if plain in set(cls) else None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retry policy of a call. Seconds; a timeout of 0 means none (GEP-1742)."""

    #: Empty: only transient failures, which are `unavailable` and a timeout of the attempt.
    reasons: frozenset[RetryReason] = frozenset()
    #: Maximum retries after the first attempt.
    attempts: int = DEFAULT_ATTEMPTS
    #: Minimum wait between the end of an attempt and the next; each further wait is at least twice as long.
    backoff: float = DEFAULT_BACKOFF
    #: Timeout of all attempts and waits together.
    request: float = 0.0
    #: Timeout of each attempt.
    backend_request: float = 0.0
    #: A wait is random between its minimum and this multiple of it; below 2, so that waits always grow.
    spread: float = 1.5

    def __post_init__(self) -> None:
        """Raise ValueError for values that no call can satisfy."""
        if self.attempts < 0:
            raise ValueError(f"attempts: {self.attempts} is negative. Use 0 or more")
        for name in ("backoff", "request", "backend_request"):
            if not 0 <= getattr(self, name) < _LONGEST_DURATION + 3600:
                raise ValueError(f"{name}: {getattr(self, name)} is out of range. Use 0 s to 99999 h")
        if not 1 <= self.spread < 2:
            raise ValueError(f"spread: {self.spread} is out of range. Use 1 to less than 2")

    def wait(self, retry: int, chance: float) -> float:
        """Return the seconds before a retry, counted from 1; `chance` is in [0, 1). Never less than `backoff`."""
        least = self.backoff * 2.0 ** min(retry - 1, _MAX_DOUBLINGS)
        return min(least * (1 + (self.spread - 1) * chance), max(_LONGEST_DURATION, self.backoff))

    def may_retry(self, status: str, *, timed_out: bool) -> bool:
        """Return whether an attempt with this status may be retried; `timed_out`: by `backend_request`."""
        reason = RetryReason.of_status(status)
        if self.reasons:
            return reason in self.reasons
        return timed_out or reason is RetryReason.UNAVAILABLE


#: No retries and no timeouts.
NO_RETRY = RetryPolicy(attempts=0)


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Retry after `wait` seconds."""

    wait: float


@dataclass(frozen=True, slots=True)
class Finish:
    """Return the result of the last attempt to the caller."""


@dataclass(frozen=True, slots=True)
class DeadlineExceeded:
    """Return DEADLINE_EXCEEDED to the caller, with these details."""

    details: str


RetryDecision = RetryAfter | Finish | DeadlineExceeded


class TimeoutKind(Enum):
    """Limit that ends an attempt."""

    #: The caller's own deadline.
    CALLER = auto()
    #: `request`, for the whole call.
    REQUEST = auto()
    #: `backend_request`, for each attempt.
    ATTEMPT = auto()


class RetryState:
    """The attempts of one call; `now` is of a monotonic clock."""

    def __init__(self, policy: RetryPolicy, now: float, timeout: float | None = None) -> None:
        """Begin a call; `timeout` is the caller's own, in seconds."""
        self._policy = policy
        self._total_timeout: float | None = timeout
        self._total_timeout_kind = None if timeout is None else TimeoutKind.CALLER
        # Of equal limits the caller's counts: a caller's deadline is never held against a backend.
        if policy.request and (timeout is None or policy.request < timeout):
            self._total_timeout, self._total_timeout_kind = policy.request, TimeoutKind.REQUEST
        self._deadline = None if self._total_timeout is None else now + self._total_timeout
        self._started_at = now
        self._timeout: float | None = None
        self._last_failure = ""
        self.try_count = 0
        #: Limit that the timeout of the last attempt comes from; None: it has no timeout.
        self.timeout_kind: TimeoutKind | None = None

    def start_try(self, now: float) -> float | None:
        """Begin an attempt; return its timeout in seconds, None for none."""
        remaining = None if self._deadline is None else max(self._deadline - now, 0.0)
        per_try = self._policy.backend_request or None
        if per_try is not None and (remaining is None or per_try < remaining):
            self._timeout, self.timeout_kind = per_try, TimeoutKind.ATTEMPT
        else:
            self._timeout, self.timeout_kind = remaining, self._total_timeout_kind
        self._started_at = now
        self.try_count += 1
        return self._timeout

    def decide(
        self, now: float, chance: float, status: str, details: str = "", pushback: str | None = None
    ) -> RetryDecision:
        """Return what follows an attempt with this status; `pushback` is the server's trailer, if any."""
        if status == "OK":
            return Finish()
        is_deadline_exceeded = RetryReason.of_status(status) is RetryReason.DEADLINE_EXCEEDED
        if is_deadline_exceeded and self._deadline is not None and now >= self._deadline - EARLY_TOLERANCE:
            # The whole time is over. The attempt's own error says so, but not why earlier attempts failed.
            sentence = (
                f"{self._limit_text} expired (attempts: {self.try_count}); the previous attempt failed with "
                f"{self._last_failure}"
            )
            return DeadlineExceeded(sentence) if self._last_failure else Finish()
        if not self._policy.may_retry(status, timed_out=is_deadline_exceeded and self._is_timeout_over(now)):
            return Finish()
        if self.try_count > self._policy.attempts:
            return Finish()
        wait = self._wait(chance, pushback)
        if wait is None:
            return Finish()
        self._last_failure = f"{status}: {details}" if details else status
        if self._deadline is not None and now + wait >= self._deadline:
            return DeadlineExceeded(
                f"{self._limit_text} would expire before the next attempt, which must wait {wait:.3g} s"
                f" (attempts: {self.try_count}); the last attempt failed with {self._last_failure}"
            )
        return RetryAfter(wait)

    @property
    def _limit_text(self) -> str:
        name = (
            "the caller's deadline"
            if self._total_timeout_kind is TimeoutKind.CALLER
            else "the request timeout"
        )
        return f"{name} of {self._total_timeout:.3g} s"

    def _is_timeout_over(self, now: float) -> bool:
        return self._timeout is not None and now >= self._started_at + self._timeout - EARLY_TOLERANCE

    def _wait(self, chance: float, pushback: str | None) -> float | None:
        if pushback is None:
            return self._policy.wait(self.try_count, chance)
        # gRFC A6: a negative or unreadable value means that the server wants no retry.
        if re.fullmatch(r"[0-9]{1,10}", pushback) is None:
            return None
        return max(int(pushback) / 1000, self._policy.backoff)
