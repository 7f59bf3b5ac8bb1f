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


class Probe(StrEnum):
    """How one active probe ended: a timeout, a refusal and an error are all a failure."""

    SUCCESS = auto()
    DEGRADED = auto()
    FAILURE = auto()


class Proxied(StrEnum):
    """How one proxied request ended. One that its client gave up says nothing: do not tell it."""

    SUCCESS = auto()
    #: The answer said that the destination would rather not be preferred.
    DEGRADED = auto()
    #: The destination was not reached, or did not answer as its protocol demands.
    FAILURE = auto()


class Reason(StrEnum):
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
class Settings:
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


RECOMMENDED = Settings()
#: The diagram word by word: probes and proxied requests say nothing beside it.
LITERAL = Settings(
    degraded_fails=True,
    streak_since_entry=False,
    clear_window=False,
    proxied_stands=False,
    failure_rate=None,
    unhealthy_rate=None,
)
#: What a flag or an environment variable may choose.
READINGS: Mapping[str, Settings] = {"recommended": RECOMMENDED, "literal": LITERAL}


@dataclass(frozen=True, slots=True)
class Signal:
    """What one kind of observation says, why, and since when."""

    health: Health
    reason: Reason
    at: float


@dataclass(frozen=True, slots=True)
class Active:
    """The diagram: a value, to be stored from one probe to the next."""

    signal: Signal
    #: What the last probes were taken for, the latest last; not more than the window.
    recent: tuple[Probe, ...] = ()
    #: How many of the latest probes were alike, and what they were.
    streak: int = 0
    streak_of: Probe | None = None
    probed_at: float | None = None

    def probed(self, outcome: Probe, at: float, settings: Settings) -> Active:
        """Take in one evaluation; a probe that was skipped is none."""
        if self._is_late(at, settings):
            return self
        read = Probe.FAILURE if settings.degraded_fails and outcome is Probe.DEGRADED else outcome
        seen = replace(
            self,
            recent=(*self.recent, read)[-settings.window :],
            streak=self.streak + 1 if read is self.streak_of else 1,
            streak_of=read,
            probed_at=at,
        )
        move = _move(seen, outcome, settings)
        return seen if move is None else _enter(seen, *move, at, settings)

    def proxied_degraded(self, at: float, settings: Settings) -> Active:
        """Take in a proxied result "degraded": it moves Healthy only."""
        if self.signal.health is not Health.HEALTHY:
            return self
        return _enter(self, Health.DEGRADED, Reason.PROXIED_DEGRADED, at, settings)

    def _is_late(self, at: float, settings: Settings) -> bool:
        if not math.isfinite(at):
            raise ValueError("a time is a finite number of seconds")
        return self.probed_at is not None and 0 < self.probed_at - at <= settings.late_within


def _start(at: float, reason: Reason) -> Active:
    return Active(Signal(Health.UNKNOWN, reason, at))


def _move(seen: Active, outcome: Probe, settings: Settings) -> tuple[Health, Reason] | None:
    """The arrows of the diagram; everything else is no transition."""
    read = seen.recent[-1]
    match seen.signal.health:
        case Health.UNKNOWN if read is Probe.FAILURE and settings.first_failures > 1:
            if seen.streak >= settings.first_failures:
                return Health.UNHEALTHY, Reason.FAILURES_IN_A_ROW
        case Health.UNKNOWN:
            return _FIRST[read]
        case Health.HEALTHY if outcome is Probe.DEGRADED:
            return Health.DEGRADED, Reason.PROBE_DEGRADED
        case Health.HEALTHY if read is Probe.FAILURE:
            known = len(seen.recent) == settings.window or not settings.whole_window
            if known and seen.recent.count(Probe.FAILURE) >= settings.window_failures:
                return Health.DEGRADED, Reason.FAILURES_IN_WINDOW
        case Health.DEGRADED if seen.streak >= settings.streak:
            return _OUT_OF_DEGRADED.get(read)
        case Health.UNHEALTHY if read is not Probe.FAILURE:
            return Health.DEGRADED, Reason.ANSWERED_AGAIN
    return None


