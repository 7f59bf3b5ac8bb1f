from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from fleet.alerts.evidence.evidence import (
    MAX_AGENTS,
    CopyMark,
    EvidenceError,
    agent_views_of,
    copy_evidence,
    count_agents_by_pair,
    has_grown,
    is_copy_due,
    pack_evidence,
    table_of_evidence,
    unpack_agent_ids,
    unpack_evidence,
)
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import Incident, IncidentState
from fleet.vocabulary.verdicts import NO_CAUSE, Reason, Recovery, State, VerdictSentences
from tests.fakes.alerting import PROXY
from tests.fakes.reader import FakeReader

_NOW = 1_800_000_000.0


def _make_table(*states: State) -> FleetTable:
    table = FakeReader(list(states), as_of=_NOW).table("default", _NOW)
    is_affected = np.isin(table.verdicts["state"], (State.STRANDED, State.AT_RISK))
    table.verdicts["cause"] = np.where(is_affected, 2, NO_CAUSE)
    table.verdicts["reason_and_recovery"] = Reason.PROXY_UNHEALTHY | Recovery.BY_ITSELF << 5
    table.verdicts["since"], table.verdicts["recovers_at"] = _NOW - 7.5, _NOW + 60
    return table


def _make_incident(
    affected_count: int, *, peak_count: int | None = None, stranded_count: int = 0
) -> Incident:
    return Incident(
        "default", PROXY, 1, IncidentState.FIRING, _NOW,
        affected_count=affected_count, peak_count=peak_count or affected_count, worst_stranded_count=stranded_count,
    )  # fmt: skip


def test_copy_has_the_affected_agents_stranded_ones_first() -> None:
    """With all that the list of affected agents shows, and without the other agents."""
    table = _make_table(State.HEALTHY, State.AT_RISK, State.STRANDED, State.AT_RISK)
    evidence = copy_evidence(
        table,
        np.array([1, 2, 3]),
        lambda indices: [
            VerdictSentences(f"Agent {index} lost its proxy.", "It recovers.") for index in indices
        ],
    )
    assert evidence.names == (table.names[2], table.names[1], table.names[3])
    assert (evidence.affected_count, evidence.stranded_count, evidence.taken_at) == (3, 1, _NOW)
    view = next(agent_views_of(evidence, [0]))
    assert (view.id, view.state, view.verdict.reason) == (
        table.ids[2],
        State.STRANDED,
        Reason.PROXY_UNHEALTHY,
    )
    assert view.verdict.recovery is Recovery.BY_ITSELF
    assert view.verdict.recovers_at == _NOW + 60
    assert view.verdict.sentences == ("Agent 2 lost its proxy.", "It recovers.")
    assert (view.since, view.verdict.cause, view.proxies) == (_NOW - 8, "proxy-id-1", ("proxy-id-1",))
    assert (view.home_proxy, view.heartbeat_at) == ("proxy-id-1", None)


def test_copy_survives_packing() -> None:
    """Every row, sentence, instance and total."""
    table = _make_table(*[State.STRANDED, State.AT_RISK, State.HEALTHY] * 20)
    affected = np.flatnonzero(table.verdicts["state"] != State.HEALTHY)
    evidence = copy_evidence(
        table,
        affected,
        lambda indices: [VerdictSentences(f"Sentence {index % 2}.", "It recovers.") for index in indices],
    )
    unpacked = unpack_evidence(pack_evidence(evidence))
    assert (unpacked.rows == evidence.rows).all()
    assert replace(unpacked, rows=evidence.rows, instances=evidence.instances) == evidence
    assert [*agent_views_of(unpacked, range(40))] == [*agent_views_of(evidence, range(40))]
    assert {index: facts.name for index, facts in unpacked.instances.items()} == {
        index: facts.name for index, facts in evidence.instances.items()
    }


def test_ids_are_unpacked_alone() -> None:
    """Whether they are the names of the agents or not."""
    evidence = copy_evidence(
        _make_table(State.STRANDED, State.AT_RISK), np.array([0, 1]), lambda indices: [None for _ in indices]
    )
    for ids in (evidence.names, ("a", "b")):
        assert unpack_agent_ids(pack_evidence(replace(evidence, ids=ids))) == ids


