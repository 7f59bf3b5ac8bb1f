"""Picking by health: failed requests and the largest load on one destination, for our rule, guards and other rules.

Time is simulated, a second a step; all rules see the same destinations, each is probed every second, and requests go
by what the probes of the second before saw. What a probe meets is what a request meets: also an overload that the rule
itself makes.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from fleet.protocol.destination.health import ProbeOutcome
from fleet.protocol.destination.picker import DEFAULTS
from tests.bench._pickers import Consul, Envoy, RefloatRule, Rule, Yarp
from tests.bench.measure import Figure, Outcome, Target


@dataclass(frozen=True, slots=True)
class _Behavior:
    """What a destination does in one second."""

    #: Of the requests, and of the probes, that fail; they are the same unless a scenario says so.
    fails: float = 0.0
    probe_fails: float | None = None
    #: Its health check reports degraded.
    is_degraded: bool = False
    #: Its capacity as a share of its healthy capacity.
    capacity: float = 1.0


_WELL, _DEAD = _Behavior(), _Behavior(fails=1.0)


@dataclass(frozen=True, slots=True)
class _Scenario:
    destinations: int
    #: What all requests take of the capacity there is when all are well.
    use: float
    #: (number, second, seconds in all) -> what that one does then.
    behavior: Callable[[int, int, int], _Behavior]


def _some_fail(number: int, _second: int, _whole: int) -> _Behavior:
    """30 of 100 fail two requests of five."""
    return _Behavior(fails=0.4) if number < 30 else _WELL


def _some_are_slow(number: int, _second: int, _whole: int) -> _Behavior:
    """40 of 100 can take half of what they could, and say so."""
    return _Behavior(is_degraded=True, capacity=0.5) if number < 40 else _WELL


def _most_die(number: int, second: int, whole: int) -> _Behavior:
    """One after another dies, until five of a hundred are left."""
    return _DEAD if number < min(95, 120 * second // whole) else _WELL


def _five_left(number: int, _second: int, _whole: int) -> _Behavior:
    """Five of a hundred are left."""
    return _DEAD if number < 95 else _WELL


def _one_left(number: int, _second: int, _whole: int) -> _Behavior:
    """One of a hundred is left."""
    return _DEAD if number < 99 else _WELL


def _some_flap(number: int, second: int, _whole: int) -> _Behavior:
    """20 of 100 are dead for 3 s of every 10, each at its own time."""
    return _DEAD if number < 20 and (second + number) % 10 < 3 else _WELL


def _probes_fail(number: int, second: int, whole: int) -> _Behavior:
    """From half time on every probe fails, and every request is answered: the prober is ill."""
    return _Behavior(probe_fails=1.0) if second > whole // 2 else _WELL


def _last_of_three(number: int, second: int, whole: int) -> _Behavior:
    """Of three, one dies at a third of the time and another at two thirds."""
    return _DEAD if second > whole * (number + 1) // 3 else _WELL


_SCENARIOS = {
    "grey": _Scenario(100, 0.5, _some_fail),
    "tired": _Scenario(100, 0.6, _some_are_slow),
    "dying": _Scenario(100, 0.3, _most_die),
    "five_left": _Scenario(100, 0.3, _five_left),
    "five_left_idle": _Scenario(100, 0.02, _five_left),
    "one_left_idle": _Scenario(100, 0.005, _one_left),
    "flapping": _Scenario(100, 0.5, _some_flap),
    "blind": _Scenario(100, 0.5, _probes_fail),
    "three": _Scenario(3, 0.3, _last_of_three),
}
#: Other guards than the one that ships, in fair shares.
_GUARDS = (3, 10, 30)


def _with_guard(guard: float, count: int) -> RefloatRule:
    return RefloatRule(count, replace(DEFAULTS, guard=guard))


_RULES: dict[str, Callable[[int], Rule]] = {
    "ours": RefloatRule,
    **{f"guard_{guard}": partial(_with_guard, float(guard)) for guard in _GUARDS},
    "envoy": Envoy,
    "yarp": Yarp,
    "consul": Consul,
}
#: Rules of other products.
_OTHER_RULES = ("envoy", "yarp", "consul")
_SETTLING = 20
#: Nothing here is left to the machine's speed; what moves a figure is a change of a rule.
_TARGETS = (
    Target("ours_grey_failed_pct", at_most=6),
    Target("ours_tired_failed_pct", at_most=0.5),
    Target("ours_blind_failed_pct", at_most=0.5),
    Target("ours_dying_failed_pct", at_most=28),
    Target("ours_five_left_failed_pct", at_most=88),
    Target("ours_five_left_idle_failed_pct", at_most=0.5),
    Target("ours_one_left_idle_failed_pct", at_most=0.5),
    #: Of all scenarios; the guard that ships is the best one by its mean.
    Target("mean_behind_best_guard_points", at_most=0),
    Target("behind_best_rule_points", at_most=2.5),
)


def run(*, quick: bool) -> Outcome:
    """Simulate each rule in each scenario, with the same random seed."""
    seconds = 20 if quick else 600
    figures: dict[str, Figure] = {"seconds": seconds}
    peers: dict[str, Figure] = {}
    percents_by_rule: dict[str, dict[str, float]] = {rule: {} for rule in _RULES}
    for name, scenario in _SCENARIOS.items():
        print(f"{name}: {scenario.behavior.__doc__}", file=sys.stderr, flush=True)
        for rule, make in _RULES.items():
            failure_share, load = _simulate(scenario, make(scenario.destinations), seconds)
            into = figures if rule == "ours" else peers
            percents_by_rule[rule][name] = into[f"{rule}_{name}_failed_pct"] = 100 * failure_share
            into[f"{rule}_{name}_load_max"] = load
    for rule, percents in percents_by_rule.items():
        (figures if rule == "ours" else peers)[f"{rule}_mean_failed_pct"] = statistics.fmean(
            percents.values()
        )
    return Outcome(figures | _comparisons(percents_by_rule), () if quick else _TARGETS, peers)


def _comparisons(percents: Mapping[str, Mapping[str, float]]) -> dict[str, Figure]:
    """Compare our failures, in percent by scenario, with those of other guards and of other rules."""
    guard_means = [statistics.fmean(percents[f"guard_{guard}"].values()) for guard in _GUARDS]
    behind = {
        name: percent - min(percents[rule][name] for rule in _OTHER_RULES)
        for name, percent in percents["ours"].items()
    }
    losses = [name for name, points in behind.items() if points > 0.05]
    return {
        "mean_behind_best_guard_points": statistics.fmean(percents["ours"].values()) - min(guard_means),
        "behind_best_rule_points": max(behind.values()),
        "scenarios_where_another_rule_fails_less": ", ".join(losses) or "none",
    }


def _simulate(scenario: _Scenario, rule: Rule, seconds: int) -> tuple[float, float]:
    """Return the share of failed requests and the largest load on one destination, in fair shares, after settling."""
    chance = random.Random(2071)
    count = scenario.destinations
    failures, largest = 0.0, 0.0
    for second in range(_SETTLING + seconds):
        behaviors = [
            scenario.behavior(number, max(0, second - _SETTLING), seconds) for number in range(count)
        ]
        shares = rule.shares(float(second))
        loads = [share * count for share in shares]
        overloads = [
            _overload(behavior, load * scenario.use) for behavior, load in zip(behaviors, loads, strict=True)
        ]
        if second >= _SETTLING:
            failures += 1 - sum(
                share * (1 - behavior.fails) * (1 - overload)
                for share, behavior, overload in zip(shares, behaviors, overloads, strict=True)
            )
            largest = max(largest, *loads)
        outcomes = [
            _probe(behavior, overload, chance.random())
            for behavior, overload in zip(behaviors, overloads, strict=True)
        ]
        rule.observe(outcomes, float(second))
    # What is left of adding up many shares is no request.
    return round(failures / seconds, 6) + 0.0, round(largest, 6)


def _overload(behavior: _Behavior, load: float) -> float:
    """Return the share of its requests that a destination must refuse."""
    return max(0.0, 1 - behavior.capacity / load) if load > 0 else 0.0


def _probe(behavior: _Behavior, overload: float, chance: float) -> ProbeOutcome:
    fails = behavior.fails if behavior.probe_fails is None else behavior.probe_fails
    if chance >= (1 - fails) * (1 - overload):
        return ProbeOutcome.FAILURE
    return ProbeOutcome.DEGRADED if behavior.is_degraded else ProbeOutcome.SUCCESS
