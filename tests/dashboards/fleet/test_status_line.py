from __future__ import annotations

import time
from dataclasses import replace

import pytest
from django.test import Client

from dashboards.fleet.status_line import describe_status
from fleet.alerts.causes import UninhibitedCause
from fleet.monitoring.views import Summary
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader
from tests.fakes.status_lines import STATUS_CASES, StatusCase


def summary_of(case: StatusCase) -> Summary:
    """Return the summary of a fleet with these numbers of agents."""
    return Summary("default", 1.0, 1.0, stale=False, counts=case.counts, agent_count=0, instance_count=0)


@pytest.mark.parametrize("case", STATUS_CASES, ids=lambda case: case.text)
def test_status_names_the_causes_of_the_worst_state_apart(case: StatusCase) -> None:
    """Other causes follow in a sentence of their own; nothing is said to be well that is not known."""
    status_line = describe_status(summary_of(case), case.causes)
    assert (status_line.state, status_line.text) == (case.state, case.text)


def test_status_without_current_data_is_unknown() -> None:
    """Neither before the first poll nor after polling has stopped."""
    summary = summary_of(STATUS_CASES[0])
    causes = (UninhibitedCause("proxy/1", "proxy-1 is not responding", frozenset({State.STRANDED})),)
    none_yet, stale = (
        describe_status(summary, causes)
        for summary in (replace(summary, as_of=None), replace(summary, stale=True))
    )
    assert none_yet.text == "No data yet: Refloat has not completed a poll of the fleet."
    assert stale.text == "Agent states are unknown: the data is too old."
    assert (none_yet.state, stale.state) == (State.UNKNOWN, State.UNKNOWN)


@pytest.mark.django_db
def test_status_is_on_the_page_before_the_first_message(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """As the script writes it from then on."""
    client.force_login(person("viewer"))
    fake_reader.states, fake_reader.as_of = [State.STRANDED, State.UNKNOWN], time.time()
    assert 'id="status-line">1 agent stranded.' in client.get("/").content.decode()
    fake_reader.states = [State.UNKNOWN] * 2
    html = client.get("/").content.decode()
    assert 'id="status-line">Agent states are unknown.' in html
    assert "No stranded agents" not in html
