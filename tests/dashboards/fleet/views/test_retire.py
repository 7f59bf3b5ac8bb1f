"""The page that retires an agent, over a real record."""

from __future__ import annotations

import time
from typing import Any

import pytest
from celery import current_app
from django.test import Client

from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import ensure_default_cluster
from fleet.models.inventory import Agent
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.record import fill

pytestmark = pytest.mark.django_db
REASON = "scrapped"


@pytest.fixture
def task_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    tasks: list[str] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **_: tasks.append(name))
    return tasks


@pytest.fixture
def page(client: Client, person: MakeUser, record: Writer) -> str:
    """The page of the first agent, which is alive, in a browser of an operator."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    reauthenticate(client)
    return f"/agents/{record.agent_ids_and_names('default')[0][0]}/"


def test_retire_and_count_again(client: Client, page: str, task_names: list[str]) -> None:
    """A reason makes a word in the database, an entry in the log and a task; the page then offers the way back."""
    path = f"{page}retire/"
    assert f'href="{path}">Retire agent…</a>' in client.get(page).content.decode()
    assert "This agent is alive." in client.get(path).content.decode()
    form: dict[str, Any] = {"action": "retire", "reason": REASON, "sure": "on"}
    answer = client.post(path, form)
    assert answer.headers["Location"] == page
    assert Agent.objects.get().is_retired
    assert AuditEntry.objects.get().action == "agent.retire"
    assert task_names == ["fleet.tasks.apply_retired"]
    for html in (client.get(page).content.decode(), client.get(path).content.decode()):
        assert "Retired by <b>operator</b>" in html
        assert f"“{REASON}”" in html
        assert "takes effect with the next poll" in html
        assert "counts nowhere" not in html
    assert f'href="{path}">Reinstate agent…</a>' in client.get(page).content.decode()
    assert "Reinstate agent-1" in client.get(path).content.decode()
    assert client.post(path, {"action": "reinstate", "reason": REASON}).status_code == 302
    assert not Agent.objects.get().is_retired
    assert f'href="{path}">Retire agent…</a>' in client.get(page).content.decode()


def test_stranded_agent_is_shown_as_stranded_already(
    client: Client, person: MakeUser, record: Writer, task_names: list[str]
) -> None:
    """The third agent of the record is stranded now: the page names the state, and asks for the same proof."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    path = f"/agents/{record.agent_ids_and_names('default')[0][2]}/retire/"
    html = client.get(path).content.decode()
    assert "This agent is alive and stranded." in html
    assert "becomes stranded" not in html
    assert client.post(path, {"action": "retire", "reason": REASON}).context["form"].errors["sure"]
    assert task_names == []


@pytest.mark.parametrize(
    ("form", "field"),
    [({"reason": ""}, "reason"), ({"reason": "x"}, "reason"), ({"reason": REASON, "sure": ""}, "sure")],
)
def test_retire_requires_reason_and_confirmation(
    client: Client, page: str, task_names: list[str], form: dict[str, str], field: str
) -> None:
    """A reason is required, and for a live agent confirmation; otherwise nothing changes."""
    answer = client.post(f"{page}retire/", {"action": "retire", "sure": "on"} | form)
    assert answer.context["form"].errors[field]
    assert not Agent.objects.exists()
    assert task_names == []


def test_viewer_sees_no_action_and_is_refused(client: Client, page: str, person: MakeUser) -> None:
    """The link is not there, and the page is not theirs; of an agent that is unknown it says so."""
    assert client.get("/agents/nobody/retire/").status_code == 404
    client.force_login(person("viewer"))
    assert "/retire/" not in client.get(page).content.decode()
    assert client.get(f"{page}retire/").status_code == 403


def test_selected_agents_are_one_change(
    client: Client, page: str, record: Writer, task_names: list[str]
) -> None:
    """The form says how many are alive, and the change how many were retired."""
    ids, _ = record.agent_ids_and_names("default")
    query = f"agent={ids[0]}&agent={ids[1]}"
    html = client.get(f"/retirements/?{query}").content.decode()
    assert "Retire 2 agents" in html
    assert "of them are alive" in html
    form: dict[str, Any] = {"action": "retire", "agent": ids[:2], "count": "2", "reason": REASON}
    refusal = client.post("/retirements/", form)
    assert refusal.context["form"].errors["sure"]
    assert f'name="agents" value="{ids[0]}\n{ids[1]}"' in refusal.content.decode()
    answer = client.post("/retirements/", {**form, "sure": "on"})
    change = Change.objects.get()
    assert answer.headers["Location"] == f"/changes/{change.pk}/"
    assert (change.title, Agent.objects.filter(is_retired=True).count()) == ("Retire 2 agents", 2)
    assert task_names == ["fleet.tasks.apply_retired"]
    again = client.post("/retirements/", {**form, "sure": "on"})
    assert again.headers["Location"] == "/agents/"
    client.post("/retirements/", {**form, "action": "reinstate", "reason": "came back"})
    assert not Agent.objects.filter(is_retired=True).exists()


def test_more_agents_than_fit_into_an_address(client: Client, page: str, record: Writer) -> None:
    """A POST shows the form, changes nothing and is no attempt; its form carries all of them in one field."""
    ids, _ = record.agent_ids_and_names("default")
    response = client.post("/retirements/", {"action": "retire", "show": "1", "agents": "\n".join(ids[:3])})
    assert response.status_code == 200
    html = response.content.decode()
    assert "Retire 3 agents" in html
    assert "required" not in str(response.context["form"].errors)
    assert not AuditEntry.objects.exists()
    assert not Agent.objects.filter(is_retired=True).exists()
    form = {"action": "retire", "agents": "\n".join(ids[:3]), "count": "3", "reason": REASON, "sure": "on"}
    client.post("/retirements/", form)
    assert Agent.objects.filter(is_retired=True).count() == 3


def test_filter_that_matches_other_agents_now_is_asked_again(
    client: Client, page: str, task_names: list[str]
) -> None:
    """The number on the button is the number that is retired."""
    form = {"action": "retire", "q": "agent", "count": "99", "reason": REASON, "sure": "on"}
    answer = client.post("/retirements/", form)
    assert "Review the number and confirm again" in answer.content.decode()
    assert not Agent.objects.filter(is_retired=True).exists()


def test_empty_selection_is_explained(client: Client, page: str) -> None:
    """With the way back."""
    html = client.get("/retirements/?q=nobody").content.decode()
    assert "No agent is selected. Select agents in the list." in html


def test_selection_with_retired_agents_names_the_others(client: Client, page: str, record: Writer) -> None:
    """Title, button and result have the number of agents that change."""
    fill(record, [State.RETIRED, State.HEALTHY, State.HEALTHY, State.HEALTHY], as_of=time.time())
    ids, _ = record.agent_ids_and_names("default")
    query = "&".join(f"agent={agent_id}" for agent_id in ids[:3])
    html = client.get(f"/retirements/?{query}").content.decode()
    assert "Retire 2 agents</h1>" in html
    assert "1 of the 3 selected agents is retired already." in html
    html = client.get(f"/retirements/?action=reinstate&{query}").content.decode()
    assert "Reinstate 1 agent</h1>" in html
    assert "The others stay as they are." in html
    html = client.get(f"/retirements/?action=reinstate&agent={ids[1]}").content.decode()
    assert "None of the selected agents is retired." in html
    assert 'name="reason"' not in html
