"""The page that retires an agent, over a real record."""

from __future__ import annotations

from typing import Any

import pytest
from celery import current_app
from django.test import Client

from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.inventory import Agent
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser, prove

pytestmark = pytest.mark.django_db
REASON = "scrapped"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    tasks: list[str] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **_: tasks.append(name))
    return tasks


@pytest.fixture
def page(client: Client, person: MakeUser, record: Writer) -> str:
    """The page of the first agent, which is alive, in a browser of an operator."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    prove(client)
    return f"/agents/{record.agent_ids('default')[0][0]}/"


def test_retire_and_count_again(client: Client, page: str, sent: list[str]) -> None:
    """A reason makes a word in the database, an entry in the log and a task; the page then offers the way back."""
    path = f"{page}retire/"
    assert f'href="{path}"' in client.get(page).content.decode()
    assert "This agent is alive." in client.get(path).content.decode()
    said: dict[str, Any] = {"wanted": "retire", "reason": REASON, "sure": "on"}
    answer = client.post(path, said)
    assert answer.headers["Location"] == page
    assert Agent.objects.get().retired
    assert AuditEntry.objects.get().action == "agent.retire"
    assert sent == ["fleet.tasks.apply_retired"]
    for shown in (client.get(page).content.decode(), client.get(path).content.decode()):
        assert "Retired by <b>operator</b>" in shown
        assert f"“{REASON}”" in shown
        assert "takes effect with the next poll" in shown
        assert "counts nowhere" not in shown
    assert "Reinstate agent-1" in client.get(path).content.decode()
    assert client.post(path, {"wanted": "unretire", "reason": REASON}).status_code == 302
    assert not Agent.objects.get().retired


def test_stranded_agent_is_not_said_to_strand_later(
    client: Client, person: MakeUser, record: Writer, sent: list[str]
) -> None:
    """The third agent of the record is stranded now: the page names the state, and asks for the same proof."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    path = f"/agents/{record.agent_ids('default')[0][2]}/retire/"
    shown = client.get(path).content.decode()
    assert "This agent is alive and stranded." in shown
    assert "becomes stranded" not in shown
    assert client.post(path, {"wanted": "retire", "reason": REASON}).context["form"].errors["sure"]
    assert sent == []


@pytest.mark.parametrize(
    ("said", "field"),
    [({"reason": ""}, "reason"), ({"reason": "x"}, "reason"), ({"reason": REASON, "sure": ""}, "sure")],
)
def test_what_is_needed(client: Client, page: str, sent: list[str], said: dict[str, str], field: str) -> None:
    """A reason, and for one that is alive that it is meant; else nothing is done."""
    answer = client.post(f"{page}retire/", {"wanted": "retire", "sure": "on"} | said)
    assert answer.context["form"].errors[field]
    assert not Agent.objects.exists()
    assert sent == []


def test_viewer_neither_sees_nor_does(client: Client, page: str, person: MakeUser) -> None:
    """The link is not there, and the page is not theirs; of an agent that is unknown it says so."""
    assert client.get("/agents/nobody/retire/").status_code == 404
    client.force_login(person("viewer"))
    assert "/retire/" not in client.get(page).content.decode()
    assert client.get(f"{page}retire/").status_code == 403
