"""The list of agents: its numbers beside the states, and the ids that match its filters."""

from __future__ import annotations

import time

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
    # Fresh however slow the first request is.
    fake_reader.as_of = time.time() + 600
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


def test_older_links_become_chips(page: Client) -> None:
    """Each with a link that removes it and leaves the others."""
    response = page.get("/agents/?state=stranded&proxy=proxy-2&sort=name")
    assert [chip.text for chip in response.context["chips"]] == ["state:stranded", "proxy:proxy-2"]
    assert response.context["chips"][0].removal_query == "q=proxy:proxy-2&sort=name"
    assert 'value="state:stranded proxy:proxy-2" data-filter' in response.content.decode()


def test_wrong_filter_stays_in_the_field(page: Client) -> None:
    """Beside the sentence, and without rows: no action takes agents that nobody meant."""
    response = page.get("/agents/?q=state:stranded+age:5m")
    assert (response.status_code, response.context["rows"]) == (400, [])
    text = response.content.decode()
    assert 'value="age:5m"' in text
    assert "Compare the time in the present state: age:&gt;5m or age:&lt;1h." in text
    assert "correct the filter “age:5m”" in text


def test_suggestions(page: Client) -> None:
    """Beside valid filters; a text too long to be a filter has none."""
    response = page.get("/agent-filters.json", {"q": "proxy:proxy-2", "text": "state:str"})
    assert response.json() == {
        "suggestions": [{"text": "state:stranded", "label": "state:stranded", "hint": "", "count": 1}]
    }
    assert page.get("/agent-filters.json", {"text": "a" * 201}).json() == {"suggestions": []}
    assert page.get("/agent-filters.json", {"q": "state:x"}).status_code == 400


def test_groups_instead_of_rows(page: Client) -> None:
    """Each leads to its agents; there is nothing to select. The query bar keeps the grouping."""
    response = page.get("/agents/?group=proxy&q=agent")
    text = response.content.decode()
    assert [group.name for group, _ in response.context["group_rows"]] == ["proxy-2", "proxy-1"]
    assert 'href="?q=agent+proxy:proxy-2"' in text
    assert '<input type="hidden" name="group" value="proxy">' in text
    assert not response.context["can_select"]
    assert page.get("/agents/?group=size").status_code == 400


def test_columns_are_kept_by_cookie(page: Client) -> None:
    """The menu leads back to a short address; none is a choice, too; downloads have the same columns."""
    response = page.get("/agents/?keep_columns=1&columns=none&columns=version&q=agent&sort=name")
    assert response["Location"] == "/agents/?q=agent&sort=name"
    response = page.get("/agents/?q=agent")
    text = response.content.decode()
    assert response.context["column_choice"].shown_slugs == {"version"}
    assert 'data-label="Version"' in text
    assert 'data-label="Auth"' not in text
    assert response.context["csv_url"] == "/agents.csv?q=agent&columns=version"
    page.get("/agents/?keep_columns=1&columns=none")
    text = page.get("/agents/").content.decode()
    assert 'class="why"' not in text
    assert 'data-label="Labels"' not in text


def test_list_says_when_its_data_is_out_of_date(page: Client, fake_reader: FakeReader) -> None:
    """Beside the number of agents, all of which are unknown then."""
    assert "The data is out of date." not in page.get("/agents/").content.decode()
    fake_reader.as_of = time.time() - 3600
    response = page.get("/agents/")
    assert "4</b> matching agents. The data is out of date." in response.content.decode()
    assert dict(response.context["counts"])[State.UNKNOWN] == 4
