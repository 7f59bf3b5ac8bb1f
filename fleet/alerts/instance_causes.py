"""Causes of incidents about instances: their keys, and instances of one proxy group or region that fail together. Pure.

docs/reference/alerts.md, "Inhibition".
"""

from __future__ import annotations

from collections.abc import Iterable

from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import READYZ_RECOVERING, InstanceKind, InstanceState


def cause_of_instance(view: InstanceView) -> Cause:
    """Return the cause of an incident about an instance."""
    return Cause(CauseKind(view.facts.kind.value), view.facts.id, view.facts.name)


def root_cause_key_of(view: InstanceView) -> str:
    """Return the key of the cause behind the failure of an instance; empty if the instance itself is the cause."""
    if not view.cause or view.cause.startswith(f"{CauseKind.BACKEND.value}/"):
        return view.cause  # already a key
    return f"{CauseKind.AUTH.value}/{view.cause}"


def backend_cause_of(cluster: str) -> Cause:
    """Return the cause of an incident about the auth backend of a cluster."""
    return Cause(CauseKind.BACKEND, cluster, f"auth backend of cluster {cluster}")


def cluster_cause_of(cluster: str) -> Cause:
    """Return the cause of an incident about a whole cluster."""
    return Cause(CauseKind.CLUSTER, cluster, f"cluster {cluster}")


def is_instance_recovering(view: InstanceView) -> bool:
    """Return whether an unhealthy instance reports that it is recovering."""
    return view.state is InstanceState.UNHEALTHY and view.facts.readyz == READYZ_RECOVERING


def is_recovering(table: FleetTable, cause: Cause) -> bool:
    """Return whether the instance that is a cause reports that it is recovering."""
    return any(
        is_instance_recovering(view)
        for view in table.instances.values()
        if cause_of_instance(view).key == cause.key
    )


def is_joint_failure(sick_count: int, member_count: int) -> bool:
    """Return whether failing instances of a group or region are one cause: at least two, and at least half."""
    return sick_count >= 2 and 2 * sick_count >= member_count


def group_instances(views: Iterable[InstanceView]) -> dict[Cause, tuple[str, ...]]:
    """Return the keys of instances by proxy group and by region. A region that holds all instances is left out."""
    keys_by_cause: dict[Cause, list[str]] = {}
    registered_views = [view for view in views if view.state is not InstanceState.GONE]
    for view in registered_views:
        facts = view.facts
        if not facts.group and not facts.region:
            continue
        key = cause_of_instance(view).key
        if facts.kind is InstanceKind.PROXY and facts.group:
            keys_by_cause.setdefault(
                Cause(CauseKind.GROUP, facts.group, f"proxy group {facts.group}"), []
            ).append(key)
        if facts.region:
            keys_by_cause.setdefault(
                Cause(CauseKind.REGION, facts.region, f"region {facts.region}"), []
            ).append(key)
    fleetwide_regions = [
        cause
        for cause, keys in keys_by_cause.items()
        if len(keys) == len(registered_views) and cause.kind is CauseKind.REGION
    ]
    return {cause: tuple(keys) for cause, keys in keys_by_cause.items() if cause not in fleetwide_regions}
