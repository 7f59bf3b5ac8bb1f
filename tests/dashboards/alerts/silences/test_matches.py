from __future__ import annotations

import time

import pytest

from dashboards.alerts.silences.matches import find_text_matches, read_scope
from fleet.models.alerting import AgentSet
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.monitoring.state import StateUnavailableError
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


def _make_incidents(count: int) -> None:
    cluster = ensure_default_cluster()
    for number in range(count):
        Incident.objects.create(
            cluster=cluster, key=f"proxy/{number}", cause_kind="proxy", cause_id=str(number),
            cause_name=f"proxy-{number}", generation=1, state="firing", severity=2, opened_at=1.0,
        )  # fmt: skip


def test_thousands_of_agents_are_counted(fake_reader: FakeReader) -> None:
    """By pattern and by alternatives; agents of a set."""
    fake_reader.states[:] = [State.HEALTHY] * 10_000
    AgentSet.objects.create(cluster=ensure_default_cluster(), pattern="agent-1?", name="lab")
    scope = read_scope("default", time.time())
    counts = {
        text: find_text_matches(text, scope).agent_count
        for text in ("agent=agent-*", "agent=agent-1|agent-2", "agent!=agent-1|agent-2", "agent_set=lab|none")
    }
    assert list(counts.values()) == [10_000, 2, 9_998, 10]
    assert find_text_matches("agent=agent-*", scope).is_about_agents
    assert not find_text_matches("agent=agent-*", scope).is_everything


def test_incidents_are_listed_up_to_five(fake_reader: FakeReader) -> None:
    """The others are counted."""
    _make_incidents(7)
    matches = find_text_matches("kind=proxy", read_scope("default", time.time()))
    assert len(matches.listed_names) == 5
    assert matches.unlisted_count == 2
    names = find_text_matches("cause=proxy-3|proxy-4", read_scope("default", time.time())).names
    assert set(names) == {"proxy-3", "proxy-4"}


def test_errors_are_sentences(fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matchers that are not valid, and a record that cannot be read."""
    scope = read_scope("default", time.time())
    assert find_text_matches("colour=red", scope).error.startswith("Unknown field colour")

    def fail(*_arguments: object) -> None:
        raise StateUnavailableError("Redis is down")

    monkeypatch.setattr(fake_reader, "table", fail)
    matches = find_text_matches("", read_scope("default", time.time()))
    assert matches.error == "The fleet state cannot be read: Redis is down."
    assert matches.is_everything
