"""State of the whole fleet at a past moment: the newest keyframe before it, and the changes after the keyframe.

`columns_at` reads both; `apply_changes` is pure. docs/reference/history.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import Max

from fleet.models.clusters import Cluster
from fleet.models.history import LAST_PROXY_BIT, AgentChange, InstanceChange
from fleet.monitoring.history import keyframes
from fleet.monitoring.history.past_columns import NOT_RECORDED, PastColumns
from fleet.monitoring.state.codec import Rows

#: One change of an agent without its proxies; times in seconds since the epoch, other columns as in AgentChange.
CHANGE = np.dtype(
    [
        ("at", "<f8"),
        ("agent", "<u4"),
        ("cause", "<i4"),
        ("auth", "<i4"),
        ("recovers_after_ms", "<i4"),
        ("old", "u1"),
        ("new", "u1"),
        ("reason", "u1"),
        ("recovery", "u1"),
    ]
)
_CHANGE_COLUMNS = (
    *("at", "agent_id", "cause", "auth", "recovers_after_ms", "old", "new", "reason", "recovery", "proxies"),
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of agents, oldest first."""

    #: CHANGE rows.
    rows: Rows = field(default_factory=lambda: np.zeros(0, CHANGE))
    #: `AgentChange.proxies` of each row.
    proxies: tuple[bytes | None, ...] = ()


def columns_at(cluster: str, at: float) -> PastColumns | None:
    """Return the state of every agent that has one at a time in seconds since the epoch, by `Agent.pk`.

    It is what the last round up to `at` concluded. None: no keyframe is as old.
    """
    start = keyframes.read_newest(cluster, at)
    return None if start is None else apply_changes(start, read_changes(cluster, start.at, at))


def read_changes(cluster: str, since: float, until: float) -> Changes:
    """Return the changes after `since` up to `until` (seconds since the epoch), oldest first."""
    query = AgentChange.objects.filter(at__gt=since, at__lte=until).order_by("at")
    if Cluster.objects.count() > 1:
        query = query.filter(agent__cluster=cluster)
    return changes_of(query.values_list(*_CHANGE_COLUMNS).iterator(chunk_size=10_000))


def changes_of(values: Iterable[tuple[Any, ...]]) -> Changes:
    """Return changes from values of `AgentChange` in the order of its columns, oldest first."""
    columns = [*zip(*values, strict=True)]
    if not columns:
        return Changes()
    rows = np.zeros(len(columns[0]), CHANGE)
    for name, column in zip(CHANGE.names or (), columns, strict=False):
        rows[name] = [NOT_RECORDED if auth is None else auth for auth in column] if name == "auth" else column
    return Changes(rows, columns[-1])


def apply_changes(start: PastColumns, changes: Changes) -> PastColumns:
    """Return the state after changes that are newer than `start`."""
    if not len(changes.rows):
        return start
    rows = changes.rows
    columns = start.with_agents(np.unique(rows["agent"]))
    positions = np.searchsorted(columns.agents, rows["agent"])
    # Of several rows of one agent the last one is written last, and stays.
    columns.states[positions] = rows["new"]
    columns.reasons[positions] = rows["reason"]
    columns.recoveries[positions] = rows["recovery"]
    columns.causes[positions] = rows["cause"]
    columns.auths[positions] = rows["auth"]
    columns.recovers_at[positions] = np.where(
        rows["recovers_after_ms"] == 0, 0.0, rows["at"] + rows["recovers_after_ms"] / 1000
    )
    has_new_state = (rows["old"] != rows["new"]) | (columns.since[positions] == 0)
    columns.since[positions[has_new_state]] = rows["at"][has_new_state]
    last_rows = np.full(len(columns.agents), -1, np.int64)
    last_rows[positions] = np.arange(len(rows))
    return replace(_with_proxies(columns, last_rows, changes), at=float(rows["at"][-1]))


def _with_proxies(columns: PastColumns, last_rows: npt.NDArray[np.int64], changes: Changes) -> PastColumns:
    """Return the columns with the proxies of the last change of each agent; -1: the agent has no change."""
    changed_positions = np.flatnonzero(last_rows >= 0)
    packed = [changes.proxies[row] for row in last_rows[changed_positions].tolist()]
    new_counts = np.array(
        [NOT_RECORDED if proxies is None else len(proxies) // 4 for proxies in packed], np.int64
    )
    new_keys = np.frombuffer(b"".join(proxies or b"" for proxies in packed), "<u4")
    new_starts = np.cumsum(np.maximum(new_counts, 0)) - np.maximum(new_counts, 0)
    has_entry = np.flatnonzero(new_counts > 0)
    first_keys = new_keys[new_starts[has_entry]]
    proxies = columns.proxies.copy()
    # A change that was recorded without proxies says nothing of them.
    proxies[changed_positions[new_counts == 0]] = 0
    proxies[changed_positions[has_entry]] = first_keys & np.uint32(LAST_PROXY_BIT - 1)
    is_last_proxy = first_keys >= LAST_PROXY_BIT
    new_counts[has_entry[is_last_proxy]] = 0
    tunnel_counts = columns.tunnel_counts.copy()
    tunnel_counts[changed_positions] = new_counts
    old_starts = np.cumsum(np.maximum(columns.tunnel_counts, 0)) - np.maximum(columns.tunnel_counts, 0)
    sources = old_starts.astype(np.int64)
    sources[changed_positions] = new_starts + len(columns.tunnel_proxies)
    return replace(
        columns,
        proxies=proxies,
        tunnel_counts=tunnel_counts,
        tunnel_proxies=_gather_runs(
            np.concatenate([columns.tunnel_proxies, new_keys]), sources, np.maximum(tunnel_counts, 0)
        ),
    )


def _gather_runs(
    entries: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int16]
) -> npt.NDArray[np.uint32]:
    """Return the runs of `entries` that begin at `starts` and have `counts` entries, one after the other."""
    lengths = counts.astype(np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    runs: npt.NDArray[np.uint32] = entries[
        np.arange(total) - np.repeat(ends - lengths, lengths) + np.repeat(starts, lengths)
    ]
    return runs


def instances_at(cluster: str, at: float) -> dict[str, InstanceChange]:
    """Return the last change up to `at` of every instance, of the backend and of the cluster, by their ids."""
    rows = InstanceChange.objects.filter(cluster=cluster, at__lte=at)
    newest_moments = rows.order_by().values("instance").annotate(newest_at=Max("at"))
    candidates = rows.filter(at__in={row["newest_at"] for row in newest_moments}).order_by("at", "pk")
    return {row.instance: row for row in candidates}
