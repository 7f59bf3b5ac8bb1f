"""Counts per minute: written from rounds, made coarser with age, and read. docs/reference/history.md."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from django.db import transaction
from django.db.models import Case, F, Q, Sum, When
from django.db.models.functions import Greatest

from fleet.models.clusters import Cluster
from fleet.models.history import AgentChange, FleetMinute
from fleet.monitoring.state.codec import Rows
from fleet.monitoring.state.outbox import GroupKind, RoundChanges
from fleet.vocabulary.verdicts import State

#: One count of agents with an instance: GROUP_COUNT with the key of the Instance.
GROUP_KEY_COUNT = np.dtype([("kind", "u1"), ("state", "u1"), ("instance", "<i4"), ("count", "<u4")])
#: Seconds that a row covers, and the age in seconds from which rows are made as coarse.
RESOLUTIONS = ((60, 0.0), (600, 7 * 86_400.0), (3600, 30 * 86_400.0))
#: Times of changes are stored to the millisecond.
_MILLISECOND = 0.001
#: Rows made coarser in one run, so that other writers do not wait long.
_ROW_LIMIT = 2000


def minute_of(at: float) -> float:
    """Return the start of the minute of a time, in seconds since the epoch."""
    return at // 60 * 60


def save_minutes(cluster: str, rounds: Sequence[RoundChanges], instance_keys: npt.NDArray[np.int64]) -> bool:
    """Write the minutes of rounds, and the maxima of minutes that exist; return whether a minute is new."""
    new_rows = [
        FleetMinute(
            cluster_id=cluster,
            at=minute_of(changes.concluded_at),
            state_counts=changes.state_counts.astype("<u4").tobytes(),
            stranded_peak=int(changes.state_counts[State.STRANDED]),
            at_risk_peak=int(changes.state_counts[State.AT_RISK]),
            groups=pack_groups(changes.group_counts, instance_keys),
        )
        for changes in rounds
        if changes.group_counts is not None
    ]
    FleetMinute.objects.bulk_create(new_rows, ignore_conflicts=True)
    rounds_by_minute = defaultdict[float, list[RoundChanges]](list)
    for changes in rounds:
        if len(changes.state_counts):
            rounds_by_minute[minute_of(changes.concluded_at)].append(changes)
    for minute, rounds_of_minute in rounds_by_minute.items():
        peaks = np.max([changes.state_counts for changes in rounds_of_minute], axis=0)
        FleetMinute.objects.filter(cluster=cluster, at=minute, resolution=60).update(
            stranded_peak=Greatest(F("stranded_peak"), int(peaks[State.STRANDED])),
            at_risk_peak=Greatest(F("at_risk_peak"), int(peaks[State.AT_RISK])),
            change_count=F("change_count") + sum(len(changes.agent_changes) for changes in rounds_of_minute),
        )
    return bool(new_rows)


def count_changes_since(at: float) -> int:
    """Return the number of agent changes of all clusters from the minute of a time on, at least."""
    total = FleetMinute.objects.filter(at__gte=minute_of(at)).aggregate(total=Sum("change_count"))["total"]
    return total or 0


def pack_groups(group_counts: Rows, instance_keys: npt.NDArray[np.int64]) -> bytes:
    """Return `FleetMinute.groups` from GROUP_COUNT rows."""
    rows = np.zeros(len(group_counts), GROUP_KEY_COUNT)
    for name in ("kind", "state", "count"):
        rows[name] = group_counts[name]
    rows["instance"] = instance_keys[group_counts["instance"]]
    # Column by column: equal bytes stand together.
    return zlib.compress(b"".join(rows[name].tobytes() for name in GROUP_KEY_COUNT.names or ()))


def unpack_groups(groups: bytes) -> Rows:
    """Return the GROUP_KEY_COUNT rows of `FleetMinute.groups`.

    `instance`: id of the Instance, 0 for none, BACKEND_CAUSE_KEY for the backend; `kind`: GroupKind.
    """
    content = zlib.decompress(groups)
    count = len(content) // GROUP_KEY_COUNT.itemsize
    rows, offset = np.zeros(count, GROUP_KEY_COUNT), 0
    for name in GROUP_KEY_COUNT.names or ():
        rows[name] = np.frombuffer(content, GROUP_KEY_COUNT[name], count, offset)
        offset += count * GROUP_KEY_COUNT[name].itemsize
    return rows


def find_peak_time(cluster: str, at: float) -> float | None:
    """Return when most agents were stranded, or at risk if none was, in the row that covers `at`; None without a row.

    Seconds since the epoch. An agent that recovers within seconds is no longer stranded at the end of its minute.
    """
    # The minute of a link may have become part of a coarser row.
    row = FleetMinute.objects.filter(cluster=cluster, at__lte=at).order_by("-at").first()
    if row is None or row.at + row.resolution <= at:
        return None
    end = row.at + row.resolution
    if not row.stranded_peak and not row.at_risk_peak:
        return end
    state = State.STRANDED if row.stranded_peak else State.AT_RISK
    changes = (
        AgentChange.objects.filter(agent__cluster=cluster, at__gte=row.at, at__lt=end)
        .filter(Q(old=state) | Q(new=state))
        .exclude(old=F("new"))
        .order_by("at")
        .values_list("at")
        # The database adds up each round: in an hour of a large fleet, there are too many changes to read.
        .annotate(growth=Sum(Case(When(new=state, then=1), default=-1)))
    )
    times_and_growths = list(changes)
    if not times_and_growths:
        return end
    times, growths = zip(*times_and_growths, strict=True)
    counts = np.cumsum(growths)
    highest = int(np.argmax(counts))
    if counts[highest] <= 0 and times[0] > row.at:
        # No round had more than the last one before the first change.
        return max(float(row.at), float(times[0]) - _MILLISECOND)
    return float(times[highest])


def read_groups(cluster: str, kind: GroupKind, since: float, until: float) -> list[tuple[float, Rows]]:
    """Return (start, GROUP_KEY_COUNT rows of one kind) from `since` up to `until`, oldest first."""
    rows = FleetMinute.objects.filter(cluster=cluster, at__gte=since, at__lt=until).order_by("at")
    unpacked_rows = ((at, unpack_groups(bytes(groups))) for at, groups in rows.values_list("at", "groups"))
    return [(at, counts[counts["kind"] == kind]) for at, counts in unpacked_rows]


def read_instance_groups(cluster: str, since: float, until: float) -> list[tuple[float, int, Rows]]:
    """Return (start, seconds covered, GROUP_KEY_COUNT rows of auths and proxies) between two times, oldest first."""
    rows = FleetMinute.objects.filter(cluster=cluster, at__gte=since, at__lt=until).order_by("at")
    unpacked_rows = [
        (at, resolution, unpack_groups(bytes(groups)))
        for at, resolution, groups in rows.values_list("at", "resolution", "groups")
    ]
    return [
        (at, resolution, counts[counts["kind"] != GroupKind.CAUSE])
        for at, resolution, counts in unpacked_rows
    ]


def unpack_state_counts(state_counts: bytes) -> dict[State, int]:
    """Return `FleetMinute.state_counts` by state; states that are newer than the row have no agents."""
    counts = np.frombuffer(state_counts, "<u4").tolist()
    return {state: counts[state] if state < len(counts) else 0 for state in State}


def downsample(now: float) -> int:
    """Make old rows coarser: the counts of the newest row, the maxima of all; return how many rows were merged."""
    merged_count = 0
    for cluster in Cluster.objects.values_list("pk", flat=True):
        for (finer, _), (resolution, age) in pairwise(RESOLUTIONS):
            before = (now - age) // resolution * resolution
            old = FleetMinute.objects.filter(cluster=cluster, resolution=finer, at__lt=before).order_by("at")
            while rows := list(old[:_ROW_LIMIT]):
                if len(rows) == _ROW_LIMIT:
                    # The last interval may be incomplete.
                    last_start = rows[-1].at // resolution * resolution
                    rows = [row for row in rows if row.at < last_start]
                _merge(rows, resolution)
                merged_count += len(rows)
    return merged_count


def _merge(rows: Sequence[FleetMinute], resolution: int) -> None:
    """Replace rows by one for each interval."""
    rows_by_interval = defaultdict[tuple[str, float], list[FleetMinute]](list)
    for row in rows:
        rows_by_interval[row.cluster_id, row.at // resolution * resolution].append(row)
    merged_rows = [
        FleetMinute(
            cluster_id=cluster,
            at=start,
            resolution=resolution,
            state_counts=members[-1].state_counts,
            stranded_peak=max(member.stranded_peak for member in members),
            at_risk_peak=max(member.at_risk_peak for member in members),
            change_count=sum(member.change_count for member in members),
            groups=members[-1].groups,
        )
        for (cluster, start), members in rows_by_interval.items()
    ]
    with transaction.atomic():
        FleetMinute.objects.filter(pk__in=[row.pk for row in rows]).delete()
        FleetMinute.objects.bulk_create(merged_rows)
