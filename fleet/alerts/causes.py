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
    root_cause_key_of,
    sick_since_by_key,
)
from fleet.alerts.inhibition import CAUSE_KINDS_BY_STRENGTH, JOINT_KINDS
from fleet.monitoring.classify import prepare_frame
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import FAULT_STATES, InstanceKind, InstanceState
from fleet.vocabulary.natural_order import natural_sort_key


@dataclass(frozen=True, slots=True)
class UninhibitedCause:
    """A cause that no stronger cause inhibits."""

    key: str
    #: A clause without a full stop: `proxy-1 does not answer`.
    description: str


def find_causes(table: FleetTable) -> tuple[UninhibitedCause, ...]:
    """Return the current causes, the strongest first, without those that a stronger cause inhibits."""
    if table.as_of is None:
        return ()
    frame = prepare_frame(table.fleet, table.as_of)
    if frame.cluster_unreachable:
        return (UninhibitedCause(cluster_cause_of(table.cluster).key, "no instance of the cluster responds"),)
    sick_views = [view for view in table.instances.values() if view.state in FAULT_STATES]
    sick_keys = {cause_of_instance(view).key for view in sick_views}
    sick_views = [view for view in sick_views if root_cause_key_of(view) not in sick_keys]
    causes: list[UninhibitedCause] = []
    if frame.backend_down:
        sick_since = sick_since_by_key(table, frame)
        backend_cause = backend_cause_of(table.cluster)
        causes.append(UninhibitedCause(backend_cause.key, _describe_backend_failure(table)))
        backend_since = sick_since[backend_cause.key]
        sick_views = [
            view
            for view in sick_views
            if sick_since.get(cause_of_instance(view).key, frame.now) < backend_since
            and root_cause_key_of(view) != backend_cause.key
        ]
    members_by_cause = group_instances(table.instances.values())
    for cause in sorted(members_by_cause, key=lambda cause: CAUSE_KINDS_BY_STRENGTH.index(cause.kind)):
        assert cause.kind in JOINT_KINDS, "only regions and proxy groups fail together"
        sick_members = [view for view in sick_views if cause_of_instance(view).key in members_by_cause[cause]]
        if is_joint_failure(len(sick_members), len(members_by_cause[cause])):
            description = (
                f"{len(sick_members)} of {len(members_by_cause[cause])} instances of {cause.name} are failing"
            )
            causes.append(UninhibitedCause(cause.key, description))
            sick_views = [view for view in sick_views if view not in sick_members]
    return (*causes, *_find_instance_causes(sick_views))


def _describe_backend_failure(table: FleetTable) -> str:
    auths = [
        view
        for view in table.instances.values()
        if view.facts.kind is InstanceKind.AUTH and view.state is not InstanceState.GONE
    ]
    return f"all {len(auths)} auths failed at the same time, probably because of the auth backend"


def _find_instance_causes(sick_views: Sequence[InstanceView]) -> list[UninhibitedCause]:
    """Return one cause per instance, without expired proxies of unknown auth while an auth is failing.

    Such a proxy probably could not write its heartbeat because of that auth.
    """
    has_sick_auth = any(view.facts.kind is InstanceKind.AUTH for view in sick_views)
    independent_views = [
        view
        for view in sick_views
        if not (has_sick_auth and _is_proxy_without_auth(view) and view.state is InstanceState.EXPIRED)
    ]
    independent_views.sort(key=lambda view: (view.facts.kind, natural_sort_key(view.facts.name)))
    return [
        UninhibitedCause(cause_of_instance(view).key, f"{view.facts.name} {view.state.look.complaint}")
        for view in independent_views
    ]


def _is_proxy_without_auth(view: InstanceView) -> bool:
    return view.facts.kind is InstanceKind.PROXY and not view.facts.heartbeat_auth
