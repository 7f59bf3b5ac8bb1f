"""The log as a page and as files: filtered, complete, and safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json

import pytest
from django.test import Client
from django.utils import timezone

from fleet.audit import Attempt, write_entry
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster, ensure_default_cluster
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
    assert [
        client.get(path).status_code for path in ("/audit/", "/audit/1/", "/audit.csv", "/audit.jsonl")
    ] == [403] * 4


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
    """All of them together; invalid ones are ignored, except for times."""
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
    assert subjects("?until=2020-01-01&days=1") == []
    assert len(subjects("?since=2020-01-01T00:00&group=nonsense&change=x&until=2999-01-01+10:14")) == 3
    today = f"{timezone.now():%Y-%m-%d}"
    assert len(subjects(f"?since={today}&until={today}")) == 3
    html = operator.get("/audit/?object=agent-66").content.decode()
    assert '<a href="/agents/id-66/">agent-66</a>' in html
    assert '<a href="/changes/9/">change 9</a>' in html


@pytest.mark.parametrize(
    ("since", "until", "sentence"),
    [
        ("yesterday", "", "Invalid time &#x27;yesterday&#x27;: write it like 2026-11-23 10:14"),
        ("", "2026-13-01", "Invalid time &#x27;2026-13-01&#x27;"),
        ("0001-01-01T00:00+23:00", "", "Invalid time"),
        ("2026-11-24", "2026-11-23 10:14", "The range ends before it starts"),
    ],
)
def test_invalid_times_are_explained_and_kept(
    operator: Client, since: str, until: str, sentence: str
) -> None:
    """No entries: the unfiltered log would be taken for the filtered one. Nor are there files or an API response."""
    parameters = {"since": since, "until": until, "actor": "alice"}
    response = operator.get("/audit/", parameters)
    html = response.content.decode()
    assert response.status_code == 400
    assert sentence in html
    assert "alert" in html
    assert [f'value="{text}"' in html for text in (since, until, "alice")] == [True] * 3
    assert response.context["entries"] == []
    answer = operator.get("/audit.csv", parameters)
    assert answer.status_code == 400
    assert answer.content.decode().startswith(("since: ", "until: "))
    assert operator.get("/audit.jsonl", parameters).status_code == 400


def test_ranges_that_end_now_keep_the_other_filters(operator: Client) -> None:
    """Each is a link; start and end that were typed are left out."""
    response = operator.get("/audit/?actor=ali&since=2020-01-01&before=99")
    assert response.context["time_ranges"] == [
        ("24 h", "actor=ali&days=1", False),
        ("7 days", "actor=ali&days=7", False),
        ("30 days", "actor=ali&days=30", False),
        ("All time", "actor=ali", False),
    ]
    ranges = operator.get("/audit/?days=7").context["time_ranges"]
    assert [label for label, _, is_selected in ranges if is_selected] == ["7 days"]


def _write_retirement() -> int:
    actor = Actor(ActorKind.PERSON, "alice", 1)
    attempt = Attempt(
        actor,
        AuditAction.AGENT_RETIRE,
        "default",
        "agent-66",
        before={"agent": "id-66", "is_retired": False},
        after={"agent": "id-66", "is_retired": True},
        change_id=9,
        reason="scrapped",
        request_id="req-8",
    )
    write_entry(attempt, AuditOutcome.SUCCEEDED, timezone.now())
    return AuditEntry.objects.latest("pk").pk


def test_entry_has_a_page(operator: Client) -> None:
    """The list links it: sentence, actor, time, object, values, reason, change."""
    entry_id = _write_retirement()
    assert f'<a href="/audit/{entry_id}/">' in operator.get("/audit/").content.decode()
    html = operator.get(f"/audit/{entry_id}/").content.decode()
    assert "alice retired agent-66</h1>" in html
    assert '<a href="/agents/id-66/">agent-66</a>' in html
    assert "“scrapped”" in html
    assert "req-8" in html
    assert '<p class="diff-key">is_retired</p>' in html
    assert "Change 9 <span" in html, "the change was deleted"
    Change.objects.create(pk=9, cluster=ensure_default_cluster(), kind="retire", state="verified", title="t")
    assert '<a href="/changes/9/">Change 9</a>' in operator.get(f"/audit/{entry_id}/").content.decode()


@pytest.mark.parametrize("entry_id", [0, 2**63, 10**30])
def test_unknown_entry_is_not_found(operator: Client, entry_id: int) -> None:
    """With its number and the cluster; however large the number is."""
    response = operator.get(f"/audit/{entry_id}/")
    assert response.status_code == 404
    sentence = f"Entry {entry_id} was not found in the audit log of cluster default."
    assert sentence in response.content.decode()


def test_entry_of_another_cluster_is_not_found(operator: Client) -> None:
    """Each cluster has its own log."""
    Cluster.objects.create(id="other", name="other")
    entry_id = AuditEntry.objects.get(cluster="other").pk
    assert operator.get(f"/audit/{entry_id}/").status_code == 404
    assert operator.get(f"/c/other/audit/{entry_id}/").status_code == 200


def test_entry_of_no_cluster_is_for_readers_without_a_limit(
    operator: Client, make_limited_user: MakeUser, client: Client
) -> None:
    """As in the list."""
    write_entry(Attempt(SYSTEM_ACTOR, "token.create", subject="of all"), "succeeded", timezone.now())
    limited_user = make_limited_user("operator")
    path = f"/c/other/audit/{AuditEntry.objects.latest('pk').pk}/"
    assert operator.get(path).status_code == 200
    client.force_login(limited_user)
    assert client.get(path).status_code == 404
