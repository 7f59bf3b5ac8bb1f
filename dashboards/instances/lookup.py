"""Finds the instance of a URL, by id or by name. Pure."""

from __future__ import annotations

from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import InstanceState


def find_by_id(table: FleetTable, instance_id: str) -> InstanceView | None:
    """Return the instance with this id; None if the table has none."""
    return next((view for view in table.instances.values() if view.facts.id == instance_id), None)


def find_by_name(table: FleetTable, name: str) -> InstanceView | None:
    """Return the instance with this name; of several the newest one, registered instances first."""
    matches = [view for view in table.instances.values() if view.facts.name == name]
    return max(
        matches, key=lambda view: (view.state is not InstanceState.GONE, view.facts.index), default=None
    )


def query_term_of(table: FleetTable, view: InstanceView) -> str:
    """Return what filters of agents call an instance: its name, or its id if another instance has the name."""
    facts = view.facts
    is_ambiguous = any(
        other_view.facts.name == facts.name and other_view.facts.index != facts.index
        for other_view in table.instances.values()
    )
    return facts.id if is_ambiguous else facts.name
