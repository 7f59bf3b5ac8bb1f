"""Conclusion of a round: read the record, classify every agent in one pass, and write the changes exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify import (
    classify_columns,
    count_states,
    places_of,
    prepare_frame,
    presences_of,
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
from fleet.monitoring.pollers.instance_changes import (
    find_changed_spells,
    find_instance_changes,
    visible_part_of,
)
from fleet.monitoring.pollers.minute_counts import count_groups, is_new_minute
from fleet.monitoring.pollers.report_schedule import select_agents_to_query, select_old_reports
from fleet.monitoring.state.codec import InstanceSpell, RecordHeader, Rows
from fleet.monitoring.state.outbox import (
    RoundChanges,
    pack_round_changes,
)
from fleet.monitoring.state.record import ClusterRecord
from fleet.monitoring.state.writer import Conclusion, Writer
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
    # API and history have milliseconds: an answer's `as_of` must be the moment of its round, not one just before it.
    now = round(now, 3)
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
    previous_verdicts = record.verdicts[: record.header.row_count]
    memory = update_memory(*(record.memory, *columns), now, frame, previous_verdicts).memory
    verdicts = classify_columns(
        heartbeats, memory, tunnel_agents, tunnel_proxies, frame, now, previous_verdicts
    )
    places = places_of(memory, tunnel_agents, tunnel_proxies, presences_of(heartbeats, frame))
    previous_memory, previous_places = (
        column[: record.header.row_count] for column in (record.memory, record.places)
    )
    changed_memory, changed_places = (
        find_changed_rows(previous_memory, memory),
        find_changed_rows(previous_places, places),
    )
    changed_verdicts = find_changed_rows(previous_verdicts, verdicts)
    changes = find_changed_agents(
        previous_verdicts,
        verdicts,
        previous_places,
        places,
        np.union1d(changed_verdicts, changed_places),
        now,
    )
    spells = find_changed_spells(record.spells, frame, now)
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
    instance_changes, instance_evidence = find_instance_changes(record.spells, spells)
    agent_changes, proxies = history_rows_of(
        previous_verdicts, verdicts, places, memory, changes.recorded_agents, record
    )
    round_changes = RoundChanges(
        round_number,
        now,
        agent_changes,
        proxies,
        agents_to_save=_select_persistent_rows(previous_memory, memory, changed_memory),
        instance_changes=instance_changes,
        instance_evidence=instance_evidence,
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
            is_listing=record.presence_feed.is_listing,
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
        visible_part_of(spell) != visible_part_of(record.spells.get(index, InstanceSpell()))
        for index, spell in spells.items()
    ):
        events.append(InstancesChanged(cluster))
    return tuple(events)
