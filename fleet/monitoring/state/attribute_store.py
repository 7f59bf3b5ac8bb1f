"""Writes of agents' versions and labels, and the list of those that the database has not stored yet."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from redis import Redis

from fleet.monitoring.agent_attributes import AgentAttributes, AttributeTable
from fleet.monitoring.columns import ATTRIBUTE
from fleet.monitoring.state.attribute_rosters import (
    LONGEST_ROSTER,
    AttributeWrite,
    StoredAttributes,
    decode_attributes,
    plan_attribute_write,
)
from fleet.monitoring.state.batch import Batch
from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys

log = logging.getLogger(__name__)

#: Most entries of the list of unsaved attributes; older ones are dropped.
_UNSAVED_LIMIT = 10_000


class AttributeCache:
    """Versions and labels of the agents of one cluster, as last read. Several threads may share one cache."""

    def __init__(self) -> None:
        self._entry: tuple[tuple[bytes, bytes], StoredAttributes] = ((b"", b""), StoredAttributes())

    def refresh(self, redis: Redis, keys: Keys, epoch: bytes, version: bytes) -> StoredAttributes:
        """Return the attributes; they are read if `version` is another one. Raises StateUnavailableError."""
        cached_version, attributes = self._entry
        if cached_version != (epoch, version):
            with map_redis_errors():
                blobs = redis.mget(keys.attributes, keys.versions, keys.label_sets)
            attributes = decode_attributes(attributes, *cast("list[bytes | None]", blobs))
            self._entry = ((epoch, version), attributes)
        return attributes


def add_attributes(
    batch: Batch,
    keys: Keys,
    cache: AttributeCache,
    epoch: str,
    agents: npt.NDArray[np.uint32],
    attributes: Sequence[AgentAttributes],
) -> None:
    """Add the writes of agents' versions and labels to a batch. Raises StateUnavailableError.

    The batch must be guarded by the epoch and by the feed of the agents: nobody else writes attributes meanwhile.
    """
    if not attributes:
        return
    with map_redis_errors():
        version = cast("bytes | None", batch.redis.get(keys.attributes_version))
    stored = cache.refresh(batch.redis, keys, epoch.encode(), version or b"")
    write = plan_attribute_write(stored, agents, attributes, LONGEST_ROSTER)
    if write is None:
        return
    _add_write(batch, keys, write)
    if len(write.changed_agents):
        batch.add_command("RPUSH", keys.unsaved_attributes, write.changed_agents.astype("<u4").tobytes())
        batch.add_command("LTRIM", keys.unsaved_attributes, -_UNSAVED_LIMIT, -1)


def add_seed_attributes(batch: Batch, keys: Keys, attributes: Sequence[AgentAttributes]) -> None:
    """Add the writes of versions and labels from the database, by agent index, to the batch of a new record."""
    agents = np.arange(len(attributes), dtype=np.uint32)
    write = plan_attribute_write(StoredAttributes(), agents, attributes)
    if write is not None:
        _add_write(batch, keys, write)


def _add_write(batch: Batch, keys: Keys, write: AttributeWrite) -> None:
    if write.omitted_count:
        log.warning(
            "cluster %s: the versions or labels of %d agents were not recorded, because agents have more than %d MB of "
            "different ones",
            *(keys.cluster, write.omitted_count, LONGEST_ROSTER // 1_000_000),
        )
    after = write.after
    if write.is_rewrite:
        batch.add_command("SET", keys.versions, after.versions.blob)
        batch.add_command("SET", keys.label_sets, after.label_sets.blob)
        batch.add_command("SET", keys.attributes, after.rows.tobytes())
    else:
        for key, lines in ((keys.versions, write.new_versions), (keys.label_sets, write.new_label_sets)):
            if lines:
                batch.append(key, lines)
        agents = write.changed_agents
        batch.pad(keys.attributes, np.zeros(1, ATTRIBUTE).tobytes(), int(agents.max()) + 1)
        batch.write_rows(keys.attributes, 0, ATTRIBUTE.itemsize, agents, after.rows[agents].tobytes())
    batch.add_command("INCR", keys.attributes_version)


def read_attributes(redis: Redis, keys: Keys) -> AttributeTable:
    """Return the versions and labels of all agents. Raises StateUnavailableError."""
    return AttributeCache().refresh(redis, keys, b"-", b"").table


def read_unsaved_attributes(redis: Redis, keys: Keys, count: int) -> list[bytes]:
    """Return the oldest `count` entries of the list: agents, as u4. Raises StateUnavailableError."""
    with map_redis_errors():
        return cast("list[bytes]", redis.lrange(keys.unsaved_attributes, 0, count - 1))


def unpack_agents(entries: list[bytes]) -> npt.NDArray[np.uint32]:
    """Return the agents of entries, by index, each once."""
    return np.unique(np.frombuffer(b"".join(entries), "<u4"))


def remove_unsaved_attributes(redis: Redis, keys: Keys, entries: list[bytes]) -> None:
    """Remove entries that the database has stored. Raises StateUnavailableError."""
    with map_redis_errors(), redis.pipeline() as pipe:
        for entry in entries:
            pipe.lrem(keys.unsaved_attributes, 1, entry)  # type: ignore[arg-type]  # bytes are a value too
        pipe.execute()
