"""The whole fleet at a past moment as a FleetTable, so that pages and API present it like the present.

States, causes and places come from the history; names, addresses, regions and home proxies, which hardly change, from
the present table. So do versions and labels, which the history does not keep: they are those of now.
Instances get facts from which the rules of the present find the recorded state. docs/reference/history.md, "Rewind".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
from django.db.models import F, Max, Min

from fleet.models.history import BACKEND_CAUSE_KEY, FleetMinute, InstanceChange, Keyframe
from fleet.models.inventory import Agent, Instance
from fleet.models.moments import to_moment, to_seconds
from fleet.monitoring.classify import places_of
from fleet.monitoring.columns import (
    AGENT_EVIDENCE,
    HAD_TUNNEL,
    NO_INSTANCE,
    RECOVERY_SHIFT,
    RETIRED,
    VERDICT,
    ResourcePresence,
    blank_heartbeats,
    blank_memory,
    presences_in,
    unpack_agent_evidence,
)
from fleet.monitoring.evidence import FeedFreshness
from fleet.monitoring.history.past import columns_at, instances_at
from fleet.monitoring.history.past_columns import PastColumns
from fleet.monitoring.instance_evidence import InstanceEvidence, health_reason_of
from fleet.monitoring.state.codec import FeedState, RecordHeader, Rows
from fleet.monitoring.state.record import ClusterRecord, empty_record
from fleet.monitoring.state.tables import table_of
from fleet.monitoring.views import FleetTable
from fleet.protocol.destination.health import ActiveHealth, DrainRequest, Health, HealthSignal, ProbeOutcome
from fleet.vocabulary.instances import (
    CONNECTED_SICK_STATES,
    CUT_OFF_STATES,
    SICK_STATES,
    InstanceFacts,
    InstanceKind,
    InstanceState,
    PollAttempt,
    ServingStatus,
)
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, State
from fleet.vocabulary.watch import InstanceWatch

_STATES_BY_SLUG = {state.slug: state for state in InstanceState}
_READY, _NOT_READY = 200, 503
#: Any time before every moment of the history, seconds since the epoch.
_LONG_AGO = 1.0
#: Rows that are read at a time.
_CHUNK_SIZE = 10_000
#: Seconds without a recorded minute after which polling had stopped: a minute is written when it is over.
_GAP_SECONDS = 120.0


class NotRecordedError(Exception):
    """The history does not reach back to a moment."""

    def __init__(self, first_at: float | None) -> None:
        super().__init__("the history does not reach back to this moment")
        #: First moment that the history has, seconds since the epoch; None if it is empty.
        self.first_at = first_at


def read_past_table(cluster: str, at: float, present: FleetTable) -> FleetTable:
    """Return the fleet as the last round up to `at` (seconds since the epoch) left it. Raises NotRecordedError.

    Its agents have the indices of the present table, so its epoch is that of the present table.
    """
    columns = columns_at(cluster, at)
    if columns is None:
        raise NotRecordedError(read_first_moment(cluster))
    instances = list(Instance.objects.filter(cluster=cluster))
    changes = instances_at(cluster, at)
    facts = _read_facts(cluster, at, instances, changes, present)
    record = _record_of(
        cluster, at, columns, _Roster.read(cluster, at, columns, present), _indices_of(instances), facts
    )
    cluster_change = changes.get(f"cluster/{cluster}")
    if cluster_change is not None and cluster_change.new == InstanceState.UNKNOWN.slug:
        # Refloat could not reach itself: no self-probe had succeeded.
        record = replace(record, probed_at=0.0)
    return replace(
        table_of(record, at, present.fleet.timing, stale=not _was_polling(cluster, at)),
        epoch=present.epoch,
        attributes=present.attributes,
        is_past=True,
    )


def read_first_moment(cluster: str) -> float | None:
    """Return the first moment that the history has, in seconds since the epoch; None: there is none yet."""
    first_at: float | None = Keyframe.objects.filter(cluster=cluster).aggregate(first_at=Min("at"))[
        "first_at"
    ]
    return first_at


def _was_polling(cluster: str, at: float) -> bool:
    """Return whether rounds were concluded around `at`."""
    newest = FleetMinute.objects.filter(cluster=cluster, at__lte=at).order_by("-at").first()
    return newest is not None and at - newest.at < newest.resolution + _GAP_SECONDS


def _read_facts(
    cluster: str,
    at: float,
    instances: list[Instance],
    changes: Mapping[str, InstanceChange],
    present: FleetTable,
) -> dict[int, InstanceFacts]:
    cluster_change = changes.get(f"cluster/{cluster}")
    state_starts = dict(
        InstanceChange.objects.filter(cluster=cluster, at__lte=at)
        .exclude(old=F("new"))
        .order_by()
        .values("instance")
        .annotate(since=Max("at"))
        .values_list("instance", "since")
    )
    # Positions are given in the order of sight, and a row is written a moment after the first poll.
    known_positions = [
        row.position for row in instances if row.instance_id in changes or to_seconds(row.first_seen_at) <= at
    ]
    return {
        row.position: facts_at(
            row,
            changes.get(row.instance_id),
            present.instances[row.position].facts if row.position in present.instances else None,
            at,
            since=state_starts.get(row.instance_id, at),
            is_cluster_unreachable=cluster_change is not None
            and cluster_change.new == InstanceState.SILENT.slug,
        )
        for row in instances
        if row.position <= max(known_positions, default=-1)
    }


def facts_at(
    row: Instance,
    change: InstanceChange | None,
    present_facts: InstanceFacts | None,
    at: float,
    *,
    since: float,
    is_cluster_unreachable: bool,
) -> InstanceFacts:
    """Return facts from which the rules of the present find the recorded state of an instance at `at`.

    `change`: its last change up to `at`; `since`: when that state began, seconds since the epoch;
    `is_cluster_unreachable`: no instance responded to the newest attempt.
    """
    facts = present_facts or InstanceFacts(
        id=row.instance_id, index=row.position, kind=InstanceKind(row.kind), name=row.name, address=""
    )
    state = InstanceState.UNKNOWN if change is None else _STATES_BY_SLUG[change.new]
    health = Health(change.health) if change is not None and change.health else Health.UNKNOWN
    is_recorded = change is not None and change.evidence is not None
    evidence = InstanceEvidence.from_json(change.evidence or "") if change is not None else InstanceEvidence()
    if not is_recorded:
        evidence = _guess_evidence(state, since, is_draining=change is not None and bool(change.is_draining))
    # An expired auth that lost its backend, and a proxy that cannot reach its auth, report that too.
    reported_at = at if state in CONNECTED_SICK_STATES else 0.0
    sick_since = evidence.sick_since if evidence.sick_since is not None else since
    return replace(
        facts,
        attempts=_attempts_at(state, evidence, at, is_cluster_unreachable=is_cluster_unreachable),
        serving=evidence.serving_status,
        serving_at=reported_at,
        serving_problem=evidence.serving_problem,
        readyz=evidence.readyz,
        readyz_at=reported_at,
        watch=_watch_at(health, evidence, at, since),
        expires_at=_expiry_at(state, evidence, sick_since, at),
        gone_at=sick_since if state is InstanceState.GONE else None,
        sick_since=sick_since if state in SICK_STATES else None,
        heartbeat_auth=evidence.heartbeat_auth if is_recorded else facts.heartbeat_auth,
        listed_at=None,
    )


def _guess_evidence(state: InstanceState, since: float, *, is_draining: bool) -> InstanceEvidence:
    """Return evidence from which the rules find a state that an earlier version recorded without its reason."""
    is_unhealthy = state is InstanceState.UNHEALTHY
    return InstanceEvidence(
        serving=ServingStatus.NOT_SERVING if is_unhealthy else ServingStatus.SERVING,
        readyz=_NOT_READY if is_unhealthy else _READY,
        errors=("", "") if state in CUT_OFF_STATES else (),
        health_since=since,
        drain_reason="" if is_draining else None,
        drain_since=since,
    )


def _attempts_at(
    state: InstanceState, evidence: InstanceEvidence, at: float, *, is_cluster_unreachable: bool
) -> tuple[PollAttempt, ...]:
    """Return the attempts from which the rules find the state of an instance at a moment."""
    failed_attempts = tuple(PollAttempt(at, ok=False, error=error) for error in evidence.errors)
    if state is InstanceState.UNKNOWN:
        if failed_attempts or evidence.polled_at is None:
            return failed_attempts[:1]
        return (PollAttempt(evidence.polled_at, ok=True),)
    if failed_attempts:
        return failed_attempts
    return (PollAttempt(at, ok=not is_cluster_unreachable), PollAttempt(at, ok=True))


def _watch_at(health: Health, evidence: InstanceEvidence, at: float, since: float) -> InstanceWatch:
    health_since = since if evidence.health_since is None else evidence.health_since
    is_drained = evidence.drain_reason is not None
    return InstanceWatch(
        ActiveHealth(
            HealthSignal(health, health_reason_of(evidence), health_since),
            streak_outcome=ProbeOutcome.DEGRADED if evidence.is_self_reported else ProbeOutcome.FAILURE,
            probed_at=at,
        ),
        degraded_reason=evidence.degraded_reason,
        drain_request=DrainRequest(
            evidence.drain_reason or "", since if evidence.drain_since is None else evidence.drain_since
        )
        if is_drained
        else None,
    )


def _expiry_at(
    state: InstanceState, evidence: InstanceEvidence, sick_since: float, at: float
) -> float | None:
    """Return the expiry of an instance's resource that agrees with its state; None: not kept."""
    if state is InstanceState.EXPIRED:
        return min(sick_since if evidence.expires_at is None else evidence.expires_at, at)
    if state in CUT_OFF_STATES or (evidence.expires_at is not None and evidence.expires_at > at):
        return evidence.expires_at
    return None


