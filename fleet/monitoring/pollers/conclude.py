"""Conclude a round: read the record, judge every agent in one pass, and write what changed, with one winner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify import (
    FleetFrame,
    changed,
    classify_columns,
    count_states,
    health_of,
    prepare,
    remember,
)
from fleet.monitoring.columns import DISAGREEMENT, NO_INSTANCE
from fleet.monitoring.events import Delta, Event, InstancesChanged, LayoutChanged
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.report_schedule import to_ask, to_forget
from fleet.monitoring.state.codec import Header, Rows, Spell
from fleet.monitoring.state.outbox import BACKEND, CLUSTER, INSTANCE_TRANSITION, TRANSITION, Owed, pack_owed
from fleet.monitoring.state.record import Record
from fleet.monitoring.state.writer import Conclusion, Writer
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State

#: How often a conclusion starts over because an operator's word or another round came in between.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Judged:
    """A round's result, not written yet."""

    conclusion: Conclusion
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Concluded:
    """A round's result, written."""

    header: Header
    #: To be published, in this order.
    events: tuple[Event, ...]
    #: Seconds, by step: `read`, `classify`, `record`.
    took: Mapping[str, float]


def conclude(
    writer: Writer, cluster: str, number: int, *, now: float, timing: Timing, clock: Callable[[], float]
) -> Concluded | None:
    """Conclude round `number` at `now`; None when it, or a newer one, was concluded already.

    `clock` only measures. Raises RecordLost, StateUnavailable.
    """
    for _ in range(_TRIES):
        started = clock()
        record = writer.load(cluster)
        if record.header.round >= number:
            return None
        read = clock()
        judged = judge(record, number, now, timing)
        classified = clock()
        if writer.commit(cluster, record, judged.conclusion):
            took = {"read": read - started, "classify": classified - read, "record": clock() - classified}
            return Concluded(header=judged.conclusion.header, events=judged.events, took=took)
    return None


def judge(record: Record, number: int, now: float, timing: Timing) -> Judged:
    """Work out what a round concludes from the record. Pure."""
    frame = prepare(record.fleet(now, timing), now)
    columns = (record.heartbeats, record.tunnel_agents, record.tunnel_proxies)
    heartbeats, agents, proxies = columns
    memory = remember(record.memory, heartbeats, agents, proxies, now, frame).memory
    previous = record.verdicts[: record.header.rows]
    verdicts = classify_columns(heartbeats, memory, agents, proxies, frame, now, previous)
    moved = changed(previous, verdicts)
    before = record.memory[: record.header.rows]
    remembered = _changed_rows(before, memory)
    spells = _spells(record, frame, now)
    counts = count_states(verdicts["state"])
    header = Header(
        epoch=record.epoch,
        rows=len(verdicts),
        seq=record.header.seq + (1 if len(moved) else 0),
        round=number,
        as_of=now,
        interval=timing.round_interval,
        homed=int(np.count_nonzero(memory["home"] != NO_INSTANCE)),
        instances=len(record.instances),
        counts=tuple(counts[state] for state in State),
    )
    owed = Owed(
        number,
        now,
        _transitions(previous, verdicts, moved),
        _lasting(before, memory, remembered),
        _turns(record.spells, spells),
    )
    conclusion = Conclusion(
        header=header,
        verdicts=verdicts,
        verdicts_changed=_changed_rows(previous, verdicts),
        memory=memory,
        memory_changed=remembered,
        spells=spells,
        owed=pack_owed(owed),
        ask=to_ask(
            *(verdicts["state"], agents, proxies, record.told),
            number=number,
            now=now,
            interval=timing.round_interval,
        ),
        forget=to_forget(record.told, now),
    )
    return Judged(conclusion, _events(record, header, verdicts, moved, counts, spells))


def _changed_rows(before: Rows, after: Rows) -> npt.NDArray[np.uint32]:
    """Indices of rows that differ in any field, and of all new ones."""
    # As one run of words: comparing rows field by field, or the words of each row, takes ten times as long.
    words = after.dtype.itemsize // 4
    old = np.ascontiguousarray(before).view("<u4")
    new = np.ascontiguousarray(after).view("<u4")
    rows = np.flatnonzero(old != new[: len(old)]) // words
    differ = rows[np.flatnonzero(np.diff(rows, prepend=-1))]
    return np.concatenate([differ, np.arange(len(before), len(after))]).astype(np.uint32)


