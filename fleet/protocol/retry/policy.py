"""Retries of unary gRPC calls as GEP-3440 has them: which failures, how often, how long between, until when. Pure.

https://github.com/kubernetes-sigs/gateway-api/issues/3440, with the timeouts of GEP-1742 and the pushback of gRPC's A6.
docs/retries.md says where the texts leave a choice and what was chosen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Self

#: Trailer by which a server says when to try again, or that nobody should.
PUSHBACK = "grpc-retry-pushback-ms"
#: Metadata of a retry: how many tries were before it.
PREVIOUS_ATTEMPTS = "grpc-previous-rpc-attempts"

#: What Envoy, Linkerd and Google's gateway do when nobody says how often.
DEFAULT_ATTEMPTS = 1
#: Envoy's base interval. Seconds.
DEFAULT_BACKOFF = 0.025

#: Waits double up to the longest there is, whatever the first one was; this only keeps the exponent from overflowing.
_DOUBLINGS = 1000
#: As long as a duration of the Gateway API may be; clocks and timers of every system can wait so long. Seconds.
_LONGEST = 99_999 * 3600.0
#: A timer may ring, and the answer of a server with the same deadline may come, so much early. Seconds.
EARLY_TOLERANCE = 0.010


class UnknownReasonError(ValueError):
    """A word that is not a reason to retry; `meant` is the reason it may stand for."""

    def __init__(self, text: str, suggestion: RetryReason | None) -> None:
        choice = f"write {suggestion}" if suggestion else f"write one of {', '.join(RetryReason)}"
        super().__init__(f"{text!r} is not a reason to retry: {choice}")


class RetryReason(StrEnum):
    """The gRPC statuses that may be retried, in the words of the enumeration in the GEP's schema."""

    CANCELLED = "cancelled"
    DEADLINE_EXCEEDED = "deadline-exceeded"
    INTERNAL = "internal"
    RESOURCE_EXHAUSTED = "resource-exhausted"
    UNAVAILABLE = "unavailable"

    @classmethod
    def read(cls, text: str) -> Self:
        """Read one of the GEP's five words, exactly. Raises UnknownReason, which names the word for a gRPC status."""
        if text not in set(cls):
            raise UnknownReasonError(text, cls.of_status(text))
        return cls(text)

    @classmethod
    def of_status(cls, name: str) -> Self | None:
        """The reason of gRPC's status of this name; None if that may never be retried."""
        plain = name.lower().replace("_", "-")
        plain = "cancelled" if plain == "canceled" else plain
        return cls(plain) if plain in set(cls) else None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How to retry. Seconds; a timeout of 0 is none (GEP-1742)."""

    #: Empty: failures that are commonly transient, which are `unavailable` and the timeout of a try.
    reasons: frozenset[RetryReason] = frozenset()
    #: Retries after the first try.
    attempts: int = DEFAULT_ATTEMPTS
    #: The least wait between the end of a try and the next; each further wait is at least twice as long.
    backoff: float = DEFAULT_BACKOFF
    #: For all tries and waits together.
    request: float = 0.0
    #: For each try.
    backend_request: float = 0.0
    #: A wait is drawn from its least to so many times that; below 2, so that waits grow always.
    spread: float = 1.5

    def __post_init__(self) -> None:
        """Refuse what no call could obey. Raises ValueError."""
        if self.attempts < 0:
            raise ValueError(f"attempts: {self.attempts} is negative")
        for name in ("backoff", "request", "backend_request"):
            if not 0 <= getattr(self, name) < _LONGEST + 3600:
                raise ValueError(f"{name}: {getattr(self, name)} is not a time from 0 s to 99999 h")
        if not 1 <= self.spread < 2:
            raise ValueError(f"spread: {self.spread} is not from 1 to less than 2")

    def wait(self, retry: int, chance: float) -> float:
        """The wait before a retry, counted from 1; `chance` is in [0, 1). Never less than `backoff`."""
        least = self.backoff * 2.0 ** min(retry - 1, _DOUBLINGS)
        return min(least * (1 + (self.spread - 1) * chance), max(_LONGEST, self.backoff))

    def retries(self, status: str, *, timed_out: bool) -> bool:
        """Whether a try that ended so may be followed by another; `timed_out` is by `backend_request`."""
        reason = RetryReason.of_status(status)
        if self.reasons:
            return reason in self.reasons
        return timed_out or reason is RetryReason.UNAVAILABLE


#: Calls as they are without us.
NO_RETRY = RetryPolicy(attempts=0)


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try again, not before so many seconds from now."""

    wait: float


