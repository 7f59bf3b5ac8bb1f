"""A day of alerting with timers of full length on a simulated clock: pure code needs no compressed timers.

Outages of auths and proxies, and pauses of monitoring, follow each other by a seed. Each has one incident, which is
notified once when it begins and once when it is over.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.vocabulary.incidents import Cause, CauseKind, IncidentState
from tests.fakes.alerting import AlertSimulation, healthy_facts, stale_facts, stranded_facts

_AUTHS, _PROXIES = 3, 20
#: Seconds: an outage lasts from a missed poll to two hours. The next one comes when the quiet time of 5 min is over.
_LENGTHS, _GAPS = (5.0, 7200.0), (400.0, 1800.0)
_BLIND_SHARE = 0.15
#: From here on an outage must have an incident, seconds: two polls for stranded agents, a minute for an instance.
_STRANDED_AFTER, _SICK_AFTER, _BLIND_AFTER = 15.0, 75.0, 15.0
#: The number of stranded agents from which *Agents stranded* matches: 0.5 % of 10,000.
_CRITICAL_COUNT = 50
_MAX_TIMELINE = 20


@dataclass(frozen=True, slots=True)
class Outage:
    """An instance that fails and strands agents, or a pause of monitoring, which has no cause."""

    begin: float
    length: float
    cause: Cause | None
    stranded_count: int = 0

    @property
    def label(self) -> str:
        """Name for people: `proxy-3 strands 120 agents for 45 s`."""
        subject = (
            f"{self.cause.name} strands {self.stranded_count} agents" if self.cause else "no monitoring data"
        )
        return f"t={self.begin:.0f} {subject} for {self.length:.0f} s"

    @property
    def needs_incident(self) -> bool:
        """Return whether it lasts long enough for an incident."""
        if self.cause is None:
            return self.length > _BLIND_AFTER
        return self.length > (_STRANDED_AFTER if self.stranded_count >= _CRITICAL_COUNT else _SICK_AFTER)


def plan_day(seed: int, hours: float) -> list[Outage]:
    """Return the outages of so many hours."""
    rng = random.Random(seed)
    causes = [
        Cause(kind, f"{kind}-id-{number}", f"{kind}-{number}")
        for kind, count in ((CauseKind.AUTH, _AUTHS), (CauseKind.PROXY, _PROXIES))
        for number in range(1, count + 1)
    ]
    outages: list[Outage] = []
    at = rng.uniform(*_GAPS)
    while at < hours * 3600.0:
        length = round(math.exp(rng.uniform(*map(math.log, _LENGTHS))))
        cause = None if rng.random() < _BLIND_SHARE else rng.choice(causes)
        outages.append(Outage(round(at), length, cause, rng.choice((0, 3, 60, 900)) if cause else 0))
        at += length + rng.uniform(*_GAPS)
    return outages


def play_day(outages: Sequence[Outage]) -> tuple[AlertSimulation, list[str]]:
    """Evaluate the default rules once a second through all outages; return the simulation and the violations."""
    simulation = AlertSimulation()
    sentences = []
    for outage in outages:
        _run_until(simulation, outage.begin)
        numbers_before = set(simulation.fired_incidents)
        facts = stale_facts() if outage.cause is None else stranded_facts(outage.stranded_count, outage.cause)
        simulation.run(outage.length, facts)
        _run_until(simulation, outage.begin + outage.length + _GAPS[0] - 1)
        fresh = [
            incident
            for number, incident in simulation.fired_incidents.items()
            if number not in numbers_before
        ]
        notified = [incident for incident in fresh if not incident.inhibited_by]
        cause_kind = outage.cause.kind if outage.cause else CauseKind.CONSOLE
        if len(notified) > 1 or any(incident.cause.kind is not cause_kind for incident in notified):
            sentences.append(f"{outage.label}: incidents {[incident.id for incident in notified]}")
        if outage.needs_incident and not notified:
            sentences.append(f"{outage.label}: no incident")
    return simulation, sentences + _judge(simulation)


def _judge(simulation: AlertSimulation) -> list[str]:
    """Return what is wrong at the end: open incidents, notifications that are missing or doubled, long timelines."""
    sentences = [
        f"incident {incident.id} is still {incident.state}" for incident in simulation.incidents.values()
    ]
    kinds = Counter(
        (notification.incident.id, notification.kind.value) for _, notification in simulation.notifications
    )
    lengths = Counter(incident.id for incident, _ in simulation.timeline_entries)
    for number, incident in simulation.fired_incidents.items():
        if incident.state is not IncidentState.RESOLVED or incident.inhibited_by:
            continue
        firsts = kinds[number, "firing"] + kinds[number, "short-outage"]
        if firsts != 1 or kinds[number, "resolved"] != kinds[number, "firing"]:
            sentences.append(f"incident {number} has notifications {_kinds_of(kinds, number)}")
        if lengths[number] > _MAX_TIMELINE:
            sentences.append(f"incident {number} has {lengths[number]} timeline entries")
    return sentences


def _kinds_of(kinds: Counter[tuple[str, str]], number: str) -> dict[str, int]:
    return {kind: count for (incident, kind), count in kinds.items() if incident == number}


def _run_until(simulation: AlertSimulation, moment: float) -> None:
    simulation.run(simulation.started_at + moment - simulation.now, healthy_facts())
