"""Picking by health: requests that fail and the largest load on one destination, ours and three others' rules.

Time is simulated, a second a step; all rules see the same destinations, each is probed every second, and requests go
by what the probes of the second before saw. What a probe meets is what a request meets: also an overload that the rule
itself makes.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from fleet.protocol.destination.health import ProbeOutcome
from fleet.protocol.destination.picker import DEFAULTS
from tests.bench._pickers import Consul, Envoy, Ours, Rule, Yarp
from tests.bench.measure import Figure, Outcome, Target


@dataclass(frozen=True, slots=True)
class _Truth:
    """What a destination does in one second."""

    #: Of the requests, and of the probes, that fail; they are the same unless a scenario says so.
    fails: float = 0.0
    probe_fails: float | None = None
    #: It says of itself that it is degraded.
    degraded: bool = False
    #: What it can take, of what it can when it is well.
    capacity: float = 1.0


_WELL, _DEAD = _Truth(), _Truth(fails=1.0)


@dataclass(frozen=True, slots=True)
class _Scenario:
    destinations: int
    #: What all requests take of the capacity there is when all are well.
    use: float
    #: (number, second, seconds in all) -> what that one does then.
    truth: Callable[[int, int, int], _Truth]


def _grey(number: int, _second: int, _whole: int) -> _Truth:
    """30 of 100 fail two requests of five."""
    return _Truth(fails=0.4) if number < 30 else _WELL


def _tired(number: int, _second: int, _whole: int) -> _Truth:
    """40 of 100 can take half of what they could, and say so."""
    return _Truth(degraded=True, capacity=0.5) if number < 40 else _WELL


def _dying(number: int, second: int, whole: int) -> _Truth:
    """One after another dies, until five of a hundred are left."""
    return _DEAD if number < min(95, 120 * second // whole) else _WELL


def _five_left(number: int, _second: int, _whole: int) -> _Truth:
    """Five of a hundred are left."""
    return _DEAD if number < 95 else _WELL


def _flapping(number: int, second: int, _whole: int) -> _Truth:
    """20 of 100 are dead for 3 s of every 10, each at its own time."""
    return _DEAD if number < 20 and (second + number) % 10 < 3 else _WELL


def _blind(number: int, second: int, whole: int) -> _Truth:
    """From half time on every probe fails, and every request is answered: the prober is ill."""
    return _Truth(probe_fails=1.0) if second > whole // 2 else _WELL


def _last_of_three(number: int, second: int, whole: int) -> _Truth:
    """Of three, one dies at a third of the time and another at two thirds."""
    return _DEAD if second > whole * (number + 1) // 3 else _WELL


_SCENARIOS = {
    "grey": _Scenario(100, 0.5, _grey),
    "tired": _Scenario(100, 0.6, _tired),
    "dying": _Scenario(100, 0.3, _dying),
    "five_left": _Scenario(100, 0.3, _five_left),
    "five_left_idle": _Scenario(100, 0.02, _five_left),
    "flapping": _Scenario(100, 0.5, _flapping),
    "blind": _Scenario(100, 0.5, _blind),
    "three": _Scenario(3, 0.3, _last_of_three),
}
_RULES: dict[str, Callable[[int], Rule]] = {
    "ours": Ours,
    "ours_unguarded": lambda count: Ours(count, replace(DEFAULTS, guard=1_000.0)),
    "envoy": Envoy,
    "yarp": Yarp,
    "consul": Consul,
}
_SETTLING = 20
#: Nothing here is left to the machine's speed; what moves a figure is a change of a rule.
_TARGETS = (
    Target("ours_grey_failed_pct", at_most=6),
    Target("ours_tired_failed_pct", at_most=0.5),
    Target("ours_blind_failed_pct", at_most=0.5),
    Target("ours_dying_load_max", at_most=3),
    Target("ours_five_left_load_max", at_most=3),
)


def run(*, quick: bool) -> Outcome:
    """Each rule in each scenario, by the same chances."""
    seconds = 120 if quick else 600
    figures: dict[str, Figure] = {"seconds": seconds}
    peers: dict[str, Figure] = {}
    for name, scenario in _SCENARIOS.items():
        print(f"{name}: {scenario.truth.__doc__}", file=sys.stderr, flush=True)
        for rule, make in _RULES.items():
            failed, load = _play(scenario, make(scenario.destinations), seconds)
            into = figures if rule == "ours" else peers
            into[f"{rule}_{name}_failed_pct"] = 100 * failed
            into[f"{rule}_{name}_load_max"] = load
    return Outcome(figures, _TARGETS, peers)


def _play(scenario: _Scenario, rule: Rule, seconds: int) -> tuple[float, float]:
    """The share of requests that failed, and the largest load on one, in fair shares, once it has settled."""
    chance = random.Random(2071)
    count = scenario.destinations
    failed, largest = 0.0, 0.0
    for second in range(_SETTLING + seconds):
        truths = [scenario.truth(number, max(0, second - _SETTLING), seconds) for number in range(count)]
        shares = rule.shares(float(second))
        loads = [share * count for share in shares]
        met = [_overload(truth, load * scenario.use) for truth, load in zip(truths, loads, strict=True)]
        if second >= _SETTLING:
            failed += 1 - sum(
                share * (1 - truth.fails) * (1 - over)
                for share, truth, over in zip(shares, truths, met, strict=True)
            )
            largest = max(largest, *loads)
        outcomes = [_probe(truth, over, chance.random()) for truth, over in zip(truths, met, strict=True)]
        rule.probed(outcomes, float(second))
    # What is left of adding up many shares is no request.
    return round(failed / seconds, 6) + 0.0, round(largest, 6)


def _overload(truth: _Truth, load: float) -> float:
    """The share of what it gets that a destination must refuse."""
    return max(0.0, 1 - truth.capacity / load) if load > 0 else 0.0


def _probe(truth: _Truth, overload: float, chance: float) -> ProbeOutcome:
    fails = truth.fails if truth.probe_fails is None else truth.probe_fails
    if chance >= (1 - fails) * (1 - overload):
        return ProbeOutcome.FAILURE
    return ProbeOutcome.DEGRADED if truth.degraded else ProbeOutcome.SUCCESS
