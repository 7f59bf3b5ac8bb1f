"""The health of one destination: Unknown, Healthy, Degraded, Unhealthy, made of repeated observations.

The diagram is the one proposed in https://github.com/dotnet/yarp/issues/2071, "Handle destination gray failures
better"; where its words may be read in two ways, `Settings` has both. Pure: every time is an argument, of one clock.
docs/destination-health.md has the table, the readings, and what each signal says.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto


class Health(StrEnum):
    """What is concluded of a destination."""

    UNKNOWN = auto()
    HEALTHY = auto()
    DEGRADED = auto()
    UNHEALTHY = auto()


class ProbeOutcome(StrEnum):
    """How one active probe ended: a timeout, a refusal and an error are all a failure."""

    SUCCESS = auto()
    DEGRADED = auto()
    FAILURE = auto()


class RequestOutcome(StrEnum):
    """How one proxied request ended. One that its client gave up says nothing: do not tell it."""

    SUCCESS = auto()
    #: The answer said that the destination would rather not be preferred.
    DEGRADED = auto()
    #: The destination was not reached, or did not answer as its protocol demands.
    FAILURE = auto()


class HealthReason(StrEnum):
    """Why a signal says what it says."""

    NOTHING_SEEN = "nothing seen yet"
    RESET = "started over"
    PROBE_SUCCEEDED = "the first probe succeeded"
    PROBE_FAILED = "the first probe failed"
    PROBE_DEGRADED = "a probe said degraded"
    FAILURES_IN_WINDOW = "too many of the last probes failed"
    FAILURES_IN_A_ROW = "probes failed in a row"
    SUCCESSES_IN_A_ROW = "probes succeeded in a row"
    ANSWERED_AGAIN = "a probe was answered again"
    PROXIED_DEGRADED = "a proxied request was answered as degraded"
    FAILURE_RATE = "too many proxied requests failed"
    DECLARED = "declared itself degraded"


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """When what is seen becomes what is concluded. Seconds. The defaults are the readings we recommend."""

    #: Consecutive probes that lead out of Degraded, either way.
    streak: int = 3
    #: Healthy becomes Degraded at the failing probe that makes `window_failures` of the past `window` ones.
    window: int = 5
    window_failures: int = 2
    #: "The past five" are five: while fewer were made, as soon after a start, failures are not counted yet.
    whole_window: bool = False
    #: Consecutive failures that lead from Unknown to Unhealthy; the diagram's one condemns what merely starts late.
    first_failures: int = 1
    #: "!= success" takes in a probe that said degraded: three of those in a row then end a destination that works.
    degraded_fails: bool = False
    #: Consecutive probes count from the entry to Degraded on, not those before it.
    streak_since_entry: bool = True
    #: Each entry to Healthy forgets the window: else one more failure soon after a recovery is the second of five.
    clear_window: bool = True
    #: So many proxied degraded results, the first and the last no further apart than `proxied_within`, are one word.
    proxied_needed: int = 1
    proxied_within: float = 10.0
    #: That word also stands beside the diagram for `declared_for`: without probes nothing else would keep it.
    proxied_stands: bool = True
    #: What a proxied request or the destination itself declared holds for this, unless it is said anew.
    declared_for: float = 60.0
    #: When this share of the proxied requests of the last `rate_window`, and `rate_minimum` of them at least, failed,
    #: it is Degraded until `reactivate_after`. YARP's TransportFailureRate, which knows no Degraded. None: it is not.
    failure_rate: float | None = 0.3
    #: When this share of those since then failed, it is Unhealthy for as long, then Degraded. None: it is not.
    #: Without a failure rate it is Unhealthy from the start, and not Degraded after it.
    unhealthy_rate: float | None = 0.8
    rate_window: float = 60.0
    rate_minimum: int = 10
    reactivate_after: float = 60.0
    #: A probe's result that is older than the last one by no more than this came late, and is dropped; by more than
    #: this, and the clock was set back: it counts.
    late_within: float = 30.0

    def __post_init__(self) -> None:
        least = min(self.streak, self.window_failures, self.first_failures, self.proxied_needed)
        if least < 1 or self.window_failures > self.window:
            raise ValueError(
                "a streak, a window and its failures are at least 1, and the failures fit the window"
            )
        for rate in (self.failure_rate, self.unhealthy_rate):
            if rate is not None and not (0 < rate <= 1 and self.rate_minimum >= 1):
                raise ValueError("a failure rate is above 0 and at most 1, of at least one request")
        if (self.failure_rate or 0) > (self.unhealthy_rate or 1):
            raise ValueError("the unhealthy rate is not below the failure rate, which is above 0")


RECOMMENDED_SETTINGS = HealthSettings()
#: The diagram word by word: probes and proxied requests say nothing beside it.
LITERAL_SETTINGS = HealthSettings(
    degraded_fails=True,
    streak_since_entry=False,
    clear_window=False,
    proxied_stands=False,
    failure_rate=None,
    unhealthy_rate=None,
)
#: What a flag or an environment variable may choose.
READINGS: Mapping[str, HealthSettings] = {"recommended": RECOMMENDED_SETTINGS, "literal": LITERAL_SETTINGS}


@dataclass(frozen=True, slots=True)
class HealthSignal:
    """What one kind of observation says, why, and since when."""

    health: Health
    reason: HealthReason
    at: float


@dataclass(frozen=True, slots=True)
class ActiveHealth:
    """The diagram: a value, to be stored from one probe to the next."""

    signal: HealthSignal
    #: What the last probes were taken for, the latest last; not more than the window.
    recent: tuple[ProbeOutcome, ...] = ()
    #: How many of the latest probes were alike, and what they were.
    streak: int = 0
    streak_of: ProbeOutcome | None = None
    probed_at: float | None = None

    def after_probe(self, outcome: ProbeOutcome, at: float, settings: HealthSettings) -> ActiveHealth:
        """Take in one evaluation; a probe that was skipped is none."""
        if self._is_late(at, settings):
            return self
        effective_outcome = ProbeOutcome.FAILURE if settings.degraded_fails and outcome is ProbeOutcome.DEGRADED else outcome
        state = replace(
            self,
            recent=(*self.recent, effective_outcome)[-settings.window :],
            streak=self.streak + 1 if effective_outcome is self.streak_of else 1,
            streak_of=effective_outcome,
            probed_at=at,
        )
        move = _move(state, outcome, settings)
        return state if move is None else _enter(state, *move, at, settings)

    def after_degraded_response(self, at: float, settings: HealthSettings) -> ActiveHealth:
        """Take in a proxied result "degraded": it moves Healthy only."""
        if self.signal.health is not Health.HEALTHY:
            return self
        return _enter(self, Health.DEGRADED, HealthReason.PROXIED_DEGRADED, at, settings)

    def _is_late(self, at: float, settings: HealthSettings) -> bool:
        if not math.isfinite(at):
            raise ValueError("a time is a finite number of seconds")
        return self.probed_at is not None and 0 < self.probed_at - at <= settings.late_within


def _start(at: float, reason: HealthReason) -> ActiveHealth:
    return ActiveHealth(HealthSignal(Health.UNKNOWN, reason, at))


def _move(state: ActiveHealth, outcome: ProbeOutcome, settings: HealthSettings) -> tuple[Health, HealthReason] | None:
    """The arrows of the diagram; everything else is no transition."""
    effective_outcome = state.recent[-1]
    match state.signal.health:
        case Health.UNKNOWN if effective_outcome is ProbeOutcome.FAILURE and settings.first_failures > 1:
            if state.streak >= settings.first_failures:
                return Health.UNHEALTHY, HealthReason.FAILURES_IN_A_ROW
        case Health.UNKNOWN:
            return _FIRST[effective_outcome]
        case Health.HEALTHY if outcome is ProbeOutcome.DEGRADED:
            return Health.DEGRADED, HealthReason.PROBE_DEGRADED
        case Health.HEALTHY if effective_outcome is ProbeOutcome.FAILURE:
            is_window_full = len(state.recent) == settings.window or not settings.whole_window
            if is_window_full and state.recent.count(ProbeOutcome.FAILURE) >= settings.window_failures:
                return Health.DEGRADED, HealthReason.FAILURES_IN_WINDOW
        case Health.DEGRADED if state.streak >= settings.streak:
            return _OUT_OF_DEGRADED.get(effective_outcome)
        case Health.UNHEALTHY if effective_outcome is not ProbeOutcome.FAILURE:
            return Health.DEGRADED, HealthReason.ANSWERED_AGAIN
    return None


def _enter(state: ActiveHealth, health: Health, reason: HealthReason, at: float, settings: HealthSettings) -> ActiveHealth:
    next_state = replace(state, signal=HealthSignal(health, reason, at))
    if settings.streak_since_entry:
        next_state = replace(next_state, streak=0, streak_of=None)
    if settings.clear_window and health is Health.HEALTHY:
        next_state = replace(next_state, recent=())
    return next_state


_FIRST = {
    ProbeOutcome.SUCCESS: (Health.HEALTHY, HealthReason.PROBE_SUCCEEDED),
    ProbeOutcome.DEGRADED: (Health.DEGRADED, HealthReason.PROBE_DEGRADED),
    ProbeOutcome.FAILURE: (Health.UNHEALTHY, HealthReason.PROBE_FAILED),
}
_OUT_OF_DEGRADED = {
    ProbeOutcome.SUCCESS: (Health.HEALTHY, HealthReason.SUCCESSES_IN_A_ROW),
    ProbeOutcome.FAILURE: (Health.UNHEALTHY, HealthReason.FAILURES_IN_A_ROW),
}


@dataclass(slots=True)
class _Second:
    """The proxied requests that ended in one second."""

    second: int
    requests: int = 0
    failures: int = 0


@dataclass(slots=True)
class _PassiveHealth:
    """What proxied requests say; it never says Healthy, for the diagram has no arrow for that."""

    settings: HealthSettings
    since: float
    seconds: deque[_Second] = field(default_factory=deque)
    degraded_response_times: deque[float] = field(default_factory=deque)
    degraded_at: float | None = None
    #: Since when too many requests fail, and when that was last seen.
    failing_since: float = 0.0
    failing_at: float | None = None
    unhealthy_at: float | None = None
    #: Probes that succeeded in a row since then, and when they were enough to use it again, as a Degraded one.
    successes: int = 0
    readmitted_at: float | None = None

    def record_degraded_response(self, at: float) -> bool:
        """Count one degraded result; whether it completes a word."""
        self.degraded_response_times.append(at)
        while len(self.degraded_response_times) > self.settings.proxied_needed:
            self.degraded_response_times.popleft()
        complete = len(self.degraded_response_times) == self.settings.proxied_needed
        if not (complete and abs(at - self.degraded_response_times[0]) <= self.settings.proxied_within):
            return False
        if self.settings.proxied_stands:
            if not _is_current(self.degraded_at, at, self.settings.declared_for):
                self.since = at
            self.degraded_at = at
        return True

    def count_request(self, at: float, *, is_failure: bool) -> None:
        """Count one request; what was on its way when a rate was exceeded is not held against what comes after."""
        settings = self.settings
        if settings.failure_rate is None and settings.unhealthy_rate is None:
            return
        is_out = _is_current(self.unhealthy_at, at, settings.reactivate_after)
        if is_out and self.readmitted_at is None:
            return
        second = int(at)
        # A request that is told late counts with the latest: else two clocks a second apart would fill the memory.
        if not self.seconds or not 0 <= self.seconds[-1].second - second < settings.rate_window:
            self.seconds.append(_Second(second))
            while abs(second - self.seconds[0].second) >= settings.rate_window:
                self.seconds.popleft()
        self.seconds[-1].requests += 1
        self.seconds[-1].failures += is_failure
        if is_failure:
            self._judge(at)

    def _judge(self, at: float) -> None:
        """Degraded by the failure rate first; Unhealthy by its own rate of the requests since then."""
        settings = self.settings
        requests = sum(second.requests for second in self.seconds)
        if requests < settings.rate_minimum:
            return
        share = sum(second.failures for second in self.seconds) / requests
        is_failing = _is_current(self.failing_at, at, settings.reactivate_after)
        may_end = is_failing or settings.failure_rate is None
        if may_end and settings.unhealthy_rate is not None and share >= settings.unhealthy_rate:
            self.unhealthy_at = at
            self.successes, self.readmitted_at = 0, None
            self.seconds.clear()
            if settings.failure_rate is not None:
                # When that is over it is Degraded for as long: it gets little at first, as after a probe.
                self.failing_since = self.failing_at = at + settings.reactivate_after
        elif settings.failure_rate is not None and share >= settings.failure_rate:
            if not is_failing:
                self.failing_since = at
                self.seconds.clear()
            self.failing_at = at

    def record_probe(self, outcome: ProbeOutcome, at: float) -> None:
        """Take in a probe that was sent at `at`: enough successes in a row shorten the time it is out."""
        if self.unhealthy_at is None or at <= self.unhealthy_at:
            return
        self.successes = self.successes + 1 if outcome is ProbeOutcome.SUCCESS else 0
        if self.successes >= self.settings.streak and self.readmitted_at is None:
            self.readmitted_at = at

    def forget_degraded_responses(self) -> None:
        """Probes were since answered well in a row: they are the newer evidence."""
        self.degraded_at = None
        self.degraded_response_times.clear()

    def signal(self, now: float) -> HealthSignal:
        lasts = self.settings.reactivate_after
        if self.unhealthy_at is not None and _is_current(self.unhealthy_at, now, lasts):
            if self.readmitted_at is not None:
                return HealthSignal(Health.DEGRADED, HealthReason.SUCCESSES_IN_A_ROW, self.readmitted_at)
            return HealthSignal(Health.UNHEALTHY, HealthReason.FAILURE_RATE, self.unhealthy_at)
        if _is_current(self.failing_at, now, lasts):
            return HealthSignal(Health.DEGRADED, HealthReason.FAILURE_RATE, self.failing_since)
        if _is_current(self.degraded_at, now, self.settings.declared_for):
            return HealthSignal(Health.DEGRADED, HealthReason.PROXIED_DEGRADED, self.since)
        return HealthSignal(Health.UNKNOWN, HealthReason.NOTHING_SEEN, self.since)


def _is_current(started_at: float | None, now: float, duration: float) -> bool:
    """Whether something said then still holds; a clock that is set back by more than `lasts` ends it, too."""
    return started_at is not None and abs(now - started_at) < duration


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """Someone wants no new sessions there: no matter of health."""

    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class DestinationVerdict:
    """All that is concluded of a destination, and from what."""

    #: The worst of the three signals; Unknown ones have no say.
    health: Health
    reason: HealthReason
    at: float
    active: HealthSignal
    passive: HealthSignal
    declaration: HealthSignal
    drain_request: DrainRequest | None


_BADNESS = {health: rank for rank, health in enumerate(Health)}


class Destination:
    """One destination, told what was seen of it. One caller at a time."""

    def __init__(self, at: float, settings: HealthSettings = RECOMMENDED_SETTINGS) -> None:
        self._settings = settings
        self._drain_request: DrainRequest | None = None
        self._active = _start(at, HealthReason.NOTHING_SEEN)
        self._passive = _PassiveHealth(settings, at)
        self._declaration = _Declaration(at, at, 0.0)

    @property
    def active(self) -> ActiveHealth:
        """Where it is in the diagram."""
        return self._active

    def record_probe(self, outcome: ProbeOutcome, at: float) -> None:
        """An active probe, sent at `at`, ended."""
        before = self._active
        self._active = before.after_probe(outcome, at, self._settings)
        if self._active is before:
            return  # it came late, and counts nowhere
        self._passive.record_probe(outcome, at)
        if self._active.signal is not before.signal and self._active.signal.health is Health.HEALTHY:
            self._passive.forget_degraded_responses()

    def record_request(self, outcome: RequestOutcome, at: float) -> None:
        """A proxied request ended."""
        if outcome is RequestOutcome.DEGRADED and self._passive.record_degraded_response(at):
            self._active = self._active.after_degraded_response(at, self._settings)
        self._passive.count_request(at, is_failure=outcome is RequestOutcome.FAILURE)

    def declare_degraded(self, at: float, duration: float | None = None) -> None:
        """It announced itself as degraded, other than in an answer, for so many seconds; None: `declared_for`."""
        before = self._declaration_signal(at)
        since = before.at if before.health is Health.DEGRADED else at
        duration = self._settings.declared_for if duration is None else duration
        self._declaration = _Declaration(since, at, duration)

    def withdraw(self, at: float) -> None:
        """It takes that back."""
        self._declaration = _Declaration(at, at, 0.0)

    def drain(self, reason: str, at: float) -> None:
        """An operator wants no new sessions there; the first one's reason stays."""
        if self._drain_request is None:
            self._drain_request = DrainRequest(reason, at)

    def undrain(self) -> None:
        """It takes new sessions again."""
        self._drain_request = None

    def reset(self, at: float) -> None:
        """Its address or its probes were changed, or it is probed no more: what was seen says nothing any longer."""
        self._active = _start(at, HealthReason.RESET)
        self._passive = _PassiveHealth(self._settings, at)
        self._declaration = _Declaration(at, at, 0.0)

    def verdict(self, now: float) -> DestinationVerdict:
        """What it is now: the worst signal, the earliest named of equals."""
        signals = self._active.signal, self._passive.signal(now), self._declaration_signal(now)
        worst = max(signals, key=lambda signal: _BADNESS[signal.health])
        return DestinationVerdict(worst.health, worst.reason, worst.at, *signals, self._drain_request)

    def _declaration_signal(self, now: float) -> HealthSignal:
        declaration = self._declaration
        if _is_current(declaration.at, now, declaration.duration):
            return HealthSignal(Health.DEGRADED, HealthReason.DECLARED, declaration.since)
        return HealthSignal(Health.UNKNOWN, HealthReason.NOTHING_SEEN, declaration.since)


@dataclass(frozen=True, slots=True)
class _Declaration:
    """Said at `at`, the first of an unbroken row at `since`; 0 seconds: nothing said."""

    since: float
    at: float
    duration: float