@dataclass(frozen=True, slots=True)
class _Roster:
    """The agents that existed at a moment: the first ones of the present table."""

    ids: tuple[str, ...]
    names: tuple[str, ...]
    home_proxies: npt.NDArray[np.uint16]
    #: Index of each agent of the columns; -1: not in the record any more.
    column_indices: npt.NDArray[np.int64]

    @classmethod
    def read(cls, cluster: str, at: float, columns: PastColumns, present: FleetTable) -> _Roster:
        agents = Agent.objects.filter(cluster=cluster).order_by()
        rows = agents.values_list("pk", "position").iterator(chunk_size=_CHUNK_SIZE)
        pairs = np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, 2)
        index_by_key = np.full(int(max(pairs[:, 0].max(initial=0), columns.agents.max(initial=0))) + 1, -1)
        index_by_key[pairs[:, 0]] = pairs[:, 1]
        column_indices = index_by_key[columns.agents]
        column_indices[column_indices >= len(present.ids)] = -1
        seen_agents = agents.filter(first_seen_at__lte=to_moment(at)).aggregate(last=Max("position"))
        last_index = max(
            -1 if seen_agents["last"] is None else seen_agents["last"], int(column_indices.max(initial=-1))
        )
        count = min(last_index + 1, len(present.ids))
        return cls(
            present.ids[:count], present.names[:count], present.memory["home_proxy"][:count], column_indices
        )


