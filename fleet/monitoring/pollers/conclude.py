"""Conclusion of a round: read the record, classify every agent in one pass, and write the changes exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify import (
    FleetFrame,
    classify_columns,
    count_states,
    find_changed_agents,
    health_of,
    prepare_frame,
    update_memory,
)
from fleet.monitoring.columns import DISAGREEMENT, NO_INSTANCE
from fleet.monitoring.events import Event, InstancesChanged, LayoutChanged, StateDelta
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.report_schedule import select_agents_to_query, select_old_reports
from fleet.monitoring.state.codec import InstanceSpell, RecordHeader, Rows
from fleet.monitoring.state.outbox import (
    BACKEND_INDEX,
    CLUSTER_INDEX,
    INSTANCE_TRANSITION,
    TRANSITION,
    RoundChanges,
    pack_round_changes,
)
from fleet.monitoring.state.record import ClusterRecord
from fleet.monitoring.state.writer import Conclusion, Writer
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State

#: Most attempts of a conclusion, which starts over when an operator's request or another round comes between.
_MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class UncommittedRound:
    """Result of a round before it is written."""

    conclusion: Conclusion
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class CommittedRound:
    """Result of a round after it was written."""

    header: RecordHeader
    #: Events to publish, in this order.
    events: tuple[Event, ...]
    #: Duration of each step in seconds: `read`, `classify`, `record`.
    step_seconds: Mapping[str, float]


def conclude(
    writer: Writer, cluster: str, round_number: int, *, now: float, timing: Timing, clock: Callable[[], float]
) -> CommittedRound | None:
    """Conclude round `round_number` at `now`; return None when it or a newer round was concluded before.

    `clock` is only used to measure durations. Raises RecordLostError, StateUnavailableError.
    """
    for _ in range(_MAX_ATTEMPTS):
        started_at = clock()
        record = writer.load(cluster)
        if record.header.round >= round_number:
            return None
        read_at = clock()
        uncommitted_round = compute_round(record, round_number, now, timing)
        classified_at = clock()
        if writer.commit(cluster, record, uncommitted_round.conclusion):
            step_seconds = {
                "read": read_at - started_at,
                "classify": classified_at - read_at,
                "record": clock() - classified_at,
            }
            return CommittedRound(
                header=uncommitted_round.conclusion.header,
                events=uncommitted_round.events,
                step_seconds=step_seconds,
            )
    return None


def compute_round(record: ClusterRecord, round_number: int, now: float, timing: Timing) -> UncommittedRound:
    """Return the result of a round for a record. No I/O."""
    frame = prepare_frame(record.evidence(now, timing), now)
    columns = (record.heartbeats, record.tunnel_agents, record.tunnel_proxies)
    heartbeats, tunnel_agents, tunnel_proxies = columns
    memory = update_memory(record.memory, heartbeats, tunnel_agents, tunnel_proxies, now, frame).memory
    previous_verdicts = record.verdicts[: record.header.row_count]
    verdicts = classify_columns(
        heartbeats, memory, tunnel_agents, tunnel_proxies, frame, now, previous_verdicts
    )
    changed_agents = find_changed_agents(previous_verdicts, verdicts)
    previous_memory = record.memory[: record.header.row_count]
    changed_memory = _find_changed_rows(previous_memory, memory)
    spells = _find_changed_spells(record, frame, now)
    counts = count_states(verdicts["state"])
    header = RecordHeader(
        epoch=record.epoch,
        row_count=len(verdicts),
        seq=record.header.seq + (1 if len(changed_agents) else 0),
        round=round_number,
        as_of=now,
        interval=timing.round_interval,
        agent_home_count=int(np.count_nonzero(memory["home_proxy"] != NO_INSTANCE)),
        instance_count=len(record.instances),
        counts=tuple(counts[state] for state in State),
    )
    round_changes = RoundChanges(
        round_number,
        now,
        _find_transitions(previous_verdicts, verdicts, changed_agents),
        _select_persistent_rows(previous_memory, memory, changed_memory),
        _find_instance_transitions(record.spells, spells),
    )
    conclusion = Conclusion(
        header=header,
        verdicts=verdicts,
        changed_verdict_rows=_find_changed_rows(previous_verdicts, verdicts),
        memory=memory,
        changed_memory_rows=changed_memory,
        spells=spells,
        outbox_entry=pack_round_changes(round_changes),
        agents_to_query=select_agents_to_query(
            *(verdicts["state"], tunnel_agents, tunnel_proxies, record.agent_report_rows),
            round_number=round_number,
            now=now,
            round_interval=timing.round_interval,
        ),
        reports_to_delete=select_old_reports(record.agent_report_rows, now),
    )
    return UncommittedRound(
        conclusion, _build_events(record, header, verdicts, changed_agents, counts, spells)
    )


def _find_changed_rows(before: Rows, after: Rows) -> npt.NDArray[np.uint32]:
    """Return the indices of rows that differ in any field, and of new rows."""
    # As one run of words: comparing rows field by field, or the words of each row, takes ten times as long.
    word_count = after.dtype.itemsize // 4
    old = np.ascontiguousarray(before).view("<u4")
    new = np.ascontiguousarray(after).view("<u4")
    rows = np.flatnonzero(old != new[: len(old)]) // word_count
    changed_indices = rows[np.flatnonzero(np.diff(rows, prepend=-1))]
    return np.concatenate([changed_indices, np.arange(len(before), len(after))]).astype(np.uint32)


def _select_persistent_rows(
    before: Rows, after: Rows, rows: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    """Return the changed rows that differ in a stored value; rounds of a disagreement are not stored."""
    old, new = (column[rows[rows < len(before)]] for column in (before, after))
    for column in (old, new):
        column["flags"] &= np.uint8(0xFF & ~DISAGREEMENT)
    return np.concatenate([rows[_find_changed_rows(old, new)], rows[rows >= len(before)]])


def _find_transitions(previous_verdicts: Rows, verdicts: Rows, changed_agents: npt.NDArray[np.intp]) -> Rows:
    before = np.full(len(changed_agents), State.UNKNOWN, np.uint8)
    has_previous = changed_agents < len(previous_verdicts)
    before[has_previous] = previous_verdicts["state"][changed_agents[has_previous]]
    rows: Rows = np.zeros(len(changed_agents), TRANSITION)
    rows["agent"], rows["old"] = changed_agents, before
    rows["new"], rows["cause"] = verdicts["state"][changed_agents], verdicts["cause"][changed_agents]
    rows["reason_and_recovery"] = verdicts["reason_and_recovery"][changed_agents]
    transitions: Rows = rows[rows["old"] != rows["new"]]
    return transitions


def _find_changed_spells(record: ClusterRecord, frame: FleetFrame, now: float) -> dict[int, InstanceSpell]:
    """Return the spells that differ from those of the previous round."""
    changed_spells = {}
    for index, condition in frame.conditions.items():
        before = record.spells.get(index, InstanceSpell())
        health, is_draining = (
            health_of(condition.facts, now, frame.timing),
            bool(condition.facts.watch.drain_request),
        )
        if frame.blind:
            # Refloat's own network may be the cause of failures.
            spell = replace(before, state=InstanceState.UNKNOWN)
        elif condition.is_sick:
            spell = InstanceSpell(condition.state, condition.since, health, is_draining)
        elif condition.state is InstanceState.UNKNOWN:
            # Not polled recently: the problem may continue.
            spell = replace(before, state=InstanceState.UNKNOWN)
        else:
            spell = InstanceSpell(condition.state, None, health, is_draining)
        if spell != before:
            changed_spells[index] = spell
    for index, is_failed in ((BACKEND_INDEX, frame.backend_down), (CLUSTER_INDEX, frame.cluster_unreachable)):
        before = record.spells.get(index, InstanceSpell())
        spell = _system_spell_of(before, is_failed=is_failed, blind=frame.blind, now=now)
        if spell != before:
            changed_spells[index] = spell
    return changed_spells


def _system_spell_of(before: InstanceSpell, *, is_failed: bool, blind: bool, now: float) -> InstanceSpell:
    """Return the spell of the backend or the cluster: silent, OK or unknown."""
    if blind:
        return replace(before, state=InstanceState.UNKNOWN)
    if not is_failed:
        return InstanceSpell(InstanceState.OK)
    return InstanceSpell(InstanceState.SILENT, now if before.sick_since is None else before.sick_since)


def _find_instance_transitions(
    before: Mapping[int, InstanceSpell], after: Mapping[int, InstanceSpell]
) -> Rows:
    """Return INSTANCE_TRANSITION rows of the spells with another state."""
    transitions = [
        (index, old, spell.state)
        for index, spell in after.items()
        if (old := before.get(index, InstanceSpell()).state) != spell.state
    ]
    return np.array(transitions, INSTANCE_TRANSITION)


def _build_events(
    record: ClusterRecord,
    header: RecordHeader,
    verdicts: Rows,
    changed_agents: npt.NDArray[np.intp],
    counts: Mapping[State, int],
    spells: Mapping[int, InstanceSpell],
) -> tuple[Event, ...]:
    cluster, events = record.cluster, list[Event]()
    if len(changed_agents):
        states = verdicts["state"][changed_agents].tolist()
        changes = tuple(
            (index, State(state)) for index, state in zip(changed_agents.tolist(), states, strict=True)
        )
        events.append(StateDelta(cluster, header.epoch, header.seq, header.as_of, changes, counts))
    if header.layout_version != record.header.layout_version:
        events.append(LayoutChanged(cluster, header.epoch, header.layout_version))
    if any(
        _visible_state_of(spell) != _visible_state_of(record.spells.get(index, InstanceSpell()))
        for index, spell in spells.items()
    ):
        events.append(InstancesChanged(cluster))
    return tuple(events)


def _visible_state_of(spell: InstanceSpell) -> tuple[InstanceState, Health, bool]:
    """Return the part of a spell that people see."""
    return spell.state, spell.health, spell.is_draining
