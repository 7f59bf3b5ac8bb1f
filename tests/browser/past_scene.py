"""A past moment in the history of a cluster that has a record: what a test of the replay rewinds to."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fleet.models.clusters import Cluster
from fleet.models.history import FleetMinute, Keyframe
from fleet.models.incidents import Incident
from fleet.models.moments import to_moment
from fleet.monitoring.history.change_rows import read_agent_keys, read_instance_keys
from fleet.monitoring.history.keyframes import columns_of, pack
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.incidents import IncidentState, Severity
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import agent_key, create_instance_change, instance_key


def write(
    writer: Writer,
    cluster: str,
    at: float,
    stranded_agents: Collection[int],
    last_proxy_agents: Collection[int] = (),
    until: float = 0.0,
) -> None:
    """Write a keyframe of the record at a past time, in which `stranded_agents` were stranded.

    `last_proxy_agents`: agents that had their tunnel to the last proxy then. Polling was recorded up to `until`.
    """
    record = writer.load(cluster)
    instances = [record.instances[index] for index in sorted(record.instances)]
    for facts in instances:
        last_proxy = instance_key(facts.id, cluster)
    for agent_id in record.ids:
        agent_key(agent_id, cluster)
    _set_positions(cluster, record.ids, [facts.id for facts in instances], at)
    indices = np.arange(len(record.ids), dtype=np.uint32)
    columns = columns_of(
        record,
        read_agent_keys(cluster, record.ids, indices),
        read_instance_keys(cluster, [facts.id for facts in instances]),
    )
    columns.states[list(stranded_agents)] = State.STRANDED
    columns.proxies[list(last_proxy_agents)] = last_proxy
    columns.tunnel_proxies[list(last_proxy_agents)] = last_proxy
    Keyframe.objects.create(cluster_id=cluster, at=at, content=pack(columns))
    for facts in instances:
        create_instance_change(facts.id, at, "unknown", "ok", cluster=cluster)
    no_groups = pack_groups(np.zeros(0, GROUP_COUNT), np.zeros(1, np.int64))
    for start in np.arange(at, max(at, until), 60.0).tolist():
        FleetMinute.objects.create(
            cluster_id=cluster,
            at=start,
            state_counts=b"",
            stranded_peak=0,
            at_risk_peak=0,
            groups=no_groups,
        )


def add_incident(cluster: str, opened_at: float, resolved_at: float) -> int:
    """Add a resolved incident of proxy-1, and return its number."""
    return Incident.objects.create(
        cluster=Cluster.objects.get(pk=cluster),
        key="proxy/proxy-1-id",
        cause_kind="proxy",
        cause_id="proxy-1-id",
        cause_name="proxy-1",
        generation=1,
        state=IncidentState.RESOLVED.value,
        severity=int(Severity.CRITICAL),
        summary="proxy-1 is not responding.",
        opened_at=opened_at,
        resolved_at=resolved_at,
    ).pk


def _set_positions(
    cluster: str, agent_ids: Collection[str], instance_ids: Collection[str], at: float
) -> None:
    """Give the rows the indices of the record, and let them be as old as the moment."""
    rows = Cluster.objects.get(pk=cluster)
    for position, agent_id in enumerate(agent_ids):
        rows.agents.filter(agent_id=agent_id).update(position=position, first_seen_at=to_moment(at))
    for position, instance_id in enumerate(instance_ids):
        rows.instances.filter(instance_id=instance_id).update(position=position, first_seen_at=to_moment(at))