@dataclass(frozen=True, slots=True)
class Finish:
    """Give the caller what the last try gave."""


@dataclass(frozen=True, slots=True)
class DeadlineExceeded:
    """Tell the caller DEADLINE_EXCEEDED, with this sentence."""

    details: str


RetryDecision = RetryAfter | Finish | DeadlineExceeded


class Bound(Enum):
    """Which limit ends a try that takes too long."""

    #: The deadline that the caller sent with the call.
    CALLER = auto()
    #: `request`, of the whole call.
    REQUEST = auto()
    #: `backend_request`, of each try.
    TRY = auto()


class Tries:
    """The tries of one call; `now` is of a clock that never jumps."""

    def __init__(self, policy: RetryPolicy, now: float, timeout: float | None = None) -> None:
        """Begin a call; `timeout` is the caller's own, in seconds."""
        self._policy = policy
        self._whole: float | None = timeout
        self._whole_bound = None if timeout is None else Bound.CALLER
        # Of equal limits the caller's counts: what the caller wants is never held against a backend.
        if policy.request and (timeout is None or policy.request < timeout):
            self._whole, self._whole_bound = policy.request, Bound.REQUEST
        self._until = None if self._whole is None else now + self._whole
        self._started_at = now
        self._timeout: float | None = None
        self._cause = ""
        self.try_count = 0
        #: Which limit the timeout of the last try comes from; None: it has no timeout.
        self.bound: Bound | None = None

    def start(self, now: float) -> float | None:
        """Begin a try; the timeout to make it with, in seconds, None for none."""
        remaining = None if self._until is None else max(self._until - now, 0.0)
        per_try = self._policy.backend_request or None
        if per_try is not None and (remaining is None or per_try < remaining):
            self._timeout, self.bound = per_try, Bound.TRY
        else:
            self._timeout, self.bound = remaining, self._whole_bound
        self._started_at = now
        self.try_count += 1
        return self._timeout

    def judge(
        self, now: float, chance: float, status: str, details: str = "", pushback: str | None = None
    ) -> RetryDecision:
        """Judge the try that ended with this status; `pushback` is the server's trailer, if it sent one."""
        if status == "OK":
            return Finish()
        is_deadline_exceeded = RetryReason.of_status(status) is RetryReason.DEADLINE_EXCEEDED
        if is_deadline_exceeded and self._until is not None and now >= self._until - EARLY_TOLERANCE:
            # The whole time is over. The try says so itself, but not what made it a late one.
            sentence = f"{self._limit} is over (tries: {self.try_count}); the try before failed with {self._cause}"
            return DeadlineExceeded(sentence) if self._cause else Finish()
        if not self._policy.retries(status, timed_out=is_deadline_exceeded and self._is_timeout_over(now)):
            return Finish()
        if self.try_count > self._policy.attempts:
            return Finish()
        wait = self._wait(chance, pushback)
        if wait is None:
            return Finish()
        self._cause = f"{status}: {details}" if details else status
        if self._until is not None and now + wait >= self._until:
            return DeadlineExceeded(
                f"{self._limit} would be over before the next try, which must wait {wait:.3g} s"
                f" (tries: {self.try_count}); the last try failed with {self._cause}"
            )
        return RetryAfter(wait)

    @property
    def _limit(self) -> str:
        name = "the caller's deadline" if self._whole_bound is Bound.CALLER else "the request timeout"
        return f"{name} of {self._whole:.3g} s"

    def _is_timeout_over(self, now: float) -> bool:
        return self._timeout is not None and now >= self._started_at + self._timeout - EARLY_TOLERANCE

    def _wait(self, chance: float, pushback: str | None) -> float | None:
        if pushback is None:
            return self._policy.wait(self.try_count, chance)
        # A6: negative or unreadable means that the server wants no retry.
        if re.fullmatch(r"[0-9]{1,10}", pushback) is None:
            return None
        return max(int(pushback) / 1000, self._policy.backoff)
