"""Skipping of evaluations: one with the same input as an evaluation that changed nothing changes nothing. Pure.

docs/reference/alerts.md, "Evaluations".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.alerts.evaluation import EvaluationOutcome
from fleet.alerts.facts import ClusterFacts
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.lifecycle.stages import next_change_at
from fleet.alerts.routing.tree import Route, escalates_at, match_routes
from fleet.alerts.rules import Rule
from fleet.alerts.silences import Silence
from fleet.alerts.wording.words import find_next_midnight
from fleet.vocabulary.incidents import Incident


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The input of an evaluation that changed nothing. Any change of an incident discards it."""

    facts: ClusterFacts
    rules: Sequence[Rule]
    silences: Sequence[Silence]
    #: None: no incident can escalate, so routes do not matter.
    routes: Sequence[Route] | None
    #: Time at which an incident changes by time alone.
    valid_until: float

    def applies_to(
        self,
        facts: ClusterFacts,
        rules: Sequence[Rule],
        silences: Sequence[Silence],
        routes: Sequence[Route] | None,
    ) -> bool:
        """Return whether an evaluation of this input changes nothing, too. `routes` may be None if `self.routes` is."""
        return (
            self.facts.now <= facts.now < self.valid_until
            and facts.is_fresh
            and rules == self.rules
            and silences == self.silences
            and (self.routes is None or routes == self.routes)
            # `as_of` only matters while a rule counts polls, and `valid_until` has passed then.
            and replace(facts, now=self.facts.now, as_of=self.facts.as_of) == self.facts
        )


def steady_state_of(
    outcome: EvaluationOutcome,
    facts: ClusterFacts,
    rules: Sequence[Rule],
    silences: Sequence[Silence],
    routes: Sequence[Route] | None,
) -> SteadyState | None:
    """Return the input of an evaluation that changed nothing; None if it changed anything or Refloat is blind."""
    if (
        outcome.changed_incidents
        or outcome.dropped_incidents
        or outcome.timeline_entries
        or outcome.notifications
        or not facts.is_fresh
    ):
        return None
    return SteadyState(facts, rules, silences, routes, _valid_until(outcome.incidents, facts, rules, routes))


def _valid_until(
    incidents: Mapping[str, Incident],
    facts: ClusterFacts,
    rules: Sequence[Rule],
    routes: Sequence[Route] | None,
) -> float:
    evaluation_context = EvaluationContext(facts.now, facts.as_of or 0.0, {rule.name: rule for rule in rules})
    times = [next_change_at(incident, evaluation_context) for incident in incidents.values()]
    for incident in incidents.values() if routes else ():
        at = escalates_at(match_routes(routes or (), incident), incident)
        if at is not None:
            times.append(at)
    if incidents:
        times.append(find_next_midnight(facts.now))
    return min(times, default=float("inf"))
