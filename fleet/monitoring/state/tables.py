"""Tables from a record: all columns with the age of the data applied, and views of instances and agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify import (
    FleetFrame,
    classify_in,
    count_states,
    evidence_of,
    explain_recorded,
    health_of,
    health_sentence,
    instance_sentence,
    prepare_frame,
)
from fleet.monitoring.columns import (
    NO_INSTANCE,
    PLACE_PROXY_COUNT,
    REASON_BITS,
    RECOVERY_SHIFT,
    ResourcePresence,
)
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, ReconnectMode, Timing
from fleet.monitoring.state.codec import Rows
from fleet.monitoring.state.record import ClusterRecord
from fleet.monitoring.views import AgentView, Explanation, FleetTable, InstanceView, Summary
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import CUT_OFF_STATES, InstanceKind
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import (
    BACKEND_CAUSE,
    NO_CAUSE,
    Reason,
    Recovery,
    State,
    Verdict,
    VerdictSentences,
)

#: Agents whose tunnels are searched together.
_BATCH_SIZE = 500
_STALE_SENTENCE = (
    "Refloat has no recent data about this agent: no poll of the whole fleet has finished recently."
)
NEWER_EVIDENCE_SENTENCE = "Newer data arrived after the last round. The next round evaluates it."


def table_of(record: ClusterRecord, now: float, timing: Timing, *, stale: bool) -> FleetTable:
    """Return all columns at one time; with stale data every state but `retired` is unknown."""
    fleet = record.evidence(now, timing)
    verdicts = mark_stale(record.verdicts) if stale else record.verdicts
    return FleetTable(
        cluster=record.cluster,
        epoch=record.epoch,
        seq=record.header.seq,
        as_of=record.header.as_of or None,
        stale=stale,
        ids=record.ids,
        names=record.names,
        instances=instance_views_of(record, verdicts["state"], fleet, now),
        heartbeats=record.heartbeats,
        memory=record.memory,
        verdicts=verdicts,
        places=record.places,
        tunnel_agents=record.tunnel_agents,
        tunnel_proxies=record.tunnel_proxies,
        fleet=fleet,
        attributes=record.attributes,
    )


def mark_stale(verdicts: Rows) -> Rows:
    """Return the verdicts of a round that is too old."""
    stale_verdicts = verdicts.copy()
    is_outdated = stale_verdicts["state"] != State.RETIRED
    stale_verdicts["state"][is_outdated] = State.UNKNOWN
    stale_verdicts["reason_and_recovery"][is_outdated] = (
        int(Reason.STALE) | int(Recovery.UNCLEAR) << RECOVERY_SHIFT
    )
    stale_verdicts["cause"][is_outdated] = NO_CAUSE
    for name in ("recovers_at", "strands_at"):
        stale_verdicts[name][is_outdated] = 0.0
    return stale_verdicts


def instance_views_of(
    record: ClusterRecord, states: npt.NDArray[np.uint8], fleet: FleetEvidence, now: float
) -> dict[int, InstanceView]:
    """Return every instance with its state and the counts of its agents: by home proxy and by auth."""
    size = max(record.instances, default=-1) + 1
    home_counts = _count_by_state(record.memory["home_proxy"], states, size)
    auth_counts = _count_by_state(record.memory["last_auth"], states, size)
    tunnel_counts = np.bincount(record.tunnel_proxies, minlength=size)
    frame = prepare_frame(fleet, now)
    connected_counts = _count_connected_agents(record, frame.unexpired_from)
    proxies_by_auth = _proxy_names_by_auth(frame)
    views = {}
    for index, facts in record.instances.items():
        is_proxy = facts.kind is InstanceKind.PROXY
        state = frame.state_of(index)
        cause = frame.cause_of(index)
        health = health_of(facts, now, fleet.timing)
        counts = (home_counts if is_proxy else auth_counts)[index]
        views[index] = InstanceView(
            facts=facts,
            state=state,
            sentence=instance_sentence(facts, state, now, frame.cause_clause(index)),
            cause="" if cause == index else _cause_id_of(record, cause),
            proxies=proxies_by_auth.get(facts.id, ()),
            agent_count=int(tunnel_counts[index] if is_proxy else connected_counts[index]),
            counts=dict(zip(State, counts.tolist(), strict=True)),
            health=health,
            health_since=None if health is Health.UNKNOWN else facts.watch.active.signal.changed_at,
            health_sentence=health_sentence(facts, health),
            drain_request=facts.watch.drain_request,
            is_list_fresh=facts.listed_at is None or now - facts.listed_at < fleet.timing.stale_after,
        )
    return views


def _count_connected_agents(record: ClusterRecord, unexpired_from: float) -> npt.NDArray[np.int64]:
    """Count the agents connected to each auth: alive agents whose last heartbeat it received.

    An agent that is stranded by its auth keeps the connection and its tunnels, although its resource has expired.
    """
    expires_at = record.heartbeats["expires_at"]
    auths = np.where(expires_at > 0, record.heartbeats["auth"], record.memory["last_auth"])
    live = expires_at > unexpired_from
    live[record.tunnel_agents] = True
    return np.bincount(auths[live], minlength=NO_INSTANCE + 1)


def _cause_id_of(record: ClusterRecord, cause: int) -> str:
    """Return the id of a cause: an instance id, or `backend/<cluster>`."""
    return f"backend/{record.cluster}" if cause == BACKEND_CAUSE else record.instances[cause].id


def _proxy_names_by_auth(frame: FleetFrame) -> dict[str, tuple[str, ...]]:
    """Return the names of the proxies that heartbeat through each auth, by auth id, without those that are cut off."""
    names: dict[str, list[str]] = {}
    for condition in frame.conditions.values():
        # A proxy that ended or hangs sends none now.
        if condition.facts.heartbeat_auth and condition.state not in CUT_OFF_STATES:
            names.setdefault(condition.facts.heartbeat_auth, []).append(condition.facts.name)
    return {auth: tuple(sorted(of_auth, key=natural_sort_key)) for auth, of_auth in names.items()}


def _count_by_state(
    owners: npt.NDArray[np.uint16], states: npt.NDArray[np.uint8], size: int
) -> npt.NDArray[np.int64]:
    has_owner = owners < size
    cells = owners[has_owner].astype(np.int64) * len(State) + states[has_owner]
    return np.bincount(cells, minlength=size * len(State)).reshape(size, len(State))


def sort_instances(views: Iterable[InstanceView]) -> tuple[InstanceView, ...]:
    """Return instances as people list them: auths first, proxy-2 before proxy-10."""
    return tuple(
        sorted(views, key=lambda view: (view.facts.kind, natural_sort_key(view.facts.name), view.facts.index))
    )


def summary_of(table: FleetTable) -> Summary:
    """Return the fleet summary of the same round as a table."""
    return Summary(
        cluster=table.cluster,
        as_of=table.as_of,
        interval=table.fleet.timing.round_interval,
        stale=table.stale,
        counts=count_states(table.verdicts["state"]),
        agent_count=len(table.ids),
        instance_count=len(table.instances),
    )


def evidence_at(table: FleetTable, index: int) -> AgentEvidence:
    """Return the evidence of one agent."""
    tunnels = (table.tunnel_agents, table.tunnel_proxies)
    return evidence_of(index, table.ids[index], table.heartbeats, table.memory, *tunnels)


def agent_view_of(table: FleetTable, index: int, frame: FleetFrame) -> AgentView:
    """Return the view of one agent."""
    agent_evidence = evidence_at(table, index)
    row = table.verdicts[index]
    place = table.places[index]
    # The history has only what sentences need of a heartbeat.
    heartbeat = None if table.is_past else agent_evidence.heartbeat
    return AgentView(
        index=index,
        id=table.ids[index],
        name=table.names[index],
        state=State(int(row["state"])),
        verdict=_verdict_of(table, index, agent_evidence, frame),
        since=float(row["since"]) or None,
        auth=_instance_id(table, _index_or_none(place["auth"])),
        proxies=tuple(
            table.instances[proxy].facts.id
            for proxy in _proxies_of(place, agent_evidence)
            if proxy in table.instances
        ),
        home_proxy=_instance_id(table, _index_or_none(table.memory[index]["home_proxy"])),
        heartbeat_at=heartbeat.expires_at - heartbeat.ttl if heartbeat else None,
        expires_at=heartbeat.expires_at if heartbeat else None,
        mode=heartbeat.mode if heartbeat else ReconnectMode.UNKNOWN,
        health_check=heartbeat.health_check if heartbeat else None,
        policy_read_at=heartbeat.policy_read_at if heartbeat else None,
        version=table.attributes.version_of(index),
        labels=table.attributes.labels_of(index),
    )


def agent_views_of(table: FleetTable, indices: Iterable[int], frame: FleetFrame) -> Iterator[AgentView]:
    """Yield the views of agents. For a batch of them the tunnels of the fleet are searched once. Raises IndexError."""
    remaining = iter(indices)
    while batch := list(islice(remaining, _BATCH_SIZE)):
        is_of_batch = np.isin(table.tunnel_agents, batch)
        batch_table = replace(
            table,
            tunnel_agents=table.tunnel_agents[is_of_batch],
            tunnel_proxies=table.tunnel_proxies[is_of_batch],
        )
        for index in batch:
            yield agent_view_of(batch_table, index, frame)


def explanation_of(table: FleetTable, index: int, frame: FleetFrame) -> Explanation:
    """Return one agent with the data that its state was derived from."""
    agent_evidence = evidence_at(table, index)
    instance_indices = {
        *agent_evidence.tunnels,
        *agent_evidence.last_proxies,
        _index_or_none(table.memory[index]["home_proxy"]),
        agent_evidence.last_auth,
    }
    if agent_evidence.heartbeat:
        instance_indices |= {agent_evidence.heartbeat.auth, agent_evidence.heartbeat.via_proxy}
    cause = int(table.verdicts[index]["cause"])
    return Explanation(
        view=agent_view_of(table, index, frame),
        evidence=replace(agent_evidence, heartbeat=None) if table.is_past else agent_evidence,
        instances={
            index: instance
            for index, instance in table.instances.items()
            if index == cause or index in instance_indices
        },
    )


def _verdict_of(table: FleetTable, index: int, agent_evidence: AgentEvidence, frame: FleetFrame) -> Verdict:
    """Return the verdict of the round, with sentences from its evidence."""
    row = table.verdicts[index]
    cause = int(row["cause"])
    state, reason = State(int(row["state"])), Reason(int(row["reason_and_recovery"]) & REASON_BITS)
    if table.stale and state is not State.RETIRED:
        sentences = VerdictSentences(_STALE_SENTENCE)
    elif table.is_past:
        sentences = _describe_recorded_state(table, index, agent_evidence, frame)
    else:
        verdict = classify_in(agent_evidence, frame)
        sentences = (
            verdict.sentences
            if (verdict.state, verdict.reason) == (state, reason)
            else VerdictSentences(NEWER_EVIDENCE_SENTENCE)
        )
    return Verdict(
        state=state,
        reason=reason,
        cause=f"backend/{table.cluster}" if cause == BACKEND_CAUSE else _instance_id(table, cause) or "",
        recovery=Recovery(int(row["reason_and_recovery"]) >> RECOVERY_SHIFT),
        recovers_at=float(row["recovers_at"]) or None,
        strands_at=float(row["strands_at"]) or None,
        sentences=sentences,
    )


def _describe_recorded_state(
    table: FleetTable, index: int, agent_evidence: AgentEvidence, frame: FleetFrame
) -> VerdictSentences:
    """Return the sentences of a state in the history; only its reason if an earlier version recorded it."""
    row = table.verdicts[index]
    state, reason = State(int(row["state"])), Reason(int(row["reason_and_recovery"]) & REASON_BITS)
    if table.places[index]["presence"] != ResourcePresence.NOT_RECORDED:
        recovery = Recovery(int(row["reason_and_recovery"]) >> RECOVERY_SHIFT)
        return explain_recorded(agent_evidence, frame, state, reason, int(row["cause"]), recovery)
    if reason is Reason.NONE:
        return VerdictSentences(f"Recorded as {state.label}.")
    return VerdictSentences(f"Recorded as {state.label}; reason: {reason.label}.")


def _proxies_of(place: np.void, agent_evidence: AgentEvidence) -> tuple[int, ...]:
    """Return the proxies that reported a tunnel in the round of the verdicts.

    Of many tunnels the place has only the first ones: these are of the newest reports.
    """
    if place["tunnel_count"] > PLACE_PROXY_COUNT:
        return agent_evidence.tunnels
    return tuple(proxy for proxy in place["proxies"].tolist() if proxy != NO_INSTANCE)


def _index_or_none(index: np.uint16) -> int | None:
    return None if index == NO_INSTANCE else int(index)


def _instance_id(table: FleetTable, index: int | None) -> str | None:
    instances: Mapping[int, InstanceView] = table.instances
    return instances[index].facts.id if index is not None and index in instances else None