def _enter(seen: Active, health: Health, reason: Reason, at: float, settings: Settings) -> Active:
    entered = replace(seen, signal=Signal(health, reason, at))
    if settings.streak_since_entry:
        entered = replace(entered, streak=0, streak_of=None)
    if settings.clear_window and health is Health.HEALTHY:
        entered = replace(entered, recent=())
    return entered


_FIRST = {
    Probe.SUCCESS: (Health.HEALTHY, Reason.PROBE_SUCCEEDED),
    Probe.DEGRADED: (Health.DEGRADED, Reason.PROBE_DEGRADED),
    Probe.FAILURE: (Health.UNHEALTHY, Reason.PROBE_FAILED),
}
_OUT_OF_DEGRADED = {
    Probe.SUCCESS: (Health.HEALTHY, Reason.SUCCESSES_IN_A_ROW),
    Probe.FAILURE: (Health.UNHEALTHY, Reason.FAILURES_IN_A_ROW),
}


@dataclass(slots=True)
class _Second:
    """The proxied requests that ended in one second."""

    second: int
    requests: int = 0
    failures: int = 0


@dataclass(slots=True)
class _Passive:
    """What proxied requests say; it never says Healthy, for the diagram has no arrow for that."""

    settings: Settings
    since: float
    seconds: deque[_Second] = field(default_factory=deque)
    words: deque[float] = field(default_factory=deque)
    degraded_at: float | None = None
    #: Since when too many requests fail, and when that was last seen.
    failing_since: float = 0.0
    failing_at: float | None = None
    unhealthy_at: float | None = None
    #: Probes that succeeded in a row since then, and when they were enough to use it again, as a Degraded one.
    successes: int = 0
    readmitted_at: float | None = None

    def told_degraded(self, at: float) -> bool:
        """Count one degraded result; whether it completes a word."""
        self.words.append(at)
        while len(self.words) > self.settings.proxied_needed:
            self.words.popleft()
        complete = len(self.words) == self.settings.proxied_needed
        if not (complete and abs(at - self.words[0]) <= self.settings.proxied_within):
            return False
        if self.settings.proxied_stands:
            if not _holds(self.degraded_at, at, self.settings.declared_for):
                self.since = at
            self.degraded_at = at
        return True

    def count(self, at: float, *, failed: bool) -> None:
        """Count one request; what was on its way when a rate was exceeded is not held against what comes after."""
        settings = self.settings
        if settings.failure_rate is None and settings.unhealthy_rate is None:
            return
        is_out = _holds(self.unhealthy_at, at, settings.reactivate_after)
        if is_out and self.readmitted_at is None:
            return
        second = int(at)
        # A request that is told late counts with the latest: else two clocks a second apart would fill the memory.
        if not self.seconds or not 0 <= self.seconds[-1].second - second < settings.rate_window:
            self.seconds.append(_Second(second))
            while abs(second - self.seconds[0].second) >= settings.rate_window:
                self.seconds.popleft()
        self.seconds[-1].requests += 1
        self.seconds[-1].failures += failed
        if failed:
            self._judge(at)

    def _judge(self, at: float) -> None:
        """Degraded by the failure rate first; Unhealthy by its own rate of the requests since then."""
        settings = self.settings
        requests = sum(one.requests for one in self.seconds)
        if requests < settings.rate_minimum:
            return
        share = sum(one.failures for one in self.seconds) / requests
        is_failing = _holds(self.failing_at, at, settings.reactivate_after)
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

    def probed(self, outcome: Probe, at: float) -> None:
        """Take in a probe that was sent at `at`: enough successes in a row shorten the time it is out."""
        if self.unhealthy_at is None or at <= self.unhealthy_at:
            return
        self.successes = self.successes + 1 if outcome is Probe.SUCCESS else 0
        if self.successes >= self.settings.streak and self.readmitted_at is None:
            self.readmitted_at = at

    def forget_words(self) -> None:
        """Probes were since answered well in a row: they are the newer evidence."""
        self.degraded_at = None
        self.words.clear()

    def signal(self, now: float) -> Signal:
        lasts = self.settings.reactivate_after
        if self.unhealthy_at is not None and _holds(self.unhealthy_at, now, lasts):
            if self.readmitted_at is not None:
                return Signal(Health.DEGRADED, Reason.SUCCESSES_IN_A_ROW, self.readmitted_at)
            return Signal(Health.UNHEALTHY, Reason.FAILURE_RATE, self.unhealthy_at)
        if _holds(self.failing_at, now, lasts):
            return Signal(Health.DEGRADED, Reason.FAILURE_RATE, self.failing_since)
        if _holds(self.degraded_at, now, self.settings.declared_for):
            return Signal(Health.DEGRADED, Reason.PROXIED_DEGRADED, self.since)
        return Signal(Health.UNKNOWN, Reason.NOTHING_SEEN, self.since)