def _indices_of(instances: list[Instance]) -> npt.NDArray[np.uint16]:
    """Return the index of an instance by its key; `[-1]` is the backend, and 0 no instance."""
    indices = np.full(max((row.pk for row in instances), default=0) + 2, NO_INSTANCE, np.uint16)
    for row in instances:
        indices[row.pk] = row.position
    indices[BACKEND_CAUSE_KEY] = BACKEND_CAUSE
    return indices


def _record_of(
    cluster: str,
    at: float,
    columns: PastColumns,
    roster: _Roster,
    instance_indices: npt.NDArray[np.uint16],
    facts: Mapping[int, InstanceFacts],
) -> ClusterRecord:
    """Return a record with the columns of the history, by the indices of the present."""
    count = len(roster.ids)
    is_present = roster.column_indices >= 0
    rows = roster.column_indices[is_present]
    largest_key = len(instance_indices) - 2

    def indices_by_key(keys: npt.NDArray[np.integer]) -> npt.NDArray[np.uint16]:
        is_known = (keys <= largest_key) & (keys >= BACKEND_CAUSE_KEY)
        return np.where(is_known, instance_indices[np.where(is_known, keys, 0)], NO_INSTANCE).astype(
            np.uint16
        )

    verdicts: Rows = np.zeros(count, VERDICT)
    verdicts["cause"], verdicts["state"] = NO_CAUSE, State.UNKNOWN
    verdicts["state"][rows] = columns.states[is_present]
    verdicts["cause"][rows] = indices_by_key(columns.causes[is_present])
    verdicts["reason_and_recovery"][rows] = columns.reasons[is_present] | (
        columns.recoveries[is_present] << RECOVERY_SHIFT
    )
    verdicts["since"][rows], verdicts["recovers_at"][rows] = (
        columns.since[is_present],
        columns.recovers_at[is_present],
    )
    # A deadline that has passed is the time of each round: docs/reference/verdicts.md.
    strands_at = columns.strands_at[is_present]
    verdicts["strands_at"][rows] = np.where(strands_at == 0, 0.0, np.maximum(strands_at, at))
    tunnel_counts = np.maximum(columns.tunnel_counts, 0).astype(np.int64)
    tunnel_agents = np.repeat(roster.column_indices, tunnel_counts)
    tunnel_proxies = indices_by_key(columns.tunnel_proxies.astype(np.int64))
    is_known_tunnel = (tunnel_agents >= 0) & (tunnel_proxies != NO_INSTANCE)
    tunnel_agents, tunnel_proxies = tunnel_agents[is_known_tunnel], tunnel_proxies[is_known_tunnel]
    memory = blank_memory(count)
    memory["last_auth"][rows] = indices_by_key(np.maximum(columns.auths[is_present], 0))
    memory["last_proxies"][rows, 0] = indices_by_key(columns.proxies[is_present].astype(np.int64))
    # It never changes, but an agent may have had no tunnel yet.
    memory["home_proxy"] = np.where(
        memory["last_proxies"][:, 0] == NO_INSTANCE, NO_INSTANCE, roster.home_proxies
    )
    memory["flags"] = np.where(memory["last_proxies"][:, 0] != NO_INSTANCE, HAD_TUNNEL, 0)
    memory["flags"][verdicts["state"] == State.RETIRED] |= RETIRED
    evidence = np.zeros(count, AGENT_EVIDENCE)
    evidence[rows] = columns.evidence[is_present]
    heartbeats = blank_heartbeats(count)
    heartbeats["auth"] = memory["last_auth"]
    heartbeats["via_proxy"][rows] = indices_by_key(columns.via_proxies[is_present].astype(np.int64))
    # The expiry is not kept, only whether it has passed; 0 would be an agent that no auth has listed.
    expires_at = np.where(presences_in(evidence) == ResourcePresence.UNEXPIRED, np.inf, _LONG_AGO)
    heartbeats["expires_at"] = np.where(memory["last_auth"] == NO_INSTANCE, 0.0, expires_at)
    unpack_agent_evidence(evidence, heartbeats, memory)
    fresh = FeedState(freshness=FeedFreshness(attempted_at=at, responded_at=at))
    return replace(
        empty_record(cluster),
        epoch=f"past-{round(at * 1000)}",
        header=RecordHeader(
            epoch=f"past-{round(at * 1000)}",
            row_count=count,
            as_of=at,
            instance_count=len(facts),
            counts=tuple(np.bincount(verdicts["state"], minlength=len(State)).tolist()),
        ),
        ids=roster.ids,
        names=roster.names,
        heartbeats=heartbeats,
        memory=memory,
        verdicts=verdicts,
        places=places_of(
            memory, tunnel_agents.astype(np.uint32), tunnel_proxies, presences_in(evidence).astype(np.uint8)
        ),
        tunnel_agents=tunnel_agents.astype(np.uint32),
        tunnel_proxies=tunnel_proxies,
        instances=facts,
        presence_feed=fresh,
        lists_feed=fresh,
        tunnel_feeds={
            index: fresh
            for index, instance_facts in facts.items()
            if instance_facts.kind is InstanceKind.PROXY
        },
    )
