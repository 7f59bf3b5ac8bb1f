"""The health of one destination: Unknown, Healthy, Degraded or Unhealthy, derived from repeated observations.

The state diagram is the one proposed in https://github.com/dotnet/yarp/issues/2071, "Handle destination gray failures
better"; where the proposal is ambiguous, `HealthSettings` offers both readings. Pure: every time is an argument, all of
one clock. docs/reference/destination-health.md has the transition table, the readings and the meaning of each signal.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto


class Health(StrEnum):
    """Health of a destination, as concluded from its signals."""

    UNKNOWN = auto()
    HEALTHY = auto()
    DEGRADED = auto()
    UNHEALTHY = auto()


class ProbeOutcome(StrEnum):
    """Result of one active probe; a timeout, a refused connection and an error are all FAILURE."""

    SUCCESS = auto()
    DEGRADED = auto()
    FAILURE = auto()


class RequestOutcome(StrEnum):
    """Result of one proxied request. Do not record a request that its client cancelled: it shows nothing."""

    SUCCESS = auto()
    #: The response marked the destination as degraded.
    DEGRADED = auto()
    #: The destination was not reached, or violated its protocol.
    FAILURE = auto()


class HealthReason(StrEnum):
    """Why a signal has its health; the text is part of sentences and a metric label."""

    NOTHING_SEEN = "no observations yet"
    RESET = "the observations were reset"
    PROBE_SUCCEEDED = "the first probe succeeded"
    PROBE_FAILED = "the first probe failed"
    PROBE_DEGRADED = "a probe reported degraded"
    FAILURES_IN_WINDOW = "too many of the last probes failed"
    FAILURES_IN_A_ROW = "probes failed in a row"
    SUCCESSES_IN_A_ROW = "probes succeeded in a row"
    ANSWERED_AGAIN = "a probe no longer failed"
    PROXIED_DEGRADED = "the response to a proxied request reported degraded"
    FAILURE_RATE = "too many proxied requests failed"
    DECLARED = "declared itself degraded"


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Thresholds that turn observations into health. Seconds. The defaults are the recommended readings."""

    #: Consecutive equal probes that end Degraded, to Healthy or to Unhealthy.
    streak_length: int = 3
    #: Healthy becomes Degraded at the failed probe that makes `window_failures` of the last `window_size` probes.
    window_size: int = 5
    window_failures: int = 2
    #: True: count failures only after `window_size` probes were made (not soon after a start).
    require_full_window: bool = False
    #: Consecutive failures from Unknown to Unhealthy. The diagram's value, 1, also fails an instance that starts
    #: slowly.
    failures_from_unknown: int = 1
    #: True: a degraded probe counts as a failure ("!= success"); three in a row then make a working destination
    #: Unhealthy.
    count_degraded_as_failure: bool = False
    #: True: count consecutive probes from the entry to Degraded; False: also those before it.
    streak_since_entry: bool = True
    #: True: entering Healthy clears the window; otherwise one failure soon after a recovery is the second of five.
    clear_window_on_recovery: bool = True
    #: Degraded proxied results within `degraded_responses_within` seconds that together make one degraded signal.
    degraded_responses_needed: int = 1
    degraded_responses_within: float = 10.0
    #: True: that signal also holds for `degraded_signal_duration` outside the diagram; without probes nothing else
    #: would keep it.
    degraded_signal_persists: bool = True
    #: Seconds for which a degraded signal of proxied requests or of the destination itself holds, unless repeated.
    degraded_signal_duration: float = 60.0
    #: Failure rate at which the destination is Degraded for `reactivate_after`: the share of the proxied requests of
    #: the last `rate_window` seconds, at least `rate_min_requests` of them. YARP's TransportFailureRate, which has no
    #: Degraded. None: disabled.
    failure_rate: float | None = 0.3
    #: Failure rate of the requests since then at which it is Unhealthy for as long, then Degraded. None: disabled.
    #: Without `failure_rate` the destination goes to Unhealthy directly, with no Degraded after it.
    unhealthy_rate: float | None = 0.8
    rate_window: float = 60.0
    rate_min_requests: int = 10
    reactivate_after: float = 60.0
    #: A probe result that is older than the last one by at most this arrived late and is dropped; one that is older by
    #: more means that the clock was set back: it counts.
    late_tolerance: float = 30.0

    def __post_init__(self) -> None:
        least = min(
            self.streak_length,
            self.window_failures,
            self.failures_from_unknown,
            self.degraded_responses_needed,
        )
        if least < 1 or self.window_failures > self.window_size:
            raise ValueError(
                "streak_length, window_size, window_failures, failures_from_unknown and degraded_responses_needed must "
                "be at least 1, and window_failures must not exceed window_size"
            )
        for rate in (self.failure_rate, self.unhealthy_rate):
            if rate is not None and not (0 < rate <= 1 and self.rate_min_requests >= 1):
                raise ValueError(
                    "a failure rate must be above 0 and at most 1, and rate_min_requests at least 1"
                )
        if (self.failure_rate or 0) > (self.unhealthy_rate or 1):
            raise ValueError("unhealthy_rate must not be below failure_rate")


