"""Health of a destination, compared with a table-driven model for random events and settings."""

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

#: The diagram of the proposal: state, event, next state, reason. There are no other transitions; the first row counts.
TABLE = [
    ("unknown", "success", "healthy", HealthReason.PROBE_SUCCEEDED),
    ("unknown", "first not success", "unhealthy", HealthReason.PROBE_FAILED),
    ("degraded", "last success of a row", "healthy", HealthReason.SUCCESSES_IN_A_ROW),
    ("healthy", "proxied degraded", "degraded", HealthReason.PROXIED_DEGRADED),
    ("healthy", "degraded", "degraded", HealthReason.PROBE_DEGRADED),
    ("healthy", "not success, too many of the past", "degraded", HealthReason.FAILURES_IN_WINDOW),
    ("degraded", "last not success of a row", "unhealthy", HealthReason.FAILURES_IN_A_ROW),
    ("unhealthy", "success", "degraded", HealthReason.ANSWERED_AGAIN),
    # With several first failures.
    ("unknown", "last not success of the first", "unhealthy", HealthReason.FAILURES_IN_A_ROW),
    # Where "degraded" does not count as a failure, it has transitions of its own.
    ("unknown", "only degraded", "degraded", HealthReason.PROBE_DEGRADED),
    ("unhealthy", "only degraded", "degraded", HealthReason.ANSWERED_AGAIN),
]

#: A signal: health, reason and time.
SignalTuple = tuple[str, HealthReason, float]
_NO_SIGNAL: SignalTuple = ("unknown", HealthReason.NOTHING_SEEN, 0.0)


class Diagram:
    """Model of the diagram: all probes since the start, and the state that the table gives."""

    def __init__(self, settings: HealthSettings, at: float, reason: HealthReason) -> None:
        self.settings = settings
        self.signal: SignalTuple = ("unknown", reason, at)
        self.probes: list[str] = []
        self.probed_at: float | None = None
        #: Counts of probes at the last transition, and at the last transition to Healthy.
        self.entry_count = self.healthy_count = 0

    def _is_failure(self, probe: str) -> bool:
        return probe == "failure" or (self.settings.count_degraded_as_failure and probe == "degraded")

    def _streak(self, length: int) -> list[str]:
        """Return the last `length` probes that count for a streak; empty if there are fewer."""
        countable = self.probes[self.entry_count if self.settings.streak_since_entry else 0 :]
        return countable[-length:] if len(countable) >= length else []

    def _events(self) -> Iterator[str]:
        probe, settings = self.probes[-1], self.settings
        yield probe
        if self._streak(settings.streak_length) == ["success"] * settings.streak_length:
            yield "last success of a row"
        if not self._is_failure(probe):
            if probe == "degraded":
                yield "only degraded"
            return
        if settings.failures_from_unknown == 1:
            yield "first not success"
        elif (streak := self._streak(settings.failures_from_unknown)) and all(map(self._is_failure, streak)):
            yield "last not success of the first"
        if (streak := self._streak(settings.streak_length)) and all(map(self._is_failure, streak)):
            yield "last not success of a row"
        window = self.probes[self.healthy_count if settings.clear_window_on_recovery else 0 :][
            -settings.window_size :
        ]
        is_enough = len(window) == settings.window_size or not settings.require_full_window
        if (
            is_enough
            and len([probe for probe in window if self._is_failure(probe)]) >= settings.window_failures
        ):
            yield "not success, too many of the past"

    def probe(self, outcome: str, at: float) -> bool:
        """Add a probe that came in time; return whether the state becomes Healthy."""
        if (
            self.probed_at is not None
            and self.probed_at - self.settings.late_tolerance <= at < self.probed_at
        ):
            return False
        self.probes.append(outcome)
        self.probed_at = at
        return self.transition(set(self._events()), at) and self.signal[0] == "healthy"

    def transition(self, events: set[str], now: float) -> bool:
        """Make the transition for the events, and return whether there is one."""
        transitions = [
            (next_state, reason)
            for state, event, next_state, reason in TABLE
            if state == self.signal[0] and event in events
        ]
        assert len({next_state for next_state, _ in transitions}) <= 1, "the diagram is ambiguous"
        if not transitions:
            return False
        self.signal = (*transitions[0], now)
        self.entry_count = len(self.probes)
        if self.signal[0] == "healthy":
            self.healthy_count = len(self.probes)
        return True


