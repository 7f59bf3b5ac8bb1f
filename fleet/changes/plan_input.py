"""What plans of every kind need of what is seen of a fleet. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.changes import NoEvidenceError
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import LOST_STATES
from fleet.vocabulary.verdicts import State


def require_evidence(table: FleetTable) -> None:
    """Raise Blind when too little is seen of a fleet to foresee anything."""
    if table.as_of is None:
        raise NoEvidenceError("no round has concluded yet: nothing is known of the fleet")
    if table.stale:
        raise NoEvidenceError("the pollers are blind: the newest round is too old to foresee anything by")
    states = table.verdicts["state"]
    known_mask = (states != State.UNKNOWN) & (states != State.RETIRED)
    if len(states) and not known_mask.any() and (states == State.UNKNOWN).any():
        raise NoEvidenceError("the pollers are blind: of no agent is known how it is")


def newest_generations_of(views: Iterable[InstanceView]) -> dict[str, int]:
    """By group, the highest generation among proxies that agents track."""
    generations: dict[str, int] = {}
    for view in views:
        if view.state not in LOST_STATES:
            facts = view.facts
            generations[facts.group] = max(generations.get(facts.group, 0), facts.generation)
    return generations
