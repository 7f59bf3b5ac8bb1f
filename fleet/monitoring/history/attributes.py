"""Transfer of agents' versions and labels from the record to the database. Repeating it changes nothing."""

from __future__ import annotations

from fleet.models.inventory import Agent
from fleet.monitoring.state.attribute_store import (
    read_attributes,
    read_unsaved_attributes,
    remove_unsaved_attributes,
    unpack_agents,
)
from fleet.monitoring.state.writer import Writer

#: Rows per statement, and so per transaction: SQLite has one writer, and others wait for it.
_CHUNK_SIZE = 1000
#: Entries of the list per transfer: one for each round in which agents changed.
_MAX_ENTRIES = 20


def save_attributes(writer: Writer, cluster: str) -> int:
    """Write versions and labels that changed to the database; return how many entries of the list were saved.

    Raises StateUnavailableError.
    """
    keys = writer.keys(cluster)
    entries = read_unsaved_attributes(writer.redis, keys, _MAX_ENTRIES)
    if not entries:
        return 0
    ids, names = writer.agent_ids_and_names(cluster)
    table = read_attributes(writer.redis, keys)
    agents = [agent for agent in unpack_agents(entries).tolist() if agent < len(ids)]
    rows = [
        Agent(
            cluster_id=cluster,
            agent_id=ids[agent],
            name=names[agent],
            position=agent,
            version=table.version_of(agent),
            labels=dict(table.labels_of(agent)),
        )
        for agent in agents
    ]
    for start in range(0, len(rows), _CHUNK_SIZE):
        Agent.objects.bulk_create(
            rows[start : start + _CHUNK_SIZE],
            update_conflicts=True,
            unique_fields=["cluster", "agent_id"],
            update_fields=["version", "labels"],
        )
    remove_unsaved_attributes(writer.redis, keys, entries)
    return len(entries)
