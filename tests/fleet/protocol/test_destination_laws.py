"""Any order of probes and proxied results, in any reading: as a table says that knows nothing but what happened."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fleet.protocol.destination import Destination, Health, Probe, Proxied, Settings

#: The diagram of the proposal: state, what happened, next state. Nothing else moves.
TABLE = {
    ("unknown", "success"): "healthy",
    ("unknown", "not success"): "unhealthy",
    ("degraded", "3rd success"): "healthy",
    ("healthy", "proxied degraded"): "degraded",
    ("healthy", "degraded"): "degraded",
    ("healthy", "not success in 2 of 5"): "degraded",
    ("degraded", "3rd not success"): "unhealthy",
    ("unhealthy", "success"): "degraded",
    # Where "degraded" is not "not success", it has arrows of its own.
    ("unknown", "only degraded"): "degraded",
    ("unhealthy", "only degraded"): "degraded",
}


class Model:
    """All that happened, and the state the table gives; what counts is looked up in the whole story each time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state = "unknown"
        self.probes: list[str] = []
        #: How many probes there had been when the state was last entered, and when Healthy was.
        self.entered = self.healthy_since = 0

    def _failed(self, probe: str) -> bool:
        return probe == "failure" or (self.settings.degraded_fails and probe == "degraded")

    def _what(self) -> set[str]:
        probe = self.probes[-1]
        what = {probe}
        counted = self.probes[self.entered if self.settings.streak_since_entry else 0 :]
        three = counted[-3:] if len(counted) >= 3 else []
        if three == ["success"] * 3:
            what.add("3rd success")
        if self._failed(probe):
            what.add("not success")
            window = self.probes[self.healthy_since if self.settings.clear_window else 0 :][-5:]
            if len([one for one in window if self._failed(one)]) >= 2:
                what.add("not success in 2 of 5")
            if three and all(self._failed(one) for one in three):
                what.add("3rd not success")
        elif probe == "degraded":
            what.add("only degraded")
        return what

    def probe(self, outcome: str) -> None:
        self.probes.append(outcome)
        self._go(self._what())

    def _go(self, what: set[str]) -> None:
        ways = {TABLE[self.state, one] for one in what if (self.state, one) in TABLE}
        assert len(ways) <= 1, "the diagram is ambiguous"
        for self.state in ways:
            self.entered = len(self.probes)
            if self.state == "healthy":
                self.healthy_since = len(self.probes)

    def proxied(self) -> None:
        self._go({"proxied degraded"})


class Observed(RuleBasedStateMachine):
    """One destination and the model of it."""

    @initialize(degraded_fails=st.booleans(), since_entry=st.booleans(), clear=st.booleans())
    def begin(self, degraded_fails: bool, since_entry: bool, clear: bool) -> None:
        settings = Settings(
            degraded_fails=degraded_fails,
            streak_since_entry=since_entry,
            clear_window=clear,
            failure_rate=None,
            declared_for=20.0,
        )
        self.now = 0.0
        self.destination = Destination(self.now, settings)
        self.model = Model(settings)
        self.moved_at = 0.0
        #: Until when words said beside the diagram hold.
        self.declared_until = self.word_until = 0.0

    def _moved(self, before: str) -> None:
        if self.model.state != before:
            self.moved_at = self.now
            if self.model.state == "healthy":
                self.word_until = 0.0

    @rule(outcome=st.sampled_from(Probe), took=st.integers(0, 15))
    def probe(self, outcome: Probe, took: int) -> None:
        self.now += took
        before = self.model.state
        self.model.probe(outcome.value)
        self.destination.probed(outcome, self.now)
        self._moved(before)

    @rule(count=st.integers(2, 5))
    def is_well_for_a_while(self, count: int) -> None:
        for _ in range(count):
            self.probe(Probe.SUCCESS, 1)
            self.the_diagram_is_kept()

    @rule(result=st.sampled_from(Proxied))
    def proxied(self, result: Proxied) -> None:
        before = self.model.state
        if result is Proxied.DEGRADED:
            self.model.proxied()
            self.word_until = self.now + 20
        self.destination.proxied(result, self.now)
        self._moved(before)

    @rule(lasts=st.integers(1, 40))
    def declares(self, lasts: int) -> None:
        self.destination.declare_degraded(self.now, float(lasts))
        self.declared_until = self.now + lasts

    @rule()
    def withdraws(self) -> None:
        self.destination.withdraw(self.now)
        self.declared_until = 0.0

    @rule(drained=st.booleans())
    def drained(self, drained: bool) -> None:
        if drained:
            self.destination.drain("work", self.now)
        else:
            self.destination.undrain()
        assert (self.destination.verdict(self.now).draining is not None) == drained

    @rule(wait=st.integers(1, 30))
    def nothing_happens(self, wait: int) -> None:
        self.now += wait

    @invariant()
    def the_diagram_is_kept(self) -> None:
        signal = self.destination.active.signal
        assert (signal.health.value, signal.at) == (self.model.state, self.moved_at)

    @invariant()
    def the_worst_signal_counts(self) -> None:
        verdict = self.destination.verdict(self.now)
        word = Health.DEGRADED if self.now < self.word_until else Health.UNKNOWN
        declared = Health.DEGRADED if self.now < self.declared_until else Health.UNKNOWN
        assert (verdict.passive.health, verdict.declared.health) == (word, declared)
        order = ["unknown", "healthy", "degraded", "unhealthy"]
        assert verdict.health.value == max(self.model.state, word.value, declared.value, key=order.index)


Observed.TestCase.settings = hypothesis.settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDestination = Observed.TestCase
