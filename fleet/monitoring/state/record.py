"""The whole record of a cluster at one time: the input of rounds and of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from redis import Redis

from fleet.monitoring.agent_attributes import AttributeTable
from fleet.monitoring.classify import find_degraded_instances
from fleet.monitoring.columns import HEARTBEAT, MEMORY, PLACE, VERDICT
from fleet.monitoring.evidence import LISTS, PRESENCE, FleetEvidence, Timing
from fleet.monitoring.state import RecordLostError
from fleet.monitoring.state.agent_reports import ReportRows, overlay_reports, report_rows_of
from fleet.monitoring.state.attribute_store import AttributeCache
from fleet.monitoring.state.codec import (
    FeedState,
    InstanceSpell,
    RecordHeader,
    Rows,
    facts_of,
    resize_rows,
    rows_of,
    tunnels_of,
    unpack_feed,
    unpack_poll,
    unpack_resource,
    unpack_spell,
)
from fleet.monitoring.state.column_cache import ColumnCache, ColumnVersions
from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.missing_capabilities import unpack_missing
from fleet.monitoring.state.roster import Roster, Rosters
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceFacts


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """All data of a cluster. Row arrays have one row per agent of `ids` and are read-only."""

    cluster: str
    epoch: str
    header: RecordHeader
    ids: tuple[str, ...]
    names: tuple[str, ...]
    heartbeats: Rows
    memory: Rows
    #: Version in Redis, which commits compare.
    memory_version: bytes
    verdicts: Rows
    places: Rows
    tunnel_agents: npt.NDArray[np.uint32]
    tunnel_proxies: npt.NDArray[np.uint16]
    instances: Mapping[int, InstanceFacts]
    spells: Mapping[int, InstanceSpell]
    presence_feed: FeedState
    lists_feed: FeedState
    #: Feed state by instance index of the proxy.
    tunnel_feeds: Mapping[int, FeedState]
    #: Capabilities that the source of the cluster does not have there, with the reason.
    missing_capabilities: Mapping[Capability, str] = field(default_factory=dict, kw_only=True)
    #: Last success of a self-probe, seconds since the epoch; None without one.
    probed_at: float | None
    #: Agents that were recently asked through their tunnels; their responses are already in the columns.
    agent_report_rows: ReportRows = field(default_factory=ReportRows)
    attributes: AttributeTable = field(default_factory=AttributeTable)

    def evidence(self, now: float, timing: Timing) -> FleetEvidence:
        """Return the evidence I and F for `classify`. `blind`: no self-probe has succeeded for `stale_after`."""
        return FleetEvidence(
            cluster=self.cluster,
            instances=self.instances,
            presence_freshness=self.presence_feed.freshness,
            tunnel_freshness={index: state.freshness for index, state in self.tunnel_feeds.items()},
            blind=self.probed_at is not None and now - self.probed_at > timing.stale_after,
            timing=timing,
            degraded_instances=find_degraded_instances(self.instances, now, timing),
            has_heartbeats=Capability.LAST_SEEN not in self.missing_capabilities,
            has_tunnels=Capability.TUNNELS_BY_AGENT not in self.missing_capabilities,
        )


def _instances_of(
    roster: Roster, hashes: Sequence[Mapping[bytes, bytes]], lists_feed: FeedState
) -> dict[int, InstanceFacts]:
    resources, polls, spells = hashes
    return facts_of(
        list(zip(roster.column(0), roster.column(1), roster.column(2), strict=True)),
        {int(index): unpack_resource(text) for index, text in resources.items()},
        {int(index): unpack_poll(text) for index, text in polls.items()},
        {int(index): unpack_spell(text) for index, text in spells.items()},
        lists_feed.freshness.responded_at,
    )


def load_instances(redis: Redis, rosters: Rosters, keys: Keys) -> dict[int, InstanceFacts]:
    """Return the facts of all instances, without reading columns. Raises StateUnavailableError."""
    with map_redis_errors(), redis.pipeline(transaction=True) as pipe:
        for key in (keys.resources, keys.polls, keys.spells):
            pipe.hgetall(key)
        pipe.hget(keys.feeds, LISTS)
        *hashes, lists_feed = pipe.execute()
    return _instances_of(rosters.read(keys.epoch, keys.instances), hashes, unpack_feed(lists_feed))


def load_record(
    redis: Redis,
    rosters: Rosters,
    keys: Keys,
    *,
    only_classified: bool = False,
    cache: ColumnCache | None = None,
    attribute_cache: AttributeCache | None = None,
) -> ClusterRecord:
    """Return the whole record; `only_classified` leaves out agents that no round has classified yet.

    `cache` has columns of an earlier load by the same process, `attribute_cache` only the versions and labels:
    unchanged ones are not read again. Rows may be newer
    than their freshness, never older. Raises RecordLostError without a record, or when it was rebuilt meanwhile, and
    StateUnavailableError.
    """
    with map_redis_errors(), redis.pipeline(transaction=True) as pipe:
        for key in (
            *(keys.epoch, keys.memory_version, keys.attributes_version),
            *(keys.concluded_round, keys.probe, keys.missing_capabilities),
        ):
            pipe.get(key)
        for key in (keys.feeds, keys.report_rows, keys.resources, keys.polls, keys.spells):
            pipe.hgetall(key)
        epoch, memory_version, attributes_version, concluded_round, probe, missing_blob, *hashes = (
            pipe.execute()
        )
    feeds, report_blobs, *instance_hashes = hashes
    feed_states = {name.decode(): unpack_feed(text) for name, text in feeds.items()}
    presence_feed, lists_feed = feed_states.pop(PRESENCE, FeedState()), feed_states.pop(LISTS, FeedState())
    tunnel_feeds = {int(name): state for name, state in feed_states.items()}
    versions = ColumnVersions.of(
        epoch or b"", memory_version or b"", concluded_round or b"", presence_feed, tunnel_feeds
    )
    columns = (cache or ColumnCache()).refresh(redis, keys, versions)
    attributes = (attribute_cache or columns.attributes).refresh(
        redis, keys, epoch or b"", attributes_version or b""
    )
    agents, instances = rosters.read_together(keys.epoch, keys.agents, keys.instances)
    if epoch is None or not agents.epoch == instances.epoch == epoch.decode():
        raise RecordLostError(f"cluster {keys.cluster} has no record, or a new one")
    header = columns.header or RecordHeader(epoch=agents.epoch)
    count = min(header.row_count, len(agents.index_by_id)) if only_classified else len(agents.index_by_id)
    tunnel_agents, tunnel_proxies = tunnels_of(columns.tunnels)
    if count < len(agents.index_by_id):
        is_classified = tunnel_agents < count
        tunnel_agents, tunnel_proxies = tunnel_agents[is_classified], tunnel_proxies[is_classified]
    report_rows = report_rows_of(report_blobs, count)
    heartbeats, memory = overlay_reports(
        resize_rows(columns.heartbeats, count), resize_rows(columns.memory, count), report_rows
    )
    return ClusterRecord(
        cluster=keys.cluster,
        epoch=agents.epoch,
        header=header,
        ids=agents.column_head(0, count),
        names=agents.column_head(1, count),
        heartbeats=heartbeats,
        memory=memory,
        memory_version=memory_version or b"",
        verdicts=resize_rows(columns.verdicts, count),
        places=resize_rows(columns.places, count),
        tunnel_agents=tunnel_agents,
        tunnel_proxies=tunnel_proxies,
        instances=_instances_of(instances, instance_hashes, lists_feed),
        spells={int(index): unpack_spell(text) for index, text in instance_hashes[2].items()},
        presence_feed=presence_feed,
        lists_feed=lists_feed,
        tunnel_feeds=tunnel_feeds,
        missing_capabilities=unpack_missing(missing_blob),
        probed_at=None if probe is None else float(probe),
        agent_report_rows=report_rows,
        attributes=attributes.table,
    )


def empty_record(cluster: str) -> ClusterRecord:
    """Return the record of a cluster without any data yet."""
    tunnel_agents, tunnel_proxies = tunnels_of({})
    return ClusterRecord(
        cluster=cluster,
        epoch="",
        header=RecordHeader(epoch=""),
        ids=(),
        names=(),
        heartbeats=rows_of(None, HEARTBEAT, 0),
        memory=rows_of(None, MEMORY, 0),
        memory_version=b"",
        verdicts=rows_of(None, VERDICT, 0),
        places=rows_of(None, PLACE, 0),
        tunnel_agents=tunnel_agents,
        tunnel_proxies=tunnel_proxies,
        instances={},
        spells={},
        presence_feed=FeedState(),
        lists_feed=FeedState(),
        tunnel_feeds={},
        probed_at=None,
    )
