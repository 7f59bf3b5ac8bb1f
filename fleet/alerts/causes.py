"""The current causes of trouble in the fleet: those that incidents would have. Pure.

Pages list them in the words of incidents. docs/reference/alerts.md, "Inhibition".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.alerts.facts import (
    backend_cause_of,
    cause_of_instance,
    cluster_cause_of,
    group_instances,
    is_joint_failure,
    root_cause_of,
    sick_since_by_key,
)
from fleet.alerts.inhibition import JOINT_KINDS, STRENGTH_ORDER
from fleet.monitoring.classify import prepare_frame
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import FAULT_STATES, InstanceKind, InstanceState
from fleet.vocabulary.natural_order import natural_sort_key


@dataclass(frozen=True, slots=True)
class SickCause:
    """A cause that no stronger cause inhibits."""

    key: str
    #: A clause without a full stop: `proxy-1 does not answer`.
    description: str


def find_causes(table: FleetTable) -> tuple[SickCause, ...]:
    """Return the current causes, the strongest first, without those that a stronger cause inhibits."""
    if table.as_of is None:
        return ()
    frame = prepare_frame(table.fleet, table.as_of)
    if frame.cluster_unreachable:
        return (SickCause(cluster_cause_of(table.cluster).key, "no instance of the cluster responds"),)
    sick = [view for view in table.instances.values() if view.state in FAULT_STATES]
    keys = {cause_of_instance(view).key for view in sick}
    sick = [view for view in sick if root_cause_of(view) not in keys]
    causes: list[SickCause] = []
    if frame.backend_down:
        sick_since = sick_since_by_key(table, frame)
        backend = backend_cause_of(table.cluster)
        causes.append(SickCause(backend.key, _backend_description(table)))
        earliest = sick_since[backend.key]
        sick = [
            view
            for view in sick
            if sick_since.get(cause_of_instance(view).key, frame.now) < earliest
            and root_cause_of(view) != backend.key
        ]
    members_by_cause = group_instances(table.instances.values())
    for cause in sorted(members_by_cause, key=lambda cause: STRENGTH_ORDER.index(cause.kind)):
        assert cause.kind in JOINT_KINDS, "only regions and proxy groups fail together"
        members = [view for view in sick if cause_of_instance(view).key in members_by_cause[cause]]
        if is_joint_failure(len(members), len(members_by_cause[cause])):
            description = (
                f"{len(members)} of {len(members_by_cause[cause])} instances of {cause.name} are failing"
            )
            causes.append(SickCause(cause.key, description))
            sick = [view for view in sick if view not in members]
    return (*causes, *_instance_causes(sick))


def _backend_description(table: FleetTable) -> str:
    auths = [
        view
        for view in table.instances.values()
        if view.facts.kind is InstanceKind.AUTH and view.state is not InstanceState.GONE
    ]
    return f"all {len(auths)} auths failed at the same time, probably because of the auth backend"


def _instance_causes(sick: Sequence[InstanceView]) -> list[SickCause]:
    """Return one cause per instance, without expired proxies of unknown auth while an auth is failing.

    Such a proxy probably could not write its heartbeat because of that auth.
    """
    has_sick_auth = any(view.facts.kind is InstanceKind.AUTH for view in sick)
    independent_views = [
        view
        for view in sick
        if not (has_sick_auth and _is_proxy_without_auth(view) and view.state is InstanceState.EXPIRED)
    ]
    independent_views.sort(key=lambda view: (view.facts.kind, natural_sort_key(view.facts.name)))
    return [
        SickCause(cause_of_instance(view).key, f"{view.facts.name} {view.state.look.complaint}")
        for view in independent_views
    ]


def _is_proxy_without_auth(view: InstanceView) -> bool:
    return view.facts.kind is InstanceKind.PROXY and not view.facts.heartbeat_auth
