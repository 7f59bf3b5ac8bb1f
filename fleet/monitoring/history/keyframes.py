"""Keyframes: the state of a whole fleet in one row, from which any later moment is reached by few changes.

Built from the record after a round was written, so a row that was lost does no harm to later moments.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fleet.models.history import Keyframe
from fleet.monitoring.columns import NO_INSTANCE, REASON_BITS, RECOVERY_SHIFT, pack_agent_evidence
from fleet.monitoring.history.change_rows import read_agent_keys, read_instance_keys
from fleet.monitoring.history.minutes import count_changes_since
from fleet.monitoring.history.past_columns import COLUMN_NAMES, PastColumns, empty_columns
from fleet.monitoring.state.record import ClusterRecord
from fleet.monitoring.state.writer import Writer

#: Number of changes after a keyframe that are due for the next one, unless the fleet has more agents.
_CHANGE_LIMIT = 50_000
#: Maximum seconds between two keyframes.
_MAX_AGE = 86_400.0
#: Version of `pack`, number of agents, number of tunnels.
_HEADER = struct.Struct("<BII")
_VERSION = 2
#: Columns that keyframes of version 1 do not have: they are blank.
_COLUMNS_OF_VERSION_2 = ("strands_at", "evidence", "via_proxies")
_LEVEL = 3


def pack(columns: PastColumns) -> bytes:
    """Return columns as compressed bytes. Times are kept to the millisecond."""
    parts = [_HEADER.pack(_VERSION, len(columns.agents), len(columns.tunnel_proxies))]
    for name in COLUMN_NAMES:
        column = getattr(columns, name)
        if column.dtype == np.float64:
            column = np.round(column * 1000).astype("<i8")
        elif name == "agents":
            column = np.diff(column, prepend=np.uint32(0))
        parts.append(_shuffle(column))
    parts.append(_shuffle(columns.tunnel_proxies))
    return zlib.compress(b"".join(parts), _LEVEL)


def unpack(content: bytes, at: float) -> PastColumns:
    """Return the columns of a keyframe from `at`."""
    blob = zlib.decompress(content)
    version, agent_count, tunnel_count = _HEADER.unpack_from(blob)
    blank, offset = empty_columns(at, agent_count), _HEADER.size
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for name in (*COLUMN_NAMES, "tunnel_proxies"):
        if version == 1 and name in _COLUMNS_OF_VERSION_2:
            columns[name] = getattr(blank, name)
            continue
        dtype = getattr(blank, name).dtype
        stored_dtype = np.dtype("<i8") if dtype == np.float64 else dtype
        count = tunnel_count if name == "tunnel_proxies" else agent_count
        column = _unshuffle(blob, stored_dtype, count, offset)
        offset += count * stored_dtype.itemsize
        if dtype == np.float64:
            column = column.astype(np.float64) / 1000
        elif name == "agents":
            column = np.cumsum(column, dtype=np.uint32)
        columns[name] = column
    return PastColumns(at=at, **columns)  # type: ignore[arg-type]  # by name


def _shuffle(column: npt.NDArray[np.generic]) -> bytes:
    """Return the first bytes of all entries, then the second ones: equal bytes stand together."""
    return (
        np.ascontiguousarray(column).view(np.uint8).reshape(len(column), -1).T.tobytes()
        if len(column)
        else b""
    )


def _unshuffle(blob: bytes, dtype: np.dtype[np.generic], count: int, offset: int) -> npt.NDArray[np.generic]:
    planes = np.frombuffer(blob, np.uint8, count * dtype.itemsize, offset).reshape(dtype.itemsize, count)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(count)


def read_newest(cluster: str, at: float) -> PastColumns | None:
    """Return the newest keyframe up to a time in seconds since the epoch; None without one."""
    row = Keyframe.objects.filter(cluster=cluster, at__lte=at).order_by("-at").first()
    return None if row is None else unpack(bytes(row.content), row.at)


def save_if_due(writer: Writer, cluster: str, now: float) -> bool:
    """Write a keyframe from the record if many changes or much time have passed since the last one.

    Return whether one was written. Raises StateError.
    """
    newest_at = Keyframe.objects.filter(cluster=cluster).order_by("-at").values_list("at", flat=True).first()
    if newest_at is not None and now - newest_at < _MAX_AGE:
        change_count = count_changes_since(newest_at)
        if change_count < _CHANGE_LIMIT:
            return False
    record = writer.load(cluster)
    if newest_at is not None and now - newest_at < _MAX_AGE and change_count < len(record.ids):
        return False
    if not record.header.as_of:
        return False
    columns = columns_of(record, *_read_keys(cluster, record))
    Keyframe.objects.bulk_create(
        [Keyframe(cluster_id=cluster, at=record.header.as_of, content=pack(columns))], ignore_conflicts=True
    )
    return True


def _read_keys(cluster: str, record: ClusterRecord) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    indices = np.arange(len(record.ids), dtype=np.uint32)
    instance_ids: Sequence[str] = [record.instances[index].id for index in sorted(record.instances)]
    return read_agent_keys(cluster, record.ids, indices), read_instance_keys(cluster, instance_ids)


def columns_of(
    record: ClusterRecord, agent_keys: npt.NDArray[np.int64], instance_keys: npt.NDArray[np.int64]
) -> PastColumns:
    """Return the result of the record's newest round, by the keys of agents and instances; 0: no row."""
    count = record.header.row_count
    agents = np.flatnonzero(agent_keys[:count])
    agents = agents[np.argsort(agent_keys[agents], kind="stable")]
    verdicts, places = record.verdicts[agents], record.places[agents]
    tunnel_counts, tunnel_proxies = _tunnels_of(record, agents)
    causes, auths = instance_keys[verdicts["cause"]], instance_keys[places["auth"]]
    heartbeats = record.heartbeats[agents]
    proxies = np.where(places["proxy"] == NO_INSTANCE, 0, instance_keys[places["proxy"]])
    return PastColumns(
        at=record.header.as_of,
        agents=agent_keys[agents].astype(np.uint32),
        states=verdicts["state"].copy(),
        reasons=verdicts["reason_and_recovery"] & np.uint8(REASON_BITS),
        recoveries=(verdicts["reason_and_recovery"] >> RECOVERY_SHIFT).astype(np.uint8),
        causes=causes.astype(np.int32),
        auths=auths.astype(np.int32),
        recovers_at=verdicts["recovers_at"].copy(),
        since=verdicts["since"].copy(),
        proxies=proxies.astype(np.uint32),
        strands_at=verdicts["strands_at"].copy(),
        evidence=pack_agent_evidence(heartbeats, record.memory[agents], places),
        via_proxies=np.maximum(instance_keys[heartbeats["via_proxy"]], 0).astype(np.uint32),
        tunnel_counts=tunnel_counts,
        tunnel_proxies=instance_keys[tunnel_proxies].astype(np.uint32),
    )


def _tunnels_of(
    record: ClusterRecord, agents: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.uint16]]:
    """Return the number of tunnels of these agents, and their proxies, the newest first, in the order of `agents`."""
    rank = np.full(len(record.ids), -1, np.int64)
    rank[agents] = np.arange(len(agents))
    tunnel_ranks = rank[record.tunnel_agents]
    is_present = tunnel_ranks >= 0
    tunnel_ranks, proxies = tunnel_ranks[is_present], record.tunnel_proxies[is_present]
    is_other = proxies != record.places["proxy"][record.tunnel_agents[is_present]]
    order = np.lexsort((proxies, is_other, tunnel_ranks))
    counts = np.bincount(tunnel_ranks, minlength=len(agents)).astype(np.int16)
    return counts, proxies[order]