class Requests:
    """Model of the proxied requests: all since the start, and their signal beside the diagram."""

    def __init__(self, settings: HealthSettings) -> None:
        self.settings = settings
        #: Time and failure of each request since requests last made it Unhealthy.
        self.requests: list[tuple[float, bool]] = []
        #: Times of "degraded" results since the diagram last entered Healthy.
        self.degraded_times: list[float] = []
        #: Start and end of each signal; `rate_period` is Degraded by the share of failures.
        self.degraded_period = self.rate_period = self.unhealthy_period = (0.0, 0.0)
        #: Timely probes since requests last made it Unhealthy.
        self.probes: list[tuple[str, float]] = []

    def add_degraded(self, at: float) -> bool:
        """Add a "degraded" result; return whether there were enough within the window."""
        settings = self.settings
        self.degraded_times.append(at)
        last = self.degraded_times[-settings.degraded_responses_needed :]
        if (
            len(last) < settings.degraded_responses_needed
            or at - last[0] > settings.degraded_responses_within
        ):
            return False
        if settings.degraded_signal_persists:
            since = self.degraded_period[0] if at < self.degraded_period[1] else at
            self.degraded_period = (since, at + settings.degraded_signal_duration)
        return True

    def add_request(self, at: float, *, is_failure: bool) -> None:
        """Add a finished request."""
        settings = self.settings
        degraded_rate, unhealthy_rate, duration = (
            settings.failure_rate,
            settings.unhealthy_rate,
            settings.reactivate_after,
        )
        if (degraded_rate, unhealthy_rate) == (None, None) or (
            at < self.unhealthy_period[1] and self.readmitted_at is None
        ):
            return
        self.requests.append((at, is_failure))
        recent_failures = [
            is_failure for ended_at, is_failure in self.requests if at - ended_at < settings.rate_window
        ]
        if not is_failure or len(recent_failures) < settings.rate_min_requests:
            return
        failure_rate = sum(recent_failures) / len(recent_failures)
        is_degraded = at < self.rate_period[1]
        if (
            unhealthy_rate is not None
            and failure_rate >= unhealthy_rate
            and (is_degraded or degraded_rate is None)
        ):
            self.unhealthy_period = (at, at + duration)
            self.requests = []
            self.probes = []
            if degraded_rate is not None:
                self.rate_period = (at + duration, at + 2 * duration)
        elif degraded_rate is not None and failure_rate >= degraded_rate:
            self.rate_period = (self.rate_period[0] if is_degraded else at, at + duration)
            if not is_degraded:
                self.requests = []

    def probe(self, outcome: str, at: float) -> None:
        """Add a probe that came in time."""
        if at > self.unhealthy_period[0]:
            self.probes.append((outcome, at))

    @property
    def readmitted_at(self) -> float | None:
        """Return the time of the last probe of the first success streak."""
        streak = self.settings.streak_length
        for end in range(streak, len(self.probes) + 1):
            if all(outcome == "success" for outcome, _ in self.probes[end - streak : end]):
                return self.probes[end - 1][1]
        return None

    def clear_degraded(self) -> None:
        """Drop the "degraded" results: probes are newer."""
        self.degraded_times, self.degraded_period = [], (0.0, 0.0)

    def signal(self, now: float) -> SignalTuple:
        if now < self.unhealthy_period[1] and self.readmitted_at is not None:
            return "degraded", HealthReason.SUCCESSES_IN_A_ROW, self.readmitted_at
        if now < self.unhealthy_period[1]:
            return "unhealthy", HealthReason.FAILURE_RATE, self.unhealthy_period[0]
        if now < self.rate_period[1]:
            return "degraded", HealthReason.FAILURE_RATE, self.rate_period[0]
        if now < self.degraded_period[1]:
            return "degraded", HealthReason.PROXIED_DEGRADED, self.degraded_period[0]
        return _NO_SIGNAL


@st.composite
def any_settings(draw: st.DrawFn) -> HealthSettings:
    """Generate settings with small numbers, so that a few dozen steps reach every state."""
    window = draw(st.integers(1, 6))
    # Rates that floats represent exactly.
    rates = st.sampled_from([(0.25, 0.5), (0.5, 1.0), (1.0, 1.0), (0.5, None), (None, 0.5), (None, None)])
    failure_rate, unhealthy_rate = draw(rates)
    return HealthSettings(
        streak_length=draw(st.integers(1, 4)),
        window_size=window,
        window_failures=draw(st.integers(1, window)),
        require_full_window=draw(st.booleans()),
        failures_from_unknown=draw(st.integers(1, 3)),
        count_degraded_as_failure=draw(st.booleans()),
        streak_since_entry=draw(st.booleans()),
        clear_window_on_recovery=draw(st.booleans()),
        degraded_responses_needed=draw(st.integers(1, 3)),
        degraded_responses_within=10.0,
        degraded_signal_persists=draw(st.booleans()),
        degraded_signal_duration=20.0,
        failure_rate=failure_rate,
        unhealthy_rate=unhealthy_rate,
        rate_window=20.0,
        rate_min_requests=draw(st.integers(1, 4)),
        reactivate_after=5.0,
        late_tolerance=5.0,
    )


