"""What plans of every kind need of what is seen of a fleet. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.changes import Blind
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import LOST
from fleet.vocabulary.verdicts import State


def refuse_blind(table: FleetTable) -> None:
    """Raise Blind when too little is seen of a fleet to foresee anything."""
    if table.as_of is None:
        raise Blind("no round has concluded yet: nothing is known of the fleet")
    if table.stale:
        raise Blind("the pollers are blind: the newest round is too old to foresee anything by")
    states = table.verdicts["state"]
    known = (states != State.UNKNOWN) & (states != State.RETIRED)
    if len(states) and not known.any() and (states == State.UNKNOWN).any():
        raise Blind("the pollers are blind: of no agent is known how it is")


def newest_generations(views: Iterable[InstanceView]) -> dict[str, int]:
    """By group, the highest generation among proxies that agents track."""
    newest: dict[str, int] = {}
    for view in views:
        if view.state not in LOST:
            facts = view.facts
            newest[facts.group] = max(newest.get(facts.group, 0), facts.generation)
    return newest
