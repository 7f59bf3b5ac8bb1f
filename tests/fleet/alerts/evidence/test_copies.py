from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
from django.db import IntegrityError

from fleet.alerts.alerting_loops import prune
from fleet.alerts.evaluator import Evaluator
from fleet.alerts.evidence.copies import EvidenceCopies, read_agent_ids, read_copy_mark, read_evidence
from fleet.alerts.evidence.evidence import EvidenceError
from fleet.alerts.facts import AffectedAgents
from fleet.models.incidents import Incident, IncidentEvidence
from fleet.monitoring.state.reader import Reader
from fleet.vocabulary import incidents as incident_values
from fleet.vocabulary.incidents import IncidentState
from fleet.vocabulary.verdicts import State
from tests.fakes.alerting import AUTH, BACKEND, PROXY
from tests.fakes.reader import FakeReader
from tests.fleet.alerts.test_evaluator import EvaluatorScenario

pytestmark = pytest.mark.django_db


def _read_names() -> tuple[str, ...]:
    evidence = read_evidence(Incident.objects.get(cause_kind="proxy").pk)
    return () if evidence is None else evidence.names


def test_resolved_incident_keeps_the_agents_of_its_peak() -> None:
    """Not those of the last evaluation before the recovery, and not those of the first one."""
    scenario = EvaluatorScenario()
    for stranded_count in (8, 20, 12):
        scenario.run(60, stranded_count=stranded_count)
    peak_at = scenario.now - 60
    scenario.run(1200)
    incident = Incident.objects.get(cause_kind="proxy")
    assert incident.state == "resolved"
    evidence = read_evidence(incident.pk)
    assert evidence is not None
    assert evidence.names == scenario.reader.table("default", scenario.now).names[:20]
    assert read_agent_ids(incident.pk) == evidence.ids
    assert (evidence.affected_count, evidence.stranded_count) == (20, 20)
    assert peak_at - 60 <= evidence.taken_at <= peak_at


def test_copy_of_a_short_peak_is_written_when_the_incident_recovers() -> None:
    """The number grew a moment after the first copy was written, and the process wrote nothing since."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=8)
    before = IncidentEvidence.objects.get().taken_at
    scenario.run(20, stranded_count=8)
    assert IncidentEvidence.objects.get().taken_at == before
    scenario.run(5, stranded_count=9)
    scenario.run(5)
    assert Incident.objects.get(cause_kind="proxy").state == "recovering"
    assert len(_read_names()) == 9


def test_incident_that_grows_is_not_written_at_each_evaluation() -> None:
    """Once when it fires, then every 15 s at most, also if nothing else changes any more."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=8)
    scenario.run(5, stranded_count=9)
    assert len(_read_names()) == 9
    scenario.run(5, stranded_count=10)
    assert len(_read_names()) == 9
    scenario.run(30, stranded_count=10)
    assert len(_read_names()) == 10


def test_process_that_takes_over_keeps_a_larger_copy() -> None:
    """The stored copy has more agents than are affected now."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=20)
    scenario.now += 60  # the lease of the first process expires
    scenario.evaluator = Evaluator(cast("Reader", scenario.reader), "other", "")
    scenario.run(60, stranded_count=9)
    assert len(_read_names()) == 20
    scenario.run(60, stranded_count=25)
    assert len(_read_names()) == 25


def test_fault_of_a_copy_delays_no_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notification is sent, and the incident has no copy."""

    def fail(*_: object) -> None:
        raise ValueError("no copy")

    monkeypatch.setattr("fleet.alerts.evidence.copies.copy_evidence", fail)
    scenario = EvaluatorScenario()
    scenario.run(90, stranded_count=20)
    assert scenario.delivery_kinds == ["firing"]
    incident = Incident.objects.get(cause_kind="proxy")
    assert read_evidence(incident.pk) is read_copy_mark(incident.pk) is None
    assert read_agent_ids(incident.pk) == ()


def test_copy_is_deleted_with_its_incident() -> None:
    """When the incident's retention ends."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=8)
    scenario.run(1200)
    assert IncidentEvidence.objects.count() == 1
    prune(scenario.now + 1)
    assert not IncidentEvidence.objects.exists()


def test_incident_has_one_copy() -> None:
    """A second row is refused by the database; a damaged one is an error with words."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=8)
    stored = IncidentEvidence.objects.get()
    stored.content = b"damaged"
    stored.save()
    with pytest.raises(EvidenceError, match="damaged"):
        read_evidence(stored.incident_id)
    with pytest.raises(IntegrityError):
        IncidentEvidence.objects.create(
            incident_id=stored.incident_id, taken_at=1.0, affected_count=1, stranded_count=1, content=b""
        )


def test_copies_that_an_evaluation_left_are_taken_by_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nothing else changes meanwhile."""
    monkeypatch.setattr("fleet.alerts.evidence.copies._MAX_COPIES", 1)
    incidents = [
        incident_values.Incident("default", cause, 1, IncidentState.PENDING, 1.0, affected_count=1)
        for cause in (PROXY, AUTH, BACKEND)
    ]
    table = FakeReader([State.HEALTHY] * 4, as_of=1.0).table("default", 1.0)
    copies, copied_keys = EvidenceCopies(), []

    def copy(_: AffectedAgents, key: str) -> npt.NDArray[np.intp]:
        copied_keys.append(key)
        return np.array([0])

    monkeypatch.setattr(AffectedAgents, "indices_of", copy)
    for _ in incidents:
        copies.take(incidents, table, lambda indices: [None for _ in indices])
    assert copied_keys == [incident.key for incident in incidents]
    assert not copies.has_remaining
