"""What the fleet suffers from now: the causes that incidents would be about, of one moment. Pure.

Pages name these, so that they say what an incident says: docs/alerts.md, "Inhibition".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.alerts.facts import (
    backend_of,
    beginnings,
    cause_of_instance,
    fail_together,
    instances_together,
    root_cause_of,
    whole_of,
)
from fleet.alerts.inhibition import JOINT, STRENGTH
from fleet.monitoring.classify import prepare
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import FAULTS, InstanceKind, InstanceState
from fleet.vocabulary.naming import natural


@dataclass(frozen=True, slots=True)
class SickCause:
    """One cause that stands for itself."""

    key: str
    #: Without a full stop: `proxy-1 does not answer`.
    words: str


def causes_now(table: FleetTable) -> tuple[SickCause, ...]:
    """Return the causes that stand for themselves, the strongest first; what a stronger one explains is left out."""
    if table.as_of is None:
        return ()
    frame = prepare(table.fleet, table.as_of)
    if frame.unreachable:
        return (SickCause(whole_of(table.cluster).key, "no instance of the cluster answers"),)
    sick = [view for view in table.instances.values() if view.state in FAULTS]
    keys = {cause_of_instance(view).key for view in sick}
    sick = [view for view in sick if root_cause_of(view) not in keys]
    found: list[SickCause] = []
    if frame.backend_down:
        began = beginnings(table, frame)
        backend = backend_of(table.cluster)
        found.append(SickCause(backend.key, _backend_words(table)))
        earliest = began[backend.key]
        sick = [
            view
            for view in sick
            if began.get(cause_of_instance(view).key, frame.now) < earliest
            and root_cause_of(view) != backend.key
        ]
    together = instances_together(table.instances.values())
    for cause in sorted(together, key=lambda cause: STRENGTH.index(cause.kind)):
        assert cause.kind in JOINT, "what fails together is a region or a proxy group"
        members = [view for view in sick if cause_of_instance(view).key in together[cause]]
        if fail_together(len(members), len(together[cause])):
            words = f"{len(members)} of {len(together[cause])} instances of {cause.name} are sick"
            found.append(SickCause(cause.key, words))
            sick = [view for view in sick if view not in members]
    return (*found, *_of_instances(sick))


def _backend_words(table: FleetTable) -> str:
    auths = [
        view
        for view in table.instances.values()
        if view.facts.kind is InstanceKind.AUTH and view.state is not InstanceState.GONE
    ]
    return f"all {len(auths)} auth servers fell sick together, likely because of their backend"


def _of_instances(sick: Sequence[InstanceView]) -> list[SickCause]:
    """Each by itself; one that merely expired while an auth is sick, and names none, could not write its heartbeat."""
    behind = any(view.facts.kind is InstanceKind.AUTH for view in sick)
    alone = [
        view for view in sick if not (behind and _names_no_auth(view) and view.state is InstanceState.EXPIRED)
    ]
    alone.sort(key=lambda view: (view.facts.kind, natural(view.facts.name)))
    return [
        SickCause(cause_of_instance(view).key, f"{view.facts.name} {view.state.look.complaint}")
        for view in alone
    ]


def _names_no_auth(view: InstanceView) -> bool:
    return view.facts.kind is InstanceKind.PROXY and not view.facts.heartbeat_auth