class DestinationMachine(RuleBasedStateMachine):
    """A destination and its model."""

    @initialize(settings=any_settings())
    def begin(self, settings: HealthSettings) -> None:
        self.now = 100.0
        self.settings = settings
        self.destination = Destination(self.now, settings)
        self.diagram = Diagram(settings, self.now, HealthReason.NOTHING_SEEN)
        self.requests = Requests(settings)
        #: Start and end of the instance's own declaration that it is degraded.
        self.declared_period = (0.0, 0.0)
        self.drain: tuple[str, float] | None = None

    def _probe(self, outcome: ProbeOutcome, at: float) -> None:
        self.destination.record_probe(outcome, at)
        before = len(self.diagram.probes)
        if self.diagram.probe(outcome.value, at):
            self.requests.clear_degraded()
        if len(self.diagram.probes) > before:
            self.requests.probe(outcome.value, at)

    @rule(outcome=st.sampled_from(ProbeOutcome), pause=st.sampled_from([0, 1, 5, 10]))
    def probe(self, outcome: ProbeOutcome, pause: int) -> None:
        self.now += pause
        self._probe(outcome, self.now)

    @rule(outcome=st.sampled_from(ProbeOutcome), count=st.integers(2, 5))
    def probe_repeatedly(self, outcome: ProbeOutcome, count: int) -> None:
        for _ in range(count):
            self.probe(outcome, 1)
            self.check_model()

    @precondition(lambda self: self.diagram.probed_at is not None)
    @rule(outcome=st.sampled_from(ProbeOutcome), delay=st.integers(0, 8))
    def probe_late_or_after_a_clock_jump(self, outcome: ProbeOutcome, delay: int) -> None:
        assert self.diagram.probed_at is not None
        self._probe(outcome, self.diagram.probed_at - delay)

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
            self.check_model()

    @rule(
        outcome=st.sampled_from(RequestOutcome), count=st.integers(1, 5), pause=st.sampled_from([0, 1, 5, 10])
    )
    def send_requests(self, outcome: RequestOutcome, count: int, pause: int) -> None:
        for _ in range(count):
            self.now += pause
            self.destination.record_request(outcome, self.now)
            if outcome is RequestOutcome.DEGRADED and self.requests.add_degraded(self.now):
                self.diagram.transition({"proxied degraded"}, self.now)
            self.requests.add_request(self.now, is_failure=outcome is RequestOutcome.FAILURE)
            self.check_model()

    @rule(duration=st.none() | st.integers(0, 40))
    def declare_degraded_state(self, duration: int | None) -> None:
        self.destination.declare_degraded(self.now, duration)
        since = self.declared_period[0] if self.now < self.declared_period[1] else self.now
        self.declared_period = (
            since,
            self.now + (self.settings.degraded_signal_duration if duration is None else duration),
        )

    @precondition(lambda self: self.now < self.declared_period[1])
    @rule()
    def withdraw_declaration(self) -> None:
        self.destination.withdraw(self.now)
        self.declared_period = (0.0, 0.0)

    @rule(reason=st.sampled_from(["work", "upgrade", None]))
    def change_draining(self, reason: str | None) -> None:
        if reason is None:
            self.destination.undrain()
            self.drain = None
        else:
            self.destination.drain(reason, self.now)
            self.drain = self.drain or (reason, self.now)

    @precondition(lambda self: len(self.diagram.probes) > 8)
    @rule()
    def reset_destination(self) -> None:
        self.destination.reset(self.now)
        self.diagram = Diagram(self.settings, self.now, HealthReason.RESET)
        self.requests = Requests(self.settings)
        self.declared_period = (0.0, 0.0)

    @rule(wait=st.sampled_from([1, 5, 10, 20]))
    def let_time_pass(self, wait: int) -> None:
        self.now += wait

    @invariant()
    def check_model(self) -> None:
        verdict, now = self.destination.verdict(self.now), self.now
        declared_signal = (
            ("degraded", HealthReason.DECLARED, self.declared_period[0])
            if now < self.declared_period[1]
            else _NO_SIGNAL
        )
        signals = [self.diagram.signal, self.requests.signal(now), declared_signal]
        for signal, expected in zip(
            (verdict.active, verdict.passive, verdict.declaration), signals, strict=True
        ):
            assert (signal.health.value, signal.reason) == expected[:2]
            assert signal.changed_at == expected[2] or expected is _NO_SIGNAL
        order = ["unknown", "healthy", "degraded", "unhealthy"]
        worst = max(signals, key=lambda signal: order.index(signal[0]))
        assert (verdict.health.value, verdict.reason, verdict.changed_at) == worst
        drain = verdict.drain_request and (verdict.drain_request.reason, verdict.drain_request.requested_at)
        assert drain == self.drain


DestinationMachine.TestCase.settings = hypothesis.settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
TestDestination = DestinationMachine.TestCase


def test_model_has_every_health() -> None:
    """The model would not notice a missing state otherwise."""
    assert {next_state for *_, next_state, _ in TABLE} | {"unknown"} == {health.value for health in Health}