RECOMMENDED_SETTINGS = HealthSettings()
#: The diagram word for word: only probes and degraded proxied requests change the health.
LITERAL_SETTINGS = HealthSettings(
    count_degraded_as_failure=True,
    streak_since_entry=False,
    clear_window_on_recovery=False,
    degraded_signal_persists=False,
    failure_rate=None,
    unhealthy_rate=None,
)
#: Settings that a flag or an environment variable can select by name.
SETTINGS_BY_NAME: Mapping[str, HealthSettings] = {
    "recommended": RECOMMENDED_SETTINGS,
    "literal": LITERAL_SETTINGS,
}


@dataclass(frozen=True, slots=True)
class HealthSignal:
    """Health according to one kind of observation, the reason, and the time of the last change."""

    health: Health
    reason: HealthReason
    changed_at: float


@dataclass(frozen=True, slots=True)
class ActiveHealth:
    """State of one destination in the diagram: an immutable value to store between two probes."""

    signal: HealthSignal
    #: Results of the last probes, newest last; at most `window_size` of them.
    recent_outcomes: tuple[ProbeOutcome, ...] = ()
    #: Count of equal results at the end, and that result.
    streak: int = 0
    streak_outcome: ProbeOutcome | None = None
    probed_at: float | None = None

    def after_probe(self, outcome: ProbeOutcome, at: float, settings: HealthSettings) -> ActiveHealth:
        """Return the state after one probe that was not skipped. Raises ValueError if `at` is not finite."""
        if self._is_late(at, settings):
            return self
        effective_outcome = (
            ProbeOutcome.FAILURE
            if settings.count_degraded_as_failure and outcome is ProbeOutcome.DEGRADED
            else outcome
        )
        state = replace(
            self,
            recent_outcomes=(*self.recent_outcomes, effective_outcome)[-settings.window_size :],
            streak=self.streak + 1 if effective_outcome is self.streak_outcome else 1,
            streak_outcome=effective_outcome,
            probed_at=at,
        )
        transition = _find_transition(state, outcome, settings)
        return state if transition is None else _enter(state, *transition, at, settings)

    def after_degraded_response(self, at: float, settings: HealthSettings) -> ActiveHealth:
        """Return the state after a degraded proxied result: only Healthy changes, to Degraded."""
        if self.signal.health is not Health.HEALTHY:
            return self
        return _enter(self, Health.DEGRADED, HealthReason.PROXIED_DEGRADED, at, settings)

    def _is_late(self, at: float, settings: HealthSettings) -> bool:
        if not math.isfinite(at):
            raise ValueError("the time of a probe must be a finite number of seconds")
        return self.probed_at is not None and 0 < self.probed_at - at <= settings.late_tolerance