def test_copy_of_an_earlier_version_has_both_sentences_in_one() -> None:
    """Copies of old incidents stay readable."""
    evidence = copy_evidence(
        _make_table(State.STRANDED),
        np.array([0]),
        lambda indices: [VerdictSentences("A. B.") for _ in indices],
    )
    earlier = zlib.compress(
        zlib.decompress(pack_evidence(evidence)).replace(b'[["A. B.",""]]', b'["A. B."]     ')
    )
    assert unpack_evidence(earlier).sentences == (("A. B.", ""),)


def test_copied_agents_as_a_table_are_those_of_the_fleet() -> None:
    """Presenters of live agents count the same on either."""
    table = _make_table(State.STRANDED, State.AT_RISK, State.HEALTHY)
    evidence = copy_evidence(table, np.array([0, 1]), lambda indices: [None for _ in indices])
    copied_table = table_of_evidence(evidence)
    assert copied_table.as_of == _NOW
    assert copied_table.verdicts["state"].tolist() == [State.STRANDED, State.AT_RISK]
    assert count_agents_by_pair(copied_table, np.arange(2)) == count_agents_by_pair(table, np.array([0, 1]))
    assert sum(evidence.agent_count_by_pair.values()) == 3


def test_agent_without_an_explanation_has_its_reason() -> None:
    """The evidence may have changed since the round that concluded the verdict."""
    evidence = copy_evidence(
        _make_table(State.STRANDED), np.array([0]), lambda indices: [None for _ in indices]
    )
    assert evidence.sentences == (("Proxy failing.", ""),)


def test_copy_of_a_large_incident_is_bounded() -> None:
    """Agents beyond the limit are counted, not copied."""
    table = _make_table(*[State.STRANDED] * (MAX_AGENTS + 5))
    evidence = copy_evidence(
        table,
        np.arange(MAX_AGENTS + 5),
        lambda indices: [VerdictSentences("A proxy failed.") for _ in indices],
    )
    assert len(evidence.ids) == len(evidence.rows) == MAX_AGENTS
    assert evidence.affected_count == evidence.stranded_count == MAX_AGENTS + 5
    assert len(pack_evidence(evidence)) < 1_000_000


def test_times_outside_the_column_are_clipped() -> None:
    """A source may report any number."""
    table = _make_table(State.STRANDED)
    table.verdicts["recovers_at"], table.verdicts["since"] = 1e300, -5.0
    (view,) = agent_views_of(
        copy_evidence(table, np.array([0]), lambda indices: [None for _ in indices]), [0]
    )
    assert (view.since, view.verdict.recovers_at) == (None, 0xFFFFFFFF)


@pytest.mark.parametrize("blob", [b"", b"no zlib", zlib.compress(b"\0"), zlib.compress(b"\2\0\0\0{}")])
def test_damaged_copy_is_an_error_that_callers_expect(blob: bytes) -> None:
    """Not a KeyError on a page."""
    with pytest.raises(EvidenceError):
        unpack_evidence(blob)
    with pytest.raises(EvidenceError):
        unpack_agent_ids(blob)


@pytest.mark.parametrize(
    ("incident", "newest_mark", "expected"),
    [
        (_make_incident(0), None, False),
        (_make_incident(7), None, True),
        (_make_incident(7, stranded_count=2), CopyMark(7, 2, _NOW), False),
        (_make_incident(7, stranded_count=3), CopyMark(7, 2, _NOW), True),
        (_make_incident(8), CopyMark(7, 7, _NOW), True),
        (_make_incident(6, peak_count=9, stranded_count=9), CopyMark(6, 2, _NOW), False),
        (_make_incident(6, peak_count=9, stranded_count=9), CopyMark(5, 2, _NOW), True),
        (_make_incident(50_100), CopyMark(50_000, 0, _NOW - 1), False),
        (_make_incident(50_100), CopyMark(50_000, 0, _NOW - 15), True),
        (_make_incident(60_000), CopyMark(50_000, 0, _NOW - 1), True),
        (replace(_make_incident(7), state=IncidentState.RESOLVED), None, False),
    ],
)
def test_copy_is_due_when_more_agents_are_affected(
    incident: Incident, newest_mark: CopyMark | None, expected: bool
) -> None:
    """Or more of them are stranded; a large incident is copied at noticeable growth only."""
    is_due = has_grown(incident, newest_mark) and is_copy_due(incident, newest_mark, _NOW)
    assert is_due is expected