def _holds(said_at: float | None, now: float, lasts: float) -> bool:
    """Whether something said then still holds; a clock that is set back by more than `lasts` ends it, too."""
    return said_at is not None and abs(now - said_at) < lasts


@dataclass(frozen=True, slots=True)
class Draining:
    """Someone wants no new sessions there: no matter of health."""

    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """All that is concluded of a destination, and from what."""

    #: The worst of the three signals; Unknown ones have no say.
    health: Health
    reason: Reason
    at: float
    active: Signal
    passive: Signal
    declared: Signal
    draining: Draining | None


_BADNESS = {health: rank for rank, health in enumerate(Health)}


class Destination:
    """One destination, told what was seen of it. One caller at a time."""

    def __init__(self, at: float, settings: Settings = RECOMMENDED) -> None:
        self._settings = settings
        self._draining: Draining | None = None
        self._active = _start(at, Reason.NOTHING_SEEN)
        self._passive = _Passive(settings, at)
        self._declaration = _Declaration(at, at, 0.0)

    @property
    def active(self) -> Active:
        """Where it is in the diagram."""
        return self._active

    def probed(self, outcome: Probe, at: float) -> None:
        """An active probe, sent at `at`, ended."""
        before = self._active
        self._active = before.probed(outcome, at, self._settings)
        if self._active is before:
            return  # it came late, and counts nowhere
        self._passive.probed(outcome, at)
        if self._active.signal is not before.signal and self._active.signal.health is Health.HEALTHY:
            self._passive.forget_words()

    def proxied(self, result: Proxied, at: float) -> None:
        """A proxied request ended."""
        if result is Proxied.DEGRADED and self._passive.told_degraded(at):
            self._active = self._active.proxied_degraded(at, self._settings)
        self._passive.count(at, failed=result is Proxied.FAILURE)

    def declare_degraded(self, at: float, lasts: float | None = None) -> None:
        """It announced itself as degraded, other than in an answer, for so many seconds; None: `declared_for`."""
        before = self._declared(at)
        since = before.at if before.health is Health.DEGRADED else at
        lasts = self._settings.declared_for if lasts is None else lasts
        self._declaration = _Declaration(since, at, lasts)

    def withdraw(self, at: float) -> None:
        """It takes that back."""
        self._declaration = _Declaration(at, at, 0.0)

    def drain(self, reason: str, at: float) -> None:
        """An operator wants no new sessions there; the first one's reason stays."""
        if self._draining is None:
            self._draining = Draining(reason, at)

    def undrain(self) -> None:
        """It takes new sessions again."""
        self._draining = None

    def reset(self, at: float) -> None:
        """Its address or its probes were changed, or it is probed no more: what was seen says nothing any longer."""
        self._active = _start(at, Reason.RESET)
        self._passive = _Passive(self._settings, at)
        self._declaration = _Declaration(at, at, 0.0)

    def verdict(self, now: float) -> Verdict:
        """What it is now: the worst signal, the earliest named of equals."""
        signals = self._active.signal, self._passive.signal(now), self._declared(now)
        worst = max(signals, key=lambda signal: _BADNESS[signal.health])
        return Verdict(worst.health, worst.reason, worst.at, *signals, self._draining)

    def _declared(self, now: float) -> Signal:
        said = self._declaration
        if _holds(said.at, now, said.lasts):
            return Signal(Health.DEGRADED, Reason.DECLARED, said.since)
        return Signal(Health.UNKNOWN, Reason.NOTHING_SEEN, said.since)


@dataclass(frozen=True, slots=True)
class _Declaration:
    """Said at `at`, the first of an unbroken row at `since`; 0 seconds: nothing said."""

    since: float
    at: float
    lasts: float
