"""Whether a new version causes an incident: of its instances, or of the affected agents. Pure."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from fleet.alerts.instance_causes import cause_of_instance, group_instances
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import InstanceKind

#: Fewer affected agents than this have a version in common by chance.
_MIN_AFFECTED_AGENTS = 5
#: Minimum share of the affected agents that have the version.
_MIN_SHARE_OF_AFFECTED = 0.9
#: Minimum share of the agents with the version that are affected, and maximum share of those with other versions.
_MIN_AFFECTED_SHARE, _MAX_OTHER_SHARE = 0.5, 0.1


def find_member_ids(cause: Cause, table: FleetTable | None) -> frozenset[str]:
    """Return the ids of the instances that a cause is about; `table` None: only those that the cause names."""
    if cause.kind in (CauseKind.AUTH, CauseKind.PROXY):
        return frozenset({cause.id})
    if table is None:
        return frozenset()
    views = table.instances.values()
    if cause.kind is CauseKind.BACKEND:
        return frozenset(view.facts.id for view in views if view.facts.kind is InstanceKind.AUTH)
    keys = next((keys for group, keys in group_instances(views).items() if group.key == cause.key), ())
    return frozenset(view.facts.id for view in views if cause_of_instance(view).key in keys)


def are_updated(member_ids: Collection[str], updated_ids: Collection[str]) -> bool:
    """Return whether at least half of the instances of a cause are among those that got another version."""
    return bool(member_ids) and 2 * len({*member_ids} & {*updated_ids}) >= len(member_ids)


def find_distinctive_version(table: FleetTable, affected: npt.NDArray[np.intp]) -> str:
    """Return the version that most affected agents and few other agents have; empty if there is none."""
    if len(affected) < _MIN_AFFECTED_AGENTS:
        return ""
    numbers = table.attributes.version_numbers(len(table.ids))
    affected_counts = np.bincount(numbers[affected], minlength=len(table.attributes.versions))
    counts = np.bincount(numbers, minlength=len(affected_counts))
    number = int(affected_counts.argmax())
    version, other_count = table.attributes.versions[number], len(numbers) - int(counts[number])
    other_affected_count = len(affected) - int(affected_counts[number])
    if (
        not version
        or not other_count
        or affected_counts[number] < _MIN_SHARE_OF_AFFECTED * len(affected)
        or affected_counts[number] < _MIN_AFFECTED_SHARE * counts[number]
        or other_affected_count > _MAX_OTHER_SHARE * other_count
    ):
        return ""
    return version
