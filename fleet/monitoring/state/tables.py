"""Tables from a record: all columns with age applied, and what they say of each instance and each agent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify import (
    FleetFrame,
    classify_in,
    evidence_of,
    health_of,
    health_sentence,
    instance_sentence,
    prepare,
)
from fleet.monitoring.columns import NO_INSTANCE, REASON_BITS, RECOVERY_SHIFT
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, Mode, Timing
from fleet.monitoring.state.codec import Rows
from fleet.monitoring.state.record import Record
from fleet.monitoring.views import AgentView, Explanation, FleetTable, InstanceView
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.naming import natural
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State, Verdict

_OLD = "No round has concluded lately: what was known of it is too old."
_MOVED_ON = "Newer evidence has come in since the last round concluded this; the next one will tell."


def table_of(record: Record, now: float, timing: Timing, *, stale: bool) -> FleetTable:
    """All columns at one moment; when it is stale, every verdict but `retired` is unknown."""
    fleet = record.fleet(now, timing)
    verdicts = aged(record.verdicts) if stale else record.verdicts
    return FleetTable(
        cluster=record.cluster,
        epoch=record.epoch,
        seq=record.header.seq,
        as_of=record.header.as_of or None,
        stale=stale,
        ids=record.ids,
        names=record.names,
        instances=views_of(record, verdicts["state"], fleet, now),
        heartbeats=record.heartbeats,
        memory=record.memory,
        verdicts=verdicts,
        tunnel_agents=record.tunnel_agents,
        tunnel_proxies=record.tunnel_proxies,
        fleet=fleet,
    )


def aged(verdicts: Rows) -> Rows:
    """The verdicts of a round that concluded too long ago."""
    old = verdicts.copy()
    gone = old["state"] != State.RETIRED
    old["state"][gone] = State.UNKNOWN
    old["packed"][gone] = int(Reason.STALE) | int(Recovery.UNCLEAR) << RECOVERY_SHIFT
    old["cause"][gone] = NO_CAUSE
    for name in ("recovers_at", "strands_at"):
        old[name][gone] = 0.0
    return old


def views_of(
    record: Record, states: npt.NDArray[np.uint8], fleet: FleetEvidence, now: float
) -> dict[int, InstanceView]:
    """Every instance with its state, and with its agents: those it is the home of, or the auth of."""
    size = max(record.instances, default=-1) + 1
    homes = _by_state(record.memory["home"], states, size)
    auths = _by_state(record.memory["last_auth"], states, size)
    tunnels = np.bincount(record.tunnel_proxies, minlength=size)
    connected = _connected_agents(record, now)
    frame = prepare(fleet, now)
    proxies = _proxies_by_auth(frame)
    views = {}
    for index, facts in record.instances.items():
        proxy = facts.kind is InstanceKind.PROXY
        state = frame.state(index)
        cause = frame.cause_of(index)
        health = health_of(facts, now, fleet.timing)
        counts = (homes if proxy else auths)[index]
        views[index] = InstanceView(
            facts=facts,
            state=state,
            sentence=instance_sentence(facts, state, now, frame.cause_clause(index)),
            cause="" if cause == index else _cause_id(record, cause),
            proxies=proxies.get(facts.id, ()),
            agents=int(tunnels[index] if proxy else connected[index]),
            counts=dict(zip(State, counts.tolist(), strict=True)),
            health=health,
            health_since=None if health is Health.UNKNOWN else facts.watch.active.signal.at,
            health_sentence=health_sentence(facts, health),
            draining=facts.watch.draining,
            listed=facts.listed_at is None or now - facts.listed_at < fleet.timing.stale_after,
        )
    return views


def _connected_agents(record: Record, now: float) -> npt.NDArray[np.int64]:
    """Count the agents that are connected to each auth: those that it was the last one to hear from, and that live.

    The resource of an agent that its auth strands has expired, but the agent keeps the connection, and its tunnels.
    """
    expires_at = record.heartbeats["expires_at"]
    auths = np.where(expires_at > 0, record.heartbeats["auth"], record.memory["last_auth"])
    live = expires_at > now
    live[record.tunnel_agents] = True
    return np.bincount(auths[live], minlength=NO_INSTANCE + 1)


def _cause_id(record: Record, cause: int) -> str:
    """Name a cause for others: the id of an instance, or `backend/<cluster>`."""
    return f"backend/{record.cluster}" if cause == BACKEND_CAUSE else record.instances[cause].id


def _proxies_by_auth(frame: FleetFrame) -> dict[str, tuple[str, ...]]:
    """Names of the proxies that heartbeat through each auth, by its id; without those that are gone."""
    names: dict[str, list[str]] = {}
    for standing in frame.standings.values():
        if standing.facts.heartbeat_auth and standing.state is not InstanceState.GONE:
            names.setdefault(standing.facts.heartbeat_auth, []).append(standing.facts.name)
    return {auth: tuple(sorted(of_auth, key=natural)) for auth, of_auth in names.items()}


def _by_state(
    owners: npt.NDArray[np.uint16], states: npt.NDArray[np.uint8], size: int
) -> npt.NDArray[np.int64]:
    owned = owners < size
    cells = owners[owned].astype(np.int64) * len(State) + states[owned]
    return np.bincount(cells, minlength=size * len(State)).reshape(size, len(State))


def evidence(table: FleetTable, index: int) -> AgentEvidence:
    """Everything seen of one agent."""
    tunnels = (table.tunnel_agents, table.tunnel_proxies)
    return evidence_of(index, table.ids[index], table.heartbeats, table.memory, *tunnels)


def view_of(table: FleetTable, index: int, frame: FleetFrame) -> AgentView:
    """One agent in a list."""
    seen = evidence(table, index)
    row = table.verdicts[index]
    heartbeat = seen.heartbeat
    auth = heartbeat.auth if heartbeat else seen.last_auth
    return AgentView(
        index=index,
        id=table.ids[index],
        name=table.names[index],
        state=State(int(row["state"])),
        verdict=_verdict(table, row, seen, frame),
        since=float(row["since"]) or None,
        auth=_id(table, auth),
        proxies=tuple(table.instances[proxy].facts.id for proxy in seen.tunnels if proxy in table.instances),
        home=_id(table, _index(table.memory[index]["home"])),
        heartbeat_at=heartbeat.expires_at - heartbeat.ttl if heartbeat else None,
        expires_at=heartbeat.expires_at if heartbeat else None,
        mode=heartbeat.mode if heartbeat else Mode.UNKNOWN,
        health_check=heartbeat.health_check if heartbeat else None,
        policy_read_at=heartbeat.policy_read_at if heartbeat else None,
    )


def explanation_of(table: FleetTable, index: int, frame: FleetFrame) -> Explanation:
    """One agent with everything its verdict rests on."""
    seen = evidence(table, index)
    named = {*seen.tunnels, *seen.last_proxies, _index(table.memory[index]["home"]), seen.last_auth}
    if seen.heartbeat:
        named |= {seen.heartbeat.auth, seen.heartbeat.via_proxy}
    cause = int(table.verdicts[index]["cause"])
    return Explanation(
        view=view_of(table, index, frame),
        evidence=seen,
        instances={at: found for at, found in table.instances.items() if at == cause or at in named},
    )


def _verdict(table: FleetTable, row: np.void, seen: AgentEvidence, frame: FleetFrame) -> Verdict:
    """The round's verdict, in the words of the evidence it came from."""
    cause = int(row["cause"])
    state, reason = State(int(row["state"])), Reason(int(row["packed"]) & REASON_BITS)
    if table.stale and state is not State.RETIRED:
        sentence = _OLD
    else:
        now = classify_in(seen, frame)
        sentence = now.sentence if (now.state, now.reason) == (state, reason) else _MOVED_ON
    return Verdict(
        state=state,
        reason=reason,
        cause=f"backend/{table.cluster}" if cause == BACKEND_CAUSE else _id(table, cause) or "",
        recovery=Recovery(int(row["packed"]) >> RECOVERY_SHIFT),
        recovers_at=float(row["recovers_at"]) or None,
        strands_at=float(row["strands_at"]) or None,
        sentence=sentence,
    )


def _index(value: np.uint16) -> int | None:
    return None if value == NO_INSTANCE else int(value)


def _id(table: FleetTable, index: int | None) -> str | None:
    found: Mapping[int, InstanceView] = table.instances
    return found[index].facts.id if index is not None and index in found else None
