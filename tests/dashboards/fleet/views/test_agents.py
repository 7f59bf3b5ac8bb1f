"""The list of agents: its numbers beside the states, and the ids that match its filters."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.models.clusters import ensure_default_cluster
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser of an operator; four agents on two proxies, one of them stranded."""
    ensure_default_cluster()
    fake_reader.states = [State.HEALTHY, State.STRANDED, State.HEALTHY, State.HEALTHY]
    client.force_login(person("operator"))
    return client


def test_numbers_beside_the_states_are_those_of_the_other_filters(page: Client) -> None:
    """A checked state does not change them: they say what checking another one would add."""
    counts = dict(page.get("/agents/?q=agent-1&state=healthy").context["counts"])
    assert (counts[State.STRANDED], counts[State.HEALTHY]) == (1, 0)
    assert dict(page.get("/agents/").context["counts"])[State.HEALTHY] == 3
    assert dict(page.get("/agents/?q=state:").context["counts"])[State.HEALTHY] == 3


def test_ids_of_the_matching_agents(page: Client, fake_reader: FakeReader) -> None:
    ids = fake_reader.table("default", 0.0).ids
    assert page.get("/agent-ids.json?state=stranded").json() == {"ids": [ids[1]]}
    assert len(page.get("/agent-ids.json").json()["ids"]) == 4
    assert page.get("/agent-ids.json?q=state:").status_code == 400