def _unknown_health(at: float, reason: HealthReason) -> ActiveHealth:
    return ActiveHealth(HealthSignal(Health.UNKNOWN, reason, at))


def _find_transition(
    state: ActiveHealth, outcome: ProbeOutcome, settings: HealthSettings
) -> tuple[Health, HealthReason] | None:
    """Return the transition of the diagram for the newest probe; None when there is none."""
    effective_outcome = state.recent_outcomes[-1]
    match state.signal.health:
        case Health.UNKNOWN if (
            effective_outcome is ProbeOutcome.FAILURE and settings.failures_from_unknown > 1
        ):
            if state.streak >= settings.failures_from_unknown:
                return Health.UNHEALTHY, HealthReason.FAILURES_IN_A_ROW
        case Health.UNKNOWN:
            return _FROM_UNKNOWN[effective_outcome]
        case Health.HEALTHY if outcome is ProbeOutcome.DEGRADED:
            return Health.DEGRADED, HealthReason.PROBE_DEGRADED
        case Health.HEALTHY if effective_outcome is ProbeOutcome.FAILURE:
            is_window_full = (
                len(state.recent_outcomes) == settings.window_size or not settings.require_full_window
            )
            if (
                is_window_full
                and state.recent_outcomes.count(ProbeOutcome.FAILURE) >= settings.window_failures
            ):
                return Health.DEGRADED, HealthReason.FAILURES_IN_WINDOW
        case Health.DEGRADED if state.streak >= settings.streak_length:
            return _OUT_OF_DEGRADED.get(effective_outcome)
        case Health.UNHEALTHY if effective_outcome is not ProbeOutcome.FAILURE:
            return Health.DEGRADED, HealthReason.ANSWERED_AGAIN
    return None


def _enter(
    state: ActiveHealth, health: Health, reason: HealthReason, at: float, settings: HealthSettings
) -> ActiveHealth:
    next_state = replace(state, signal=HealthSignal(health, reason, at))
    if settings.streak_since_entry:
        next_state = replace(next_state, streak=0, streak_outcome=None)
    if settings.clear_window_on_recovery and health is Health.HEALTHY:
        next_state = replace(next_state, recent_outcomes=())
    return next_state


