"""Checks and helpers for the fleet data of plans of every kind. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.changes import NoEvidenceError
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import LOST_STATES
from fleet.vocabulary.verdicts import State


def require_evidence(table: FleetTable) -> None:
    """Raise NoEvidenceError when there is no current data of the fleet to plan with."""
    if table.as_of is None:
        raise NoEvidenceError(
            "no data: no poller has completed a round of the fleet yet. Try again in a few seconds"
        )
    if table.stale:
        raise NoEvidenceError("no current data: polling has stopped. Check that a poller is running")
    states = table.verdicts["state"]
    known_mask = (states != State.UNKNOWN) & (states != State.RETIRED)
    if len(states) and not known_mask.any() and (states == State.UNKNOWN).any():
        raise NoEvidenceError(
            "no current data: the state of every agent is unknown. Check that auths are reachable"
        )


def newest_generations_of(views: Iterable[InstanceView]) -> dict[str, int]:
    """Return the highest generation of each group, among proxies that agents track."""
    generations: dict[str, int] = {}
    for view in views:
        if view.state not in LOST_STATES:
            facts = view.facts
            generations[facts.group] = max(generations.get(facts.group, 0), facts.generation)
    return generations
