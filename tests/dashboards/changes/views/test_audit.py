"""The log as a page and as files: filtered, complete, and safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json

import pytest
from django.test import Client
from django.utils import timezone

from fleet.audit import Attempt, write_entry
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.changes import SYSTEM_ACTOR, Actor, ActorKind
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client: Client, person: MakeUser) -> Client:
    """A user who may read the log, and three rows."""
    now = timezone.now()
    alice = Actor(ActorKind.PERSON, "alice", 1)
    write_entry(
        Attempt(alice, "x.plan", "default", "=1+1", after={"a": 1}, request_id="req-7"), "succeeded", now
    )
    write_entry(Attempt(alice, "x.confirm", "default", "big", detail="no reason"), "refused", now)
    write_entry(Attempt(SYSTEM_ACTOR, "x.seen", "other", "elsewhere"), "succeeded", now)
    client.force_login(person("operator"))
    return client


def test_filter_by_text_outcome_and_actor(operator: Client) -> None:
    """Of this cluster only, newest first."""

    def actions(query: str) -> list[str]:
        return [entry.action for entry in operator.get(f"/audit/{query}").context["entries"]]

    assert actions("") == ["x.confirm", "x.plan"]
    assert actions("?outcome=refused") == ["x.confirm"]
    assert actions("?q=alice+req-7") == ["x.plan"]
    assert actions("?kind=system") == []
    assert actions("?days=1&outcome=nonsense&before=x&q=%00") == ["x.confirm", "x.plan"]


def test_error_texts_are_short(operator: Client) -> None:
    """The log shows them as other pages do; the files have the original."""
    error = "unavailable: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: Connection refused"
    write_entry(Attempt(SYSTEM_ACTOR, "x.run", "default", "proxy-1", detail=error), "failed", timezone.now())
    html = operator.get("/audit/?outcome=failed").content.decode()
    assert '<div class="quiet">connection refused <details class="error-details">' in html
    assert error in operator.get("/audit.csv?outcome=failed").content.decode()


def test_older_pages(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page at a time, by a link that keeps the filter."""
    monkeypatch.setattr("dashboards.changes.views.audit.PAGE_SIZE", 1)
    first = operator.get("/audit/?kind=person")
    assert [entry.action for entry in first.context["entries"]] == ["x.confirm"]
    second = operator.get(f"/audit/{first.context['older_url']}")
    assert [entry.action for entry in second.context["entries"]] == ["x.plan"]
    assert second.context["older_url"] == ""


def test_export_as_csv_and_json(operator: Client) -> None:
    """The same rows; no cell is a formula."""
    rows = list(csv.DictReader(io.StringIO(operator.get("/audit.csv?q=x.plan").content.decode())))
    assert [(row["subject"], json.loads(row["after"])) for row in rows] == [("'=1+1", {"a": 1})]
    lines = operator.get("/audit.jsonl").content.decode().splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["x.confirm", "x.plan"]


def test_viewer_may_not(client: Client, person: MakeUser) -> None:
    """It names people."""
    client.force_login(person("viewer"))
    assert [client.get(path).status_code for path in ("/audit/", "/audit.csv", "/audit.jsonl")] == [403] * 3


def test_rows_of_no_cluster_are_for_readers_without_a_limit(
    operator: Client, make_limited_user: MakeUser, client: Client
) -> None:
    """On the page and in both files."""
    write_entry(Attempt(SYSTEM_ACTOR, "token.create", subject="of all"), "succeeded", timezone.now())
    assert "of all" in operator.get("/audit/").content.decode()
    client.force_login(make_limited_user("operator"))
    for path in ("audit/", "audit.csv", "audit.jsonl"):
        text = client.get(f"/c/other/{path}").content.decode()
        assert "elsewhere" in text
        assert "of all" not in text


def test_filter_by_actor_object_group_change_and_time(operator: Client) -> None:
    """All of them together; invalid ones are ignored."""
    alice = Actor(ActorKind.PERSON, "alice", 1)
    attempt = Attempt(
        alice, AuditAction.AGENT_RETIRE, "default", "agent-66", after={"agent": "id-66"}, change_id=9
    )
    write_entry(attempt, AuditOutcome.SUCCEEDED, timezone.now())

    def subjects(query: str) -> list[str]:
        return [entry.subject for entry in operator.get(f"/audit/{query}").context["entries"]]

    assert subjects("?object=agent-66&actor=ali&group=agents&change=9") == ["agent-66"]
    assert subjects("?object=id-66") == ["agent-66"]
    assert subjects("?group=policies") == []
    assert subjects("?actor=bob") == []
    assert subjects("?until=2020-01-01") == []
    assert len(subjects("?since=2020-01-01T00:00&group=nonsense&change=x&until=soon")) == 3
    html = operator.get("/audit/?object=agent-66").content.decode()
    assert '<a href="/agents/id-66/">agent-66</a>' in html
    assert '<a href="/changes/9/">change 9</a>' in html