_FROM_UNKNOWN = {
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
    """Counts of the proxied requests that ended within one second."""

    second: int
    requests: int = 0
    failures: int = 0


@dataclass(slots=True)
class _PassiveHealth:
    """Signals of proxied requests. Never Healthy: the diagram has no such transition."""

    settings: HealthSettings
    since: float
    seconds: deque[_Second] = field(default_factory=deque)
    degraded_response_times: deque[float] = field(default_factory=deque)
    degraded_at: float | None = None
    #: When the failure rate was first exceeded, and when it was last exceeded.
    failing_since: float = 0.0
    failing_at: float | None = None
    unhealthy_at: float | None = None
    #: Count of consecutive successful probes since `unhealthy_at`, and when there were enough to use the destination
    #: again, as Degraded.
    success_count: int = 0
    readmitted_at: float | None = None

    def record_degraded_response(self, at: float) -> bool:
        """Count one degraded result and return whether it completes a degraded signal."""
        self.degraded_response_times.append(at)
        while len(self.degraded_response_times) > self.settings.degraded_responses_needed:
            self.degraded_response_times.popleft()
        complete = len(self.degraded_response_times) == self.settings.degraded_responses_needed
        if not (
            complete and abs(at - self.degraded_response_times[0]) <= self.settings.degraded_responses_within
        ):
            return False
        if self.settings.degraded_signal_persists:
            if not _is_current(self.degraded_at, at, self.settings.degraded_signal_duration):
                self.since = at
            self.degraded_at = at
        return True

    def count_request(self, at: float, *, is_failure: bool) -> None:
        """Count one request; requests already in flight when a rate was exceeded do not count against the next rate."""
        settings = self.settings
        if settings.failure_rate is None and settings.unhealthy_rate is None:
            return
        is_out = _is_current(self.unhealthy_at, at, settings.reactivate_after)
        if is_out and self.readmitted_at is None:
            return
        second = int(at)
        # A request that is reported late counts with the latest: two clocks a second apart must not fill the memory.
        if not self.seconds or not 0 <= self.seconds[-1].second - second < settings.rate_window:
            self.seconds.append(_Second(second))
            while abs(second - self.seconds[0].second) >= settings.rate_window:
                self.seconds.popleft()
        self.seconds[-1].requests += 1
        self.seconds[-1].failures += is_failure
        if is_failure:
            self._apply_rates(at)

    def _apply_rates(self, at: float) -> None:
        """Apply the failure rate (Degraded) first, then the unhealthy rate of the requests since then (Unhealthy)."""
        settings = self.settings
        requests = sum(second.requests for second in self.seconds)
        if requests < settings.rate_min_requests:
            return
        share = sum(second.failures for second in self.seconds) / requests
        is_failing = _is_current(self.failing_at, at, settings.reactivate_after)
        may_become_unhealthy = is_failing or settings.failure_rate is None
        if may_become_unhealthy and settings.unhealthy_rate is not None and share >= settings.unhealthy_rate:
            self.unhealthy_at = at
            self.success_count, self.readmitted_at = 0, None
            self.seconds.clear()
            if settings.failure_rate is not None:
                # Degraded follows for as long: the destination gets few requests at first, as after a probe.
                self.failing_since = self.failing_at = at + settings.reactivate_after
        elif settings.failure_rate is not None and share >= settings.failure_rate:
            if not is_failing:
                self.failing_since = at
                self.seconds.clear()
            self.failing_at = at

    def record_probe(self, outcome: ProbeOutcome, at: float) -> None:
        """Count a probe sent at `at`: enough successes in a row end Unhealthy early."""
        if self.unhealthy_at is None or at <= self.unhealthy_at:
            return
        self.success_count = self.success_count + 1 if outcome is ProbeOutcome.SUCCESS else 0
        if self.success_count >= self.settings.streak_length and self.readmitted_at is None:
            self.readmitted_at = at

    def forget_degraded_responses(self) -> None:
        """Forget degraded results: consecutive successful probes are newer evidence."""
        self.degraded_at = None
        self.degraded_response_times.clear()

    def signal(self, now: float) -> HealthSignal:
        duration = self.settings.reactivate_after
        if self.unhealthy_at is not None and _is_current(self.unhealthy_at, now, duration):
            if self.readmitted_at is not None:
                return HealthSignal(Health.DEGRADED, HealthReason.SUCCESSES_IN_A_ROW, self.readmitted_at)
            return HealthSignal(Health.UNHEALTHY, HealthReason.FAILURE_RATE, self.unhealthy_at)
        if _is_current(self.failing_at, now, duration):
            return HealthSignal(Health.DEGRADED, HealthReason.FAILURE_RATE, self.failing_since)
        if _is_current(self.degraded_at, now, self.settings.degraded_signal_duration):
            return HealthSignal(Health.DEGRADED, HealthReason.PROXIED_DEGRADED, self.since)
        return HealthSignal(Health.UNKNOWN, HealthReason.NOTHING_SEEN, self.since)


def _is_current(started_at: float | None, now: float, duration: float) -> bool:
    """Return whether a signal of `started_at` still holds.

    Setting the clock back by more than `duration` ends it, too.
    """
    return started_at is not None and abs(now - started_at) < duration


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """An operator's drain: no new sessions. Independent of health."""

    reason: str
    requested_at: float


@dataclass(frozen=True, slots=True)
class DestinationVerdict:
    """Health of a destination with the three signals behind it."""

    #: The worst of the three signals; Unknown signals do not count.
    health: Health
    reason: HealthReason
    changed_at: float
    active: HealthSignal
    passive: HealthSignal
    declaration: HealthSignal
    drain_request: DrainRequest | None


_BADNESS = {health: rank for rank, health in enumerate(Health)}


class Destination:
    """Health of one destination, built from what its methods record. Not thread-safe."""

    def __init__(self, at: float, settings: HealthSettings = RECOMMENDED_SETTINGS) -> None:
        self._settings = settings
        self._drain_request: DrainRequest | None = None
        self._active = _unknown_health(at, HealthReason.NOTHING_SEEN)
        self._passive = _PassiveHealth(settings, at)
        self._declaration = _Declaration(at, at, 0.0)

    @property
    def active(self) -> ActiveHealth:
        """State of the destination in the diagram."""
        return self._active

    def record_probe(self, outcome: ProbeOutcome, at: float) -> None:
        """Record the result of an active probe that was sent at `at`. Raises ValueError if `at` is not finite."""
        before = self._active
        self._active = before.after_probe(outcome, at, self._settings)
        if self._active is before:
            return  # a late result is dropped
        self._passive.record_probe(outcome, at)
        if self._active.signal is not before.signal and self._active.signal.health is Health.HEALTHY:
            self._passive.forget_degraded_responses()

    def record_request(self, outcome: RequestOutcome, at: float) -> None:
        """Record the result of a proxied request that ended at `at`."""
        if outcome is RequestOutcome.DEGRADED and self._passive.record_degraded_response(at):
            self._active = self._active.after_degraded_response(at, self._settings)
        self._passive.count_request(at, is_failure=outcome is RequestOutcome.FAILURE)

    def declare_degraded(self, at: float, duration: float | None = None) -> None:
        """Record that the destination declared itself degraded.

        `duration` is in seconds; None: the setting `degraded_signal_duration`.
        """
        before = self._declaration_signal(at)
        since = before.changed_at if before.health is Health.DEGRADED else at
        duration = self._settings.degraded_signal_duration if duration is None else duration
        self._declaration = _Declaration(since, at, duration)

    def withdraw(self, at: float) -> None:
        """Withdraw the destination's declaration that it is degraded."""
        self._declaration = _Declaration(at, at, 0.0)

    def drain(self, reason: str, at: float) -> None:
        """Drain the destination: no new sessions. While it is drained already, the first reason stays."""
        if self._drain_request is None:
            self._drain_request = DrainRequest(reason, at)

    def undrain(self) -> None:
        """Undrain the destination: it gets new sessions again."""
        self._drain_request = None

    def reset(self, at: float) -> None:
        """Forget all observations, because the address or the probes changed, or probing stopped."""
        self._active = _unknown_health(at, HealthReason.RESET)
        self._passive = _PassiveHealth(self._settings, at)
        self._declaration = _Declaration(at, at, 0.0)

    def verdict(self, now: float) -> DestinationVerdict:
        """Return the verdict at `now`: the worst signal; of equal ones active comes before passive before declared."""
        signals = self._active.signal, self._passive.signal(now), self._declaration_signal(now)
        worst = max(signals, key=lambda signal: _BADNESS[signal.health])
        return DestinationVerdict(worst.health, worst.reason, worst.changed_at, *signals, self._drain_request)

    def _declaration_signal(self, now: float) -> HealthSignal:
        declaration = self._declaration
        if _is_current(declaration.at, now, declaration.duration):
            return HealthSignal(Health.DEGRADED, HealthReason.DECLARED, declaration.since)
        return HealthSignal(Health.UNKNOWN, HealthReason.NOTHING_SEEN, declaration.since)


@dataclass(frozen=True, slots=True)
class _Declaration:
    """Declared degraded at `at`, without a gap since `since`, for `duration` seconds; 0 s: nothing is declared."""

    since: float
    at: float
    duration: float
