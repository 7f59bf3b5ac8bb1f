"""State of the whole fleet at a past moment: the newest keyframe before it, and the changes after the keyframe.

`columns_at` reads both; `apply_changes` is pure. docs/reference/history.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import Max

from fleet.models.clusters import Cluster
from fleet.models.history import LAST_PROXY_BIT, AgentChange, InstanceChange
from fleet.models.moments import Milliseconds
from fleet.monitoring.columns import AGENT_EVIDENCE, ResourcePresence
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
#: `AgentChange.evidence`: AGENT_EVIDENCE and `change_rows.EVIDENCE_TAIL`.
_EVIDENCE = np.dtype([("evidence", AGENT_EVIDENCE), ("strands_after_ms", "<i4"), ("via_proxy", "<u4")])
#: Rows that are converted at a time.
_CHUNK_SIZE = 5000
_CHANGE_COLUMNS = (
    *("at", "agent_id", "cause", "auth", "recovers_after_ms", "old", "new", "reason", "recovery", "proxies"),
    "evidence",
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of agents, oldest first."""

    #: CHANGE rows.
    rows: Rows = field(default_factory=lambda: np.zeros(0, CHANGE))
    #: `AgentChange.proxies` of each row.
    proxies: tuple[bytes | None, ...] = ()
    #: `AgentChange.evidence` of each row.
    evidence: tuple[bytes | None, ...] = ()


def columns_at(cluster: str, at: float) -> PastColumns | None:
    """Return the state of every agent that has one at a time in seconds since the epoch, by `Agent.pk`.

    It is what the last round up to `at` concluded. None: no keyframe is as old.
    """
    start = keyframes.read_newest(cluster, at)
    return None if start is None else apply_changes(start, read_changes(cluster, start.at, at))


def read_changes(cluster: str, since: float, until: float) -> Changes:
    """Return the changes after `since` up to `until` (seconds since the epoch), oldest first."""
    # Without ORDER BY, because PostgreSQL would sort rows that were written in the order of time.
    query = AgentChange.objects.filter(at__gt=since, at__lte=until).order_by()
    if Cluster.objects.count() > 1:
        query = query.filter(agent__cluster=cluster)
    columns = query.values_list(Milliseconds("at"), *_CHANGE_COLUMNS[1:])
    values = columns.iterator(chunk_size=_CHUNK_SIZE)
    # In chunks: 100,000 rows as tuples are 30 MB, and the garbage collector visits each of them.
    chunks: list[Changes] = []
    while len((chunk := changes_of(islice(values, _CHUNK_SIZE))).rows):
        chunks.append(chunk)
    if not chunks:
        return Changes()
    rows = np.concatenate([chunk.rows for chunk in chunks])
    rows["at"] /= 1000
    proxies = chain.from_iterable(chunk.proxies for chunk in chunks)
    evidence = chain.from_iterable(chunk.evidence for chunk in chunks)
    return sort_changes(Changes(rows, tuple(proxies), tuple(evidence)))


def sort_changes(changes: Changes) -> Changes:
    """Return changes oldest first. Mostly they are, because rows are written in the order of time."""
    moments = changes.rows["at"]
    if (moments[1:] >= moments[:-1]).all():
        return changes
    order = np.argsort(moments, kind="stable")
    rows = order.tolist()
    return Changes(
        changes.rows[order],
        tuple(changes.proxies[row] for row in rows),
        tuple(changes.evidence[row] for row in rows),
    )


def changes_of(values: Iterable[tuple[Any, ...]]) -> Changes:
    """Return changes from values of `AgentChange` in the order of its columns, oldest first."""
    columns = [*zip(*values, strict=True)]
    if not columns:
        return Changes()
    rows = np.zeros(len(columns[0]), CHANGE)
    for name, column in zip(CHANGE.names or (), columns, strict=False):
        rows[name] = [NOT_RECORDED if auth is None else auth for auth in column] if name == "auth" else column
    return Changes(rows, columns[-2], columns[-1])


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
    _put_evidence(columns, positions, changes)
    has_new_state = rows["old"] != rows["new"]
    columns.since[positions[has_new_state]] = rows["at"][has_new_state]
    # A state whose start is not recorded began with the first change; backwards, so that the first one stays.
    first_moments = np.zeros(len(columns.agents))
    first_moments[positions[::-1]] = rows["at"][::-1]
    since = np.where(columns.since == 0, first_moments, columns.since)
    return replace(_with_proxies(columns, positions, changes), at=float(rows["at"][-1]), since=since)


def _put_evidence(columns: PastColumns, positions: npt.NDArray[np.intp], changes: Changes) -> None:
    """Write the evidence of the last change of each agent; `positions`: agent of each change."""
    lengths = np.array(
        [-1 if packed_evidence is None else len(packed_evidence) for packed_evidence in changes.evidence]
    )
    # Of one size for all: what is missing is zero.
    content = b"".join(
        (packed_evidence or b"").ljust(_EVIDENCE.itemsize, b"\0") for packed_evidence in changes.evidence
    )
    parts = np.frombuffer(content, _EVIDENCE)
    evidence = np.where(lengths == 0, np.uint16(ResourcePresence.UNEXPIRED), parts["evidence"])
    columns.evidence[positions] = evidence
    columns.via_proxies[positions] = parts["via_proxy"]
    columns.strands_at[positions] = np.where(
        parts["strands_after_ms"] == 0, 0.0, changes.rows["at"] + parts["strands_after_ms"] / 1000
    )


def _with_proxies(columns: PastColumns, positions: npt.NDArray[np.intp], changes: Changes) -> PastColumns:
    """Return the columns with the proxies of the last change of each agent; `positions`: agent of each change."""
    row_counts = np.array(
        [
            NOT_RECORDED if packed_proxies is None else len(packed_proxies) // 4
            for packed_proxies in changes.proxies
        ]
    )
    row_lengths = np.maximum(row_counts, 0)
    row_starts = np.cumsum(row_lengths) - row_lengths
    row_keys = np.frombuffer(b"".join(packed_proxies or b"" for packed_proxies in changes.proxies), "<u4")
    # The block on the map is the first entry; a change that was recorded without proxies says nothing of it.
    first_keys = np.zeros(len(row_counts), np.uint32)
    first_keys[row_counts > 0] = row_keys[row_starts[row_counts > 0]]
    proxies = columns.proxies.copy()
    is_recorded = row_counts >= 0
    proxies[positions[is_recorded]] = first_keys[is_recorded] & np.uint32(LAST_PROXY_BIT - 1)
    row_counts[first_keys >= LAST_PROXY_BIT] = 0
    tunnel_counts = columns.tunnel_counts.copy()
    tunnel_counts[positions] = row_counts
    old_lengths = np.maximum(columns.tunnel_counts, 0).astype(np.int64)
    sources = np.cumsum(old_lengths) - old_lengths
    sources[positions] = row_starts + len(columns.tunnel_proxies)
    tunnel_proxies = _gather_runs(
        np.concatenate([columns.tunnel_proxies, row_keys]), sources, np.maximum(tunnel_counts, 0)
    )
    return replace(columns, proxies=proxies, tunnel_counts=tunnel_counts, tunnel_proxies=tunnel_proxies)


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
