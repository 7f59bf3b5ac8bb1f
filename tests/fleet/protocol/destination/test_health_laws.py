"""Whatever is seen, in any order, at any settings: as a table says that knows nothing but what happened."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.protocol.destination.health import (
    Destination,
    Health,
    HealthReason,
    HealthSettings,
    ProbeOutcome,
    RequestOutcome,
)

#: The diagram of the proposal: state, what happened, next state, why. Nothing else moves; the first row counts.
TABLE = [
    ("unknown", "success", "healthy", HealthReason.PROBE_SUCCEEDED),
    ("unknown", "first not success", "unhealthy", HealthReason.PROBE_FAILED),
    ("degraded", "last success of a row", "healthy", HealthReason.SUCCESSES_IN_A_ROW),
    ("healthy", "proxied degraded", "degraded", HealthReason.PROXIED_DEGRADED),
    ("healthy", "degraded", "degraded", HealthReason.PROBE_DEGRADED),
    ("healthy", "not success, too many of the past", "degraded", HealthReason.FAILURES_IN_WINDOW),
    ("degraded", "last not success of a row", "unhealthy", HealthReason.FAILURES_IN_A_ROW),
    ("unhealthy", "success", "degraded", HealthReason.ANSWERED_AGAIN),
    # Where one failure does not condemn what is new.
    ("unknown", "last not success of the first", "unhealthy", HealthReason.FAILURES_IN_A_ROW),
    # Where "degraded" is not "not success", it has arrows of its own.
    ("unknown", "only degraded", "degraded", HealthReason.PROBE_DEGRADED),
    ("unhealthy", "only degraded", "degraded", HealthReason.ANSWERED_AGAIN),
]

#: Health, why, since when: what a signal says.
Said = tuple[str, HealthReason, float]
_NOTHING: Said = ("unknown", HealthReason.NOTHING_SEEN, 0.0)


class Diagram:
    """All probes since a start, and the state the table gives; what counts is looked up in the whole story."""

    def __init__(self, settings: HealthSettings, at: float, reason: HealthReason) -> None:
        self.settings = settings
        self.said: Said = ("unknown", reason, at)
        self.probes: list[str] = []
        self.probed_at: float | None = None
        #: How many probes there had been when the state was last entered, and when Healthy was.
        self.entered = self.healthy_since = 0

    def _failed(self, probe: str) -> bool:
        return probe == "failure" or (self.settings.degraded_fails and probe == "degraded")

    def _row(self, length: int) -> list[str]:
        """The last so many probes that may be counted in a row; empty when there are fewer."""
        counted = self.probes[self.entered if self.settings.streak_since_entry else 0 :]
        return counted[-length:] if len(counted) >= length else []

    def _what(self) -> Iterator[str]:
        probe, settings = self.probes[-1], self.settings
        yield probe
        if self._row(settings.streak) == ["success"] * settings.streak:
            yield "last success of a row"
        if not self._failed(probe):
            if probe == "degraded":
                yield "only degraded"
            return
        if settings.first_failures == 1:
            yield "first not success"
        elif (row := self._row(settings.first_failures)) and all(map(self._failed, row)):
            yield "last not success of the first"
        if (row := self._row(settings.streak)) and all(map(self._failed, row)):
            yield "last not success of a row"
        past = self.probes[self.healthy_since if settings.clear_window else 0 :][-settings.window :]
        enough = len(past) == settings.window or not settings.whole_window
        if enough and len([one for one in past if self._failed(one)]) >= settings.window_failures:
            yield "not success, too many of the past"

    def probe(self, outcome: str, at: float) -> bool:
        """Take in a probe that came in time; whether that leads to Healthy."""
        if self.probed_at is not None and self.probed_at - self.settings.late_within <= at < self.probed_at:
            return False
        self.probes.append(outcome)
        self.probed_at = at
        return self.go(set(self._what()), at) and self.said[0] == "healthy"

    def go(self, what: set[str], at: float) -> bool:
        """Take the arrow that there is; whether there is one."""
        ways = [(to, why) for state, event, to, why in TABLE if state == self.said[0] and event in what]
        assert len({to for to, _ in ways}) <= 1, "the diagram is ambiguous"
        if not ways:
            return False
        self.said = (*ways[0], at)
        self.entered = len(self.probes)
        if self.said[0] == "healthy":
            self.healthy_since = len(self.probes)
        return True


class Requests:
    """All proxied requests since a start, and what they say beside the diagram."""

    def __init__(self, settings: HealthSettings) -> None:
        self.settings = settings
        #: When, and whether it failed; since they last made it Unhealthy.
        self.ended: list[tuple[float, bool]] = []
        #: When they said degraded, since the diagram last entered Healthy.
        self.words: list[float] = []
        #: Since when, and until when, they say so; failing is Degraded by the share that failed.
        self.degraded = self.failing = self.unhealthy = (0.0, 0.0)
        #: Probes in time that were sent since they last made it Unhealthy.
        self.probes: list[tuple[str, float]] = []

    def is_word(self, at: float) -> bool:
        """Take in one that said degraded; whether there were enough of them near each other."""
        settings = self.settings
        self.words.append(at)
        last = self.words[-settings.proxied_needed :]
        if len(last) < settings.proxied_needed or at - last[0] > settings.proxied_within:
            return False
        if settings.proxied_stands:
            since = self.degraded[0] if at < self.degraded[1] else at
            self.degraded = (since, at + settings.declared_for)
        return True

    def end(self, at: float, *, failed: bool) -> None:
        """Take in one that ended, well or not."""
        settings = self.settings
        first, second, lasts = settings.failure_rate, settings.unhealthy_rate, settings.reactivate_after
        if (first, second) == (None, None) or (at < self.unhealthy[1] and self.readmitted is None):
            return
        self.ended.append((at, failed))
        late = [failed for when, failed in self.ended if at - when < settings.rate_window]
        if not failed or len(late) < settings.rate_minimum:
            return
        share = sum(late) / len(late)
        known = at < self.failing[1]
        if second is not None and share >= second and (known or first is None):
            self.unhealthy = (at, at + lasts)
            self.ended = []
            self.probes = []
            if first is not None:
                self.failing = (at + lasts, at + 2 * lasts)
        elif first is not None and share >= first:
            self.failing = (self.failing[0] if known else at, at + lasts)
            if not known:
                self.ended = []

    def probe(self, outcome: str, at: float) -> None:
        """Take in a probe that came in time."""
        if at > self.unhealthy[0]:
            self.probes.append((outcome, at))

    @property
    def readmitted(self) -> float | None:
        """When the first row of successes was long enough to use it again."""
        streak = self.settings.streak
        for end in range(streak, len(self.probes) + 1):
            if all(outcome == "success" for outcome, _ in self.probes[end - streak : end]):
                return self.probes[end - 1][1]
        return None

    def forget_words(self) -> None:
        """Probes know better."""
        self.words, self.degraded = [], (0.0, 0.0)

    def said(self, now: float) -> Said:
        if now < self.unhealthy[1] and self.readmitted is not None:
            return "degraded", HealthReason.SUCCESSES_IN_A_ROW, self.readmitted
        if now < self.unhealthy[1]:
            return "unhealthy", HealthReason.FAILURE_RATE, self.unhealthy[0]
        if now < self.failing[1]:
            return "degraded", HealthReason.FAILURE_RATE, self.failing[0]
        if now < self.degraded[1]:
            return "degraded", HealthReason.PROXIED_DEGRADED, self.degraded[0]
        return _NOTHING


@st.composite
def any_settings(draw: st.DrawFn) -> HealthSettings:
    """All that may be set, small: so that a few dozen steps reach everything."""
    window = draw(st.integers(1, 6))
    # Shares that floats have exactly.
    rates = st.sampled_from([(0.25, 0.5), (0.5, 1.0), (1.0, 1.0), (0.5, None), (None, 0.5), (None, None)])
    failure_rate, unhealthy_rate = draw(rates)
    return HealthSettings(
        streak=draw(st.integers(1, 4)),
        window=window,
        window_failures=draw(st.integers(1, window)),
        whole_window=draw(st.booleans()),
        first_failures=draw(st.integers(1, 3)),
        degraded_fails=draw(st.booleans()),
        streak_since_entry=draw(st.booleans()),
        clear_window=draw(st.booleans()),
        proxied_needed=draw(st.integers(1, 3)),
        proxied_within=10.0,
        proxied_stands=draw(st.booleans()),
        declared_for=20.0,
        failure_rate=failure_rate,
        unhealthy_rate=unhealthy_rate,
        rate_window=20.0,
        rate_minimum=draw(st.integers(1, 4)),
        reactivate_after=5.0,
        late_within=5.0,
    )


class Observed(RuleBasedStateMachine):
    """One destination and the model of it."""

    @initialize(settings=any_settings())
    def begin(self, settings: HealthSettings) -> None:
        self.now = 100.0
        self.settings = settings
        self.destination = Destination(self.now, settings)
        self.diagram = Diagram(settings, self.now, HealthReason.NOTHING_SEEN)
        self.requests = Requests(settings)
        #: Since when, and until when, it says of itself that it is degraded.
        self.declared = (0.0, 0.0)
        self.draining: tuple[str, float] | None = None

    def _probe(self, outcome: ProbeOutcome, at: float) -> None:
        self.destination.record_probe(outcome, at)
        before = len(self.diagram.probes)
        if self.diagram.probe(outcome.value, at):
            self.requests.forget_words()
        if len(self.diagram.probes) > before:
            self.requests.probe(outcome.value, at)

    @rule(outcome=st.sampled_from(ProbeOutcome), took=st.sampled_from([0, 1, 5, 10]))
    def probe(self, outcome: ProbeOutcome, took: int) -> None:
        self.now += took
        self._probe(outcome, self.now)

    @rule(outcome=st.sampled_from(ProbeOutcome), count=st.integers(2, 5))
    def probe_some_times(self, outcome: ProbeOutcome, count: int) -> None:
        for _ in range(count):
            self.probe(outcome, 1)
            self.all_is_as_the_model_says()

    @precondition(lambda self: self.diagram.probed_at is not None)
    @rule(outcome=st.sampled_from(ProbeOutcome), late=st.integers(0, 8))
    def probe_comes_late_or_the_clock_is_set_back(self, outcome: ProbeOutcome, late: int) -> None:
        assert self.diagram.probed_at is not None
        self._probe(outcome, self.diagram.probed_at - late)

    @rule(
        outcomes=st.lists(
            st.sampled_from([ProbeOutcome.SUCCESS, ProbeOutcome.SUCCESS, ProbeOutcome.FAILURE]),
            min_size=2,
            max_size=8,
        )
    )
    def probe_flaps(self, outcomes: list[ProbeOutcome]) -> None:
        for outcome in outcomes:
            self.probe(outcome, 1)
            self.all_is_as_the_model_says()

    @rule(
        result=st.sampled_from(RequestOutcome), count=st.integers(1, 5), apart=st.sampled_from([0, 1, 5, 10])
    )
    def proxied(self, result: RequestOutcome, count: int, apart: int) -> None:
        for _ in range(count):
            self.now += apart
            self.destination.record_request(result, self.now)
            if result is RequestOutcome.DEGRADED and self.requests.is_word(self.now):
                self.diagram.go({"proxied degraded"}, self.now)
            self.requests.end(self.now, failed=result is RequestOutcome.FAILURE)
            self.all_is_as_the_model_says()

    @rule(lasts=st.none() | st.integers(0, 40))
    def declares(self, lasts: int | None) -> None:
        self.destination.declare_degraded(self.now, lasts)
        since = self.declared[0] if self.now < self.declared[1] else self.now
        self.declared = (since, self.now + (self.settings.declared_for if lasts is None else lasts))

    @precondition(lambda self: self.now < self.declared[1])
    @rule()
    def withdraws(self) -> None:
        self.destination.withdraw(self.now)
        self.declared = (0.0, 0.0)

    @rule(reason=st.sampled_from(["work", "upgrade", None]))
    def drains(self, reason: str | None) -> None:
        if reason is None:
            self.destination.undrain()
            self.draining = None
        else:
            self.destination.drain(reason, self.now)
            self.draining = self.draining or (reason, self.now)

    @precondition(lambda self: len(self.diagram.probes) > 8)
    @rule()
    def resets(self) -> None:
        self.destination.reset(self.now)
        self.diagram = Diagram(self.settings, self.now, HealthReason.RESET)
        self.requests = Requests(self.settings)
        self.declared = (0.0, 0.0)

    @rule(wait=st.sampled_from([1, 5, 10, 20]))
    def nothing_happens(self, wait: int) -> None:
        self.now += wait

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        verdict, now = self.destination.verdict(self.now), self.now
        declared = (
            ("degraded", HealthReason.DECLARED, self.declared[0]) if now < self.declared[1] else _NOTHING
        )
        said = [self.diagram.said, self.requests.said(now), declared]
        for signal, expected in zip(
            (verdict.active, verdict.passive, verdict.declaration), said, strict=True
        ):
            assert (signal.health.value, signal.reason) == expected[:2]
            assert signal.at == expected[2] or expected is _NOTHING
        order = ["unknown", "healthy", "degraded", "unhealthy"]
        worst = max(said, key=lambda one: order.index(one[0]))
        assert (verdict.health.value, verdict.reason, verdict.at) == worst
        drains = verdict.drain_request and (verdict.drain_request.reason, verdict.drain_request.at)
        assert drains == self.draining


Observed.TestCase.settings = hypothesis.settings(max_examples=100, stateful_step_count=40, deadline=None)
TestDestination = Observed.TestCase


def test_model_is_of_the_same_states() -> None:
    """Else a state that nobody enters would not be missed."""
    assert {to for *_, to, _ in TABLE} | {"unknown"} == {health.value for health in Health}