def _lasting(before: Rows, after: Rows, rows: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Those of the changed rows that differ in what outlives the record: the rounds of a disagreement do not."""
    old, new = (column[rows[rows < len(before)]] for column in (before, after))
    for column in (old, new):
        column["flags"] &= np.uint8(0xFF & ~DISAGREEMENT)
    return np.concatenate([rows[_changed_rows(old, new)], rows[rows >= len(before)]])


def _transitions(previous: Rows, verdicts: Rows, moved: npt.NDArray[np.intp]) -> Rows:
    before = np.full(len(moved), State.UNKNOWN, np.uint8)
    known = moved < len(previous)
    before[known] = previous["state"][moved[known]]
    rows: Rows = np.zeros(len(moved), TRANSITION)
    rows["agent"], rows["old"] = moved, before
    rows["new"], rows["cause"] = verdicts["state"][moved], verdicts["cause"][moved]
    rows["packed"] = verdicts["packed"][moved]
    found: Rows = rows[rows["old"] != rows["new"]]
    return found


def _spells(record: Record, frame: FleetFrame, now: float) -> dict[int, Spell]:
    """Spells that differ from those of the round before."""
    found = {}
    for index, standing in frame.standings.items():
        before = record.spells.get(index, Spell())
        health, draining = health_of(standing.facts, now, frame.timing), bool(standing.facts.watch.draining)
        if frame.blind:
            # What fails may be our own network.
            spell = replace(before, state=InstanceState.UNKNOWN)
        elif standing.sick:
            spell = Spell(standing.state, standing.since, health, draining)
        elif standing.state is InstanceState.UNKNOWN:
            # Not looked at lately: it may be sick still.
            spell = replace(before, state=InstanceState.UNKNOWN)
        else:
            spell = Spell(standing.state, None, health, draining)
        if spell != before:
            found[index] = spell
    for index, failed in ((BACKEND, frame.backend_down), (CLUSTER, frame.unreachable)):
        before = record.spells.get(index, Spell())
        spell = _whole(before, failed=failed, blind=frame.blind, now=now)
        if spell != before:
            found[index] = spell
    return found


def _whole(before: Spell, *, failed: bool, blind: bool, now: float) -> Spell:
    """The spell of what is no instance: it is silent or all right."""
    if blind:
        return replace(before, state=InstanceState.UNKNOWN)
    if not failed:
        return Spell(InstanceState.OK)
    return Spell(InstanceState.SILENT, now if before.sick_since is None else before.sick_since)


def _turns(before: Mapping[int, Spell], after: Mapping[int, Spell]) -> Rows:
    """INSTANCE_TRANSITION rows of the spells that have another state now."""
    turned = [
        (index, old, spell.state)
        for index, spell in after.items()
        if (old := before.get(index, Spell()).state) != spell.state
    ]
    return np.array(turned, INSTANCE_TRANSITION)


def _events(
    record: Record,
    header: Header,
    verdicts: Rows,
    moved: npt.NDArray[np.intp],
    counts: Mapping[State, int],
    spells: Mapping[int, Spell],
) -> tuple[Event, ...]:
    cluster, events = record.cluster, list[Event]()
    if len(moved):
        states = verdicts["state"][moved].tolist()
        changes = tuple((index, State(state)) for index, state in zip(moved.tolist(), states, strict=True))
        events.append(Delta(cluster, header.epoch, header.seq, header.as_of, changes, counts))
    if header.layout_version != record.header.layout_version:
        events.append(LayoutChanged(cluster, header.epoch, header.layout_version))
    if any(_shown(spell) != _shown(record.spells.get(index, Spell())) for index, spell in spells.items()):
        events.append(InstancesChanged(cluster))
    return tuple(events)


def _shown(spell: Spell) -> tuple[InstanceState, Health, bool]:
    """What of a spell people see."""
    return spell.state, spell.health, spell.draining
