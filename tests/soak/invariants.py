"""What must hold during a soak, judged from what was seen. Pure: samples in, sentences out.

Truth is what a user finds: an agent can be reached if its resource is in the backend and a connection to its service
through some proxy brings back what was sent.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.soak.schedule import Scope, Step

#: Verdicts that say that users cannot reach an agent, and verdicts that say that they can and nothing is wrong.
UNREACHABLE_STATES = frozenset({"stranded", "offline", "never"})
WORKING_STATES = frozenset({"healthy", "excess"})

#: Fewer measurements of a process say nothing about growth: it has just started.
_LEAST_MEASUREMENTS = 4

_ONE_TRACEBACK = r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n(?=[ \t]))*\S.*"
#: With what led to it.
_TRACEBACK = re.compile(
    rf"{_ONE_TRACEBACK}(?:\n\n(?:During handling|The above exception).*\n\n{_ONE_TRACEBACK})*"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What pages showed and what a user found, between two moments. Seconds of one clock."""

    begin: float
    end: float
    #: The verdict of each agent by name; empty while the console cannot answer.
    states: Mapping[str, str] = field(default_factory=dict)
    #: Whether a user reached each agent; agents whose truth could not be found are left out.
    reachable: Mapping[str, bool] = field(default_factory=dict)
    #: State of each instance by name, and the cause of those that another instance makes sick.
    instances: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenIncident:
    """An incident as the console showed it while it was firing and notified."""

    id: str
    cause_kind: str
    cause: str
    opened_at: float


@dataclass(frozen=True, slots=True)
class Size:
    """What a process, a database or a server uses, by name of the quantity."""

    amounts: Mapping[str, float]


def find_wrong_verdicts(samples: Sequence[Sample], grace: float) -> list[str]:
    """Return the agents whose verdict contradicted what users found for longer than `grace` seconds on end."""
    sentences = []
    for name in sorted({name for sample in samples for name in sample.states}):
        for claim, states, is_reachable in (
            ("unreachable, but users reach it", UNREACHABLE_STATES, True),
            ("working, but users do not reach it", WORKING_STATES, False),
        ):
            flags = [
                (sample, sample.states.get(name) in states and sample.reachable.get(name) is is_reachable)
                for sample in samples
            ]
            span = _longest_span(flags)
            if span > grace:
                sentences.append(f"{name} was shown as {claim}, for {span:.0f} s")
    return sentences


def find_wrong_instances(samples: Sequence[Sample], sick: str, grace: float) -> list[str]:
    """Return the instances that were shown as failing or as working for longer than `grace` although they were not.

    `sick` is the instance with a fault during all samples; empty without one. Instances that the console explains by
    another one are not judged.
    """
    sentences = []
    for name in sorted({name for sample in samples for name in sample.instances}):
        is_sick = name == sick
        flags = [
            (
                sample,
                name in sample.instances
                and (sample.instances[name] != "ok") != is_sick
                and not sample.causes.get(name),
            )
            for sample in samples
        ]
        span = _longest_span(flags)
        if span > grace:
            claim = "OK in spite of its fault" if is_sick else "failing without a fault"
            sentences.append(f"{name} was shown as {claim}, for {span:.0f} s")
    return sentences


def find_wrong_incidents(step: Step, incidents: Iterable[SeenIncident], *, is_expected: bool) -> list[str]:
    """Return what is wrong with the notified incidents of a step: another cause, several of one cause, or none.

    `is_expected`: the fault lasted long enough for an incident.
    """
    by_cause = defaultdict(set)
    for incident in incidents:
        by_cause[incident.cause_kind, incident.cause].add(incident.id)
    sentences = [
        f"{len(ids)} incidents of the one cause {cause} ({', '.join(sorted(ids))})"
        for (_, cause), ids in by_cause.items()
        if len(ids) > 1
    ]
    sentences += [
        f"an incident of {kind} {cause}, which had no fault"
        for kind, cause in by_cause
        if not _is_of_step(step, kind, cause)
    ]
    if is_expected and step.fault.makes_sick and not any(cause == step.fault.target for _, cause in by_cause):
        sentences.append(f"no incident of {step.fault.target}")
    return sentences


def find_wrong_notifications(notifications: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return what was notified twice. Each notification is its key, the id of its incident, and its kind."""
    keys: dict[str, tuple[str, str]] = {}
    for key, incident, kind in notifications:
        keys.setdefault(key, (incident, kind))
    counts = Counter(keys.values())
    return [
        f"{count} notifications {kind!r} about incident {incident}"
        for (incident, kind), count in sorted(counts.items())
        if count > 1 and kind in ("firing", "short-outage")
    ]


def may_cut(step: Step, path: Iterable[str]) -> bool:
    """Return whether a fault may end a user connection that uses these processes: only if it kills one of them."""
    return step.fault.action == "kill" and step.fault.target in path


def find_growth(
    measurements: Sequence[Size], limits: Mapping[str, float], limits_per_step: Mapping[str, float]
) -> dict[str, float]:
    """Return by name how much of its limit each amount grew: above 1 is too much.

    What has a limit is compared by its most in the first half with its least in the last third: pools and caches
    that fill during a fault and empty after it do not grow. What may grow with each step is compared by its first and
    last amounts. Units are the last part of a name; units without a limit are left out.
    """
    series = defaultdict(list)
    for size in measurements:
        for name, amount in size.amounts.items():
            series[name].append(amount)
    shares = {}
    for name, amounts in series.items():
        unit, count = name.rpartition(" ")[2], len(amounts)
        if count < _LEAST_MEASUREMENTS:
            continue
        if unit in limits:
            growth = min(amounts[-max(2, count // 3) :]) - max(amounts[: -(-count // 2)])
            shares[name] = growth / limits[unit]
        elif unit in limits_per_step:
            shares[name] = (amounts[-1] - amounts[0]) / (limits_per_step[unit] * (count - 1))
    return shares


def find_tracebacks(text: str) -> list[str]:
    """Return the tracebacks in a log, each with those that led to it."""
    return _TRACEBACK.findall(text)


def _is_of_step(step: Step, kind: str, cause: str) -> bool:
    """Return whether an incident belongs to what a step did."""
    if kind == "console":
        return step.fault.scope is Scope.CONSOLE or bool(step.killed_program)
    if step.fault.scope is Scope.INSTANCE:
        return cause == step.fault.target
    if step.fault.scope is Scope.BACKEND:
        return kind == "backend"
    # Agents that stopped, or lost the way to all proxies or auths, have no failing instance as the cause.
    return step.fault.scope is Scope.MEMBER and kind in ("agents", "fleet")


def _longest_span(flags: Iterable[tuple[Sample, bool]]) -> float:
    """Return the longest time in which every sample is flagged: from the end of its first to the begin of its last."""
    longest, first = 0.0, None
    for sample, is_flagged in flags:
        if not is_flagged:
            first = None
            continue
        first = sample.end if first is None else first
        longest = max(longest, sample.begin - first)
    return longest
