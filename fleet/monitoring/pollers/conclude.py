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
    health_of,
    places_of,
    prepare_frame,
    update_memory,
)
from fleet.monitoring.columns import DISAGREEMENT, NO_INSTANCE
from fleet.monitoring.events import Event, InstancesChanged, LayoutChanged, StateDelta
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.agent_changes import (
    event_changes_of,
    find_changed_agents,
    find_changed_rows,
    history_rows_of,
)
from fleet.monitoring.pollers.minute_counts import count_groups, is_new_minute
from fleet.monitoring.pollers.report_schedule import select_agents_to_query, select_old_reports
from fleet.monitoring.state.codec import InstanceSpell, RecordHeader, Rows
from fleet.monitoring.state.outbox import (
    BACKEND_INDEX,
    CLUSTER_INDEX,
    HEALTH_NUMBERS,
    INSTANCE_CHANGE,
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
    places = places_of(memory, tunnel_agents, tunnel_proxies)
    previous_memory, previous_places = (
        column[: record.header.row_count] for column in (record.memory, record.places)
    )
    changed_memory, changed_places = (
        find_changed_rows(previous_memory, memory),
        find_changed_rows(previous_places, places),
    )
    changed_verdicts = find_changed_rows(previous_verdicts, verdicts)
    changes = find_changed_agents(
        previous_verdicts, verdicts, previous_places, places, np.union1d(changed_verdicts, changed_places)
    )
    spells = _find_changed_spells(record, frame, now)
    counts = count_states(verdicts["state"])
    header = RecordHeader(
        epoch=record.epoch,
        row_count=len(verdicts),
        seq=record.header.seq + (1 if len(changes.visible_agents) else 0),
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
        *history_rows_of(previous_verdicts, verdicts, places, changes.recorded_agents, record),
        agents_to_save=_select_persistent_rows(previous_memory, memory, changed_memory),
        instance_changes=_find_instance_changes(record.spells, spells),
        state_counts=np.array(header.counts, np.uint32),
        group_counts=count_groups(verdicts, places) if is_new_minute(record.header.as_of, now) else None,
    )
    conclusion = Conclusion(
        header=header,
        verdicts=verdicts,
        changed_verdict_rows=changed_verdicts,
        memory=memory,
        changed_memory_rows=changed_memory,
        places=places,
        changed_place_rows=changed_places,
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
        conclusion, _build_events(record, header, verdicts, places, changes.visible_agents, counts, spells)
    )


def _select_persistent_rows(
    before: Rows, after: Rows, rows: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    """Return the changed rows that differ in a stored value; rounds of a disagreement are not stored."""
    old, new = (column[rows[rows < len(before)]] for column in (before, after))
    for column in (old, new):
        column["flags"] &= np.uint8(0xFF & ~DISAGREEMENT)
    return np.concatenate([rows[find_changed_rows(old, new)], rows[rows >= len(before)]])


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


def _find_instance_changes(before: Mapping[int, InstanceSpell], after: Mapping[int, InstanceSpell]) -> Rows:
    """Return INSTANCE_CHANGE rows of the spells that differ in a visible part."""
    changes = [
        (index, old.state, spell.state, HEALTH_NUMBERS[spell.health], spell.is_draining)
        for index, spell in after.items()
        if _visible_state_of(old := before.get(index, InstanceSpell())) != _visible_state_of(spell)
    ]
    return np.array(changes, INSTANCE_CHANGE)


def _build_events(
    record: ClusterRecord,
    header: RecordHeader,
    verdicts: Rows,
    places: Rows,
    agents: npt.NDArray[np.uint32],
    counts: Mapping[State, int],
    spells: Mapping[int, InstanceSpell],
) -> tuple[Event, ...]:
    cluster, events = record.cluster, list[Event]()
    if len(agents):
        changes = event_changes_of(verdicts, places, agents)
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
