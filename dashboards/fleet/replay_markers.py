"""Incidents, changes, drains and deregistrations of a time range, as markers of charts and of the replay slider.

docs/reference/history.md, "Rewind".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from fleet.alerts.notifications import headline_of
from fleet.alerts.store import incident_of, select_open_between
from fleet.changes.engine import select_carried_out_between
from fleet.models.history import InstanceChange
from fleet.models.incidents import VersionChange
from fleet.models.inventory import Instance
from fleet.models.moments import to_moment, to_seconds
from fleet.models.networking import NetworkingRevision
from fleet.monitoring.history.past import instances_at
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.instances import InstanceState

#: Maximum number of markers of each kind: the newest ones.
MAX_MARKERS = 200
#: Maximum number of changes of instances that are searched for drains: the newest ones.
_MAX_INSTANCE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Marker:
    """One incident or change."""

    title: str
    #: Start and end, seconds since the epoch; an end of None: it has not ended.
    start: float
    end: float | None
    #: Path of its page below the prefix of the cluster; empty if it has no page.
    path: str = ""
    #: Slug of the severity of an incident; empty for changes.
    severity: str = ""
    #: Slug of the state of a change that has a page; otherwise empty.
    state: str = ""

    @property
    def is_change(self) -> bool:
        """Whether it is a change that was carried out: not an incident, and no other event."""
        return bool(self.state)

    def as_of(self, at: float) -> Marker:
        """Return the marker without what happened after a moment, in seconds since the epoch."""
        if self.end is None or self.end <= at:
            return self
        return replace(self, end=None, state=ChangeState.RUNNING.value if self.state else "")


def find_incidents(cluster: str, since: float, until: float) -> list[Marker]:
    """Return the incidents that were open between two times in seconds since the epoch, oldest first."""
    rows = select_open_between(cluster, since, until).order_by("-opened_at", "-pk")
    markers = [
        Marker(
            f"Incident {row.pk}: {headline_of(incident)}",
            incident.opened_at,
            incident.resolved_at,
            f"/incidents/{row.pk}/",
            incident.severity.slug,
        )
        for row in rows[:MAX_MARKERS]
        for incident in [incident_of(row)]
    ]
    return markers[::-1]


def find_changes(cluster: str, since: float, until: float) -> list[Marker]:
    """Return what was changed in a time range, oldest first.

    Changes, and as other events networking configs of other programs, version changes, drains and deregistrations.
    Other events leave no change out, so that all pages count the same changes.
    """
    start, end = to_moment(since), to_moment(until)
    other_events = [
        *_find_external_configs(cluster, start, end),
        *_find_version_changes(cluster, since, until),
        *_find_drains_and_deregistrations(cluster, since, until),
    ]
    newest_events = sorted(other_events, key=lambda marker: marker.start)[-MAX_MARKERS:]
    markers = [*find_started_changes(cluster, since, until), *newest_events]
    return sorted(markers, key=lambda marker: marker.start)


def find_started_changes(cluster: str, since: float, until: float) -> list[Marker]:
    """Return the changes that were in progress between two times, oldest first; without those that never started."""
    rows = (
        select_carried_out_between(cluster, to_moment(since), to_moment(until))
        .order_by("-started_at", "-pk")
        .values_list("pk", "title", "state", "started_at", "ended_at")
    )
    markers = [
        Marker(
            f"Change {number}: {title.rstrip('.')}",
            to_seconds(started_at),
            None if ended_at is None else to_seconds(ended_at),
            f"/changes/{number}/",
            state=state,
        )
        for number, title, state, started_at, ended_at in rows[:MAX_MARKERS]
        if started_at is not None
    ]
    return markers[::-1]


def _find_external_configs(cluster: str, since: datetime, until: datetime) -> list[Marker]:
    rows = (
        NetworkingRevision.objects.filter(cluster=cluster, change=None, at__gte=since, at__lte=until)
        .exclude(previous=None)
        .order_by("-at")
        .values_list("revision", "at")
    )
    return [
        Marker(f"Networking config revision {revision}", to_seconds(at), to_seconds(at), "/networking/")
        for revision, at in rows[:MAX_MARKERS]
    ]


def _find_version_changes(cluster: str, since: float, until: float) -> list[Marker]:
    """Return the instances whose version changed; a first sight is no change."""
    rows = (
        VersionChange.objects.filter(cluster=cluster, at__gte=since, at__lte=until)
        .exclude(old="")
        .order_by("-at")
        .values_list("name", "old", "new", "at")
    )
    return [Marker(f"{name}: version {old} to {new}", at, at) for name, old, new, at in rows[:MAX_MARKERS]]


def _find_drains_and_deregistrations(cluster: str, since: float, until: float) -> list[Marker]:
    """Return the drains that were in progress in a time range, and the instances that were deregistered in it."""
    name_by_id = dict(Instance.objects.filter(cluster=cluster).values_list("instance_id", "name"))
    drain_starts = {
        instance: row.at for instance, row in instances_at(cluster, since).items() if row.is_draining
    }
    rows = InstanceChange.objects.filter(cluster=cluster, at__gt=since, at__lte=until).order_by("-at", "-pk")
    columns = ("instance", "old", "new", "is_draining", "at")
    markers = []
    newest_rows = [*rows.values_list(*columns)[:_MAX_INSTANCE_ROWS]]
    for instance, old, new, is_draining, at in newest_rows[::-1]:
        name = name_by_id.get(instance, instance)
        if is_draining:
            drain_starts.setdefault(instance, at)
        elif is_draining is not None and instance in drain_starts:
            markers.append(Marker(f"{name}: drain", drain_starts.pop(instance), at))
        if new == InstanceState.GONE.slug and old != new:
            markers.append(Marker(f"{name}: deregistered", at, at))
    unfinished_markers = [
        Marker(f"{name_by_id.get(instance, instance)}: drain", start, None)
        for instance, start in drain_starts.items()
    ]
    return [*markers, *unfinished_markers]
