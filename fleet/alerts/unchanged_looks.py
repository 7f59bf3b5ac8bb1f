"""Which looks may be left out: one that is taken at the same as a look that changed nothing changes nothing. Pure.

docs/alerts.md, "One look".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.alerts.facts import Facts
from fleet.alerts.lifecycle import Look, changes_at
from fleet.alerts.round import Outcome
from fleet.alerts.routes import Route, escalates_at, leaves
from fleet.alerts.rules import Rule
from fleet.alerts.silences import Silence
from fleet.vocabulary.incidents import Incident


@dataclass(frozen=True, slots=True)
class Calm:
    """What a look that changed nothing was taken at. Incidents are not here: whoever changes one ends the calm."""

    facts: Facts
    rules: Sequence[Rule]
    quiet: Sequence[Silence]
    #: None: no incident can be escalated, so routes do not matter.
    routes: Sequence[Route] | None
    #: When the clock alone would change an incident.
    until: float

    def holds(
        self, facts: Facts, rules: Sequence[Rule], quiet: Sequence[Silence], routes: Sequence[Route] | None
    ) -> bool:
        """Whether a look at these changes nothing either; `routes` may be None where ours are."""
        return (
            self.facts.now <= facts.now < self.until
            and facts.fresh
            and rules == self.rules
            and quiet == self.quiet
            and (self.routes is None or routes == self.routes)
            # Rounds are told apart by `as_of` only while a rule counts them: `until` is over then.
            and replace(facts, now=self.facts.now, as_of=self.facts.as_of) == self.facts
        )


def calm_after(
    outcome: Outcome,
    facts: Facts,
    rules: Sequence[Rule],
    quiet: Sequence[Silence],
    routes: Sequence[Route] | None,
) -> Calm | None:
    """Return the calm that a look found; None when it changed anything, or saw nothing."""
    if outcome.changed or outcome.dropped or outcome.happened or outcome.notices or not facts.fresh:
        return None
    return Calm(facts, rules, quiet, routes, _until(outcome.incidents, facts, rules, routes))


def _until(
    incidents: Mapping[str, Incident], facts: Facts, rules: Sequence[Rule], routes: Sequence[Route] | None
) -> float:
    this = Look(facts.now, facts.as_of or 0.0, {rule.name: rule for rule in rules})
    times = [changes_at(incident, this) for incident in incidents.values()]
    for incident in incidents.values() if routes else ():
        at = escalates_at(leaves(routes or (), incident), incident)
        if at is not None:
            times.append(at)
    return min(times, default=float("inf"))
