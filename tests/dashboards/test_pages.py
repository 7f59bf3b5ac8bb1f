"""Pages over a real record: their content and their number of queries."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from dashboards.shared import record_reader
from fleet.models.access import ClusterLimit
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster
from fleet.monitoring.agent_report import AgentReportResponse, parse_agent_report
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer
from fleet.protocol.destination.health import DrainRequest, Health
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.history_rows import create_agent_change
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client, person: MakeUser) -> Client:
    """A browser in which a viewer is signed in."""
    client.force_login(person("viewer"))
    return client


def test_fleet_now_over_a_real_record(viewer: Client, record: Writer) -> None:
    """Counts, instances and the age are on the page."""
    page = viewer.get("/").content.decode()
    assert 'data-count="stranded">1<' in page
    assert "proxy-2" in page
    assert 'data-age-ms="' in page


@pytest.mark.parametrize("state", [InstanceState.SILENT, InstanceState.UNKNOWN])
def test_tunnels_of_a_silent_proxy_are_shown_as_outdated(
    viewer: Client, fake_reader: FakeReader, state: InstanceState
) -> None:
    """What a proxy said long ago is not shown as present."""
    assert "(last known)" not in viewer.get("/").content.decode()
    fake_reader.proxy_state = state
    assert "<b>2</b> tunnels (last known)" in viewer.get("/").content.decode()


def test_declared_states_are_shown_instead_of_ok(viewer: Client, fake_reader: FakeReader) -> None:
    """On the card and in the table of an agent's tunnels; the state in the markup stays."""
    pages = [viewer.get("/").content.decode(), viewer.get("/agents/id-0/").content.decode()]
    assert ["</svg> degraded, draining</span>" in page for page in pages] == [False, False]
    fake_reader.proxy_changes = {
        "health": Health.DEGRADED,
        "health_sentence": "proxy-1 reports that it is degraded.",
        "drain_request": DrainRequest("maintenance", 1.0),
    }
    for page in (viewer.get("/").content.decode(), viewer.get("/agents/id-0/").content.decode()):
        assert '#shape-degraded"/></svg> degraded, draining</span>' in page
    assert 'data-instance="proxy-1" data-kind="proxy" data-state="ok"' in viewer.get("/").content.decode()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["agent-1", "agent-2", "agent-3", "agent-4"]),
        ("state=stranded&state=at_risk", ["agent-3", "agent-4"]),
        ("proxy=proxy-1", ["agent-1", "agent-3"]),
        ("proxy=proxy-1&state=stranded", ["agent-3"]),
        ("auth=auth-1&q=4", ["agent-4"]),
        ("q=-state:healthy", ["agent-3", "agent-4"]),
    ],
)
def test_agents_filtered(viewer: Client, record: Writer, query: str, names: list[str]) -> None:
    """The URL is the view: each filter shows exactly its agents."""
    answer = viewer.get(f"/agents/?{query}")
    assert [row.name for row in answer.context["rows"]] == names
    assert answer.context["total_count"] == len(names)


def test_agents_by_version_and_label(viewer: Client, fake_reader: FakeReader) -> None:
    """Labels link to the agents with the same label, on the agent's page too."""
    fake_reader.states = [State.HEALTHY] * 6
    answer = viewer.get("/agents/?q=label.env%3Adev+-version%3A1.*&sort=version")
    assert [row.name for row in answer.context["rows"]] == ["agent-2", "agent-5"]
    page = answer.content.decode()
    assert '<a href="/agents/?q=label.env%3Adev">env=dev</a>' in page
    assert "18.9.1" in page
    agent_page = viewer.get("/agents/id-2/").content.decode()
    assert '<a href="/agents/?q=label.site%3Aoslo">site=oslo</a>' in agent_page
    assert "not reported" in viewer.get("/agents/id-0/").content.decode()


def test_agents_wrong_filter_is_explained(viewer: Client, record: Writer) -> None:
    """A filter that cannot be read is a sentence on the page, not an empty list."""
    answer = viewer.get("/agents/?state=happy")
    assert answer.status_code == 400
    assert "Unknown state" in answer.content.decode()


def test_agents_page_by_page(viewer: Client, fake_reader: FakeReader) -> None:
    """Following the links sees every agent once and keeps the filter."""
    fake_reader.states = [State.HEALTHY, State.STRANDED] * 150
    agent_ids: list[str] = []
    url = "/agents/?state=stranded"
    while url:
        answer = viewer.get(url)
        agent_ids += [row.name for row in answer.context["rows"]]
        url = answer.context["next_url"]
    assert agent_ids == [f"agent-{index}" for index in range(1, 300, 2)]
    assert answer.context["first_url"] == "/agents/?q=state:stranded"


def test_agents_sorted(viewer: Client, record: Writer) -> None:
    """A head sorts, again the other way; filters stay; the page says how it is sorted."""
    answer = viewer.get("/agents/?q=agent&sort=-name")
    assert [row.name for row in answer.context["rows"]] == ["agent-4", "agent-3", "agent-2", "agent-1"]
    page = answer.content.decode()
    assert 'aria-sort="descending"' in page
    assert 'href="?q=agent&amp;sort=name"' in page
    assert 'href="/agents.csv?q=agent&amp;sort=-name&amp;columns=' in page
    assert viewer.get("/agents/?sort=size").status_code == 400


def _text(answer: Any) -> str:
    async def read() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return async_to_sync(read)().decode()


def test_agents_as_csv(viewer: Client, record: Writer) -> None:
    """The file has exactly the list's agents, in its order; a wrong filter is a sentence."""
    answer = viewer.get("/agents.csv?state=stranded&state=at_risk&sort=-name")
    assert answer["Content-Type"].startswith("text/csv")
    assert "attachment" in answer["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(_text(answer), newline="")))
    assert [(row["name"], row["state"]) for row in rows] == [("agent-4", "at_risk"), ("agent-3", "stranded")]
    document = json.loads(_text(viewer.get("/agents.json?state=stranded&state=at_risk&sort=-name")))
    assert [agent["name"] for agent in document["agents"]] == ["agent-4", "agent-3"]
    assert (document["filter"], document["sort"]) == ("state:stranded state:at_risk", "-name")
    assert viewer.get("/agents.json?state=happy").status_code == 400
    wrong = viewer.get("/c/default/agents.csv?state=happy")
    assert (wrong.status_code, b"Unknown state" in wrong.content) == (400, True)


def test_agent_with_its_evidence(viewer: Client, record: Writer) -> None:
    """One agent: its state, its tunnels, what the verdict rests on."""
    page = viewer.get("/agents/agent-3-id/").content.decode()
    assert "agent-3" in page
    assert "Heartbeat received by" in page
    card = viewer.get("/agents/agent-3-id/?card").content.decode()
    assert 'id="agent-card"' in card
    assert "<html" not in card
    assert viewer.get("/agents/nobody/").status_code == 404


def test_agent_report_is_shown(viewer: Client, record: Writer) -> None:
    """The report through its tunnel, the reason for its absence, or that none was requested."""
    epoch = record.epoch("default")
    assert epoch is not None
    index = record.agent_ids_and_names("default")[0].index("agent-3-id")
    proxy = next(facts for facts in record.load_instances("default").values() if facts.name == "proxy-1")
    assert "No recent report from this agent." in viewer.get("/agents/agent-3-id/").content.decode()
    record.write_agent_responses(
        "default", epoch, {index: AgentReportResponse(time.time(), proxy.index, None, "unavailable: gone")}
    )
    page = viewer.get("/agents/agent-3-id/").content.decode()
    assert "): unavailable: gone" in page
    assert (
        '</span>, through <a class="instance-name" href="/instances/proxy-1/"><bdi>proxy-1</bdi></a>)' in page
    )
    assert "</time></span>, through" in page
    proxies = f'[{{"proxy_id": "{proxy.id}", "expires_in_ms": 1000}}]'
    report = parse_agent_report(
        f'{{"agent_id": "agent-3-id", "services": ["web"], '
        f'"tracker": {{"claimed_proxies": ["{proxy.id}"], "proxies": {proxies}}}}}'
    )
    record.write_agent_responses(
        "default", epoch, {index: AgentReportResponse(time.time(), proxy.index, report)}
    )
    page = viewer.get("/agents/agent-3-id/").content.decode()
    assert "Services: web" in page
    table = page.partition("report-title")[2]
    assert '<a class="instance-name" href="/instances/proxy-1/"><bdi>proxy-1</bdi></a>' in table
    # As of the report: an age would say that a proxy has expired that the agent knows to be renewed since.
    assert re.search(r"Expiry as of the report.*<td class=\"when\">[0-9:]{8} UTC</td>", table, re.DOTALL)


def test_agent_history(viewer: Client, record: Writer) -> None:
    """Changes that the database keeps are told, newest first."""
    for number, (old, new) in enumerate([(State.HEALTHY, State.AT_RISK), (State.AT_RISK, State.STRANDED)]):
        create_agent_change("agent-3-id", time.time() - 60 + number, old, new)
    answer = viewer.get("/agents/agent-3-id/")
    assert '<span class="reason" title="no-tunnel">reason: no tunnel</span>' in answer.content.decode()
    history = answer.context["history"]
    assert [(change.old, change.new) for change in history] == [
        (State.AT_RISK, State.STRANDED),
        (State.HEALTHY, State.AT_RISK),
    ]


def test_stale_page_is_marked_stale(viewer: Client, record: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute without a round: all but the retired are unknown, on the page as well."""
    monkeypatch.setattr(record_reader, "current_time", lambda: time.time() + 60)
    page = viewer.get("/").content.decode()
    assert 'data-count="unknown">4<' in page
    assert 'data-count="stranded">0<' in page


@pytest.mark.parametrize("path", ["/", "/map/", "/agents/", "/agents/x/", "/map/instances.json"])
def test_record_away_is_503(viewer: Client, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The page explains the error and retries."""
    away: Reader = record_reader.open_reader("redis://127.0.0.1:1/0", "nobody")
    monkeypatch.setattr(record_reader, "reader", lambda: away)
    answer = viewer.get(path)
    assert answer.status_code == 503
    assert "Redis is not responding" in answer.content.decode()


def test_short_and_long_urls(viewer: Client, record: Writer) -> None:
    """The default cluster has both; links stay short. A cluster that is not known is 404."""
    assert viewer.get("/c/default/map/").status_code == 200
    assert b'href="/agents/' in viewer.get("/c/default/").content
    assert viewer.get("/c/mars/").status_code == 404


@pytest.mark.parametrize(
    ("path", "query_count"),
    [("/", 18), ("/map/", 10), ("/agents/", 8), ("/agents/agent-1-id/", 10), ("/tokens/", 8)],
)
def test_queries_do_not_grow_with_the_fleet(
    viewer: Client,
    record: Writer,
    django_assert_max_num_queries: DjangoAssertNumQueries,
    path: str,
    query_count: int,
) -> None:
    """Session, user, permissions twice, limits, clusters, and what each page needs: changes, charts."""
    with django_assert_max_num_queries(query_count):
        assert viewer.get(path).status_code == 200


def test_readyz_and_healthz(client: Client, record: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up is one thing, ready another: without the record the console is up."""
    assert client.get("/readyz").json() == {"status": "ok", "failed_checks": []}
    monkeypatch.setattr(
        record_reader, "reader", lambda: record_reader.open_reader("redis://127.0.0.1:1/0", "nobody")
    )
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["failed_checks"]) == (503, ["record"])
    assert client.get("/healthz").status_code == 200


def test_limited_user_lands_on_an_allowed_cluster(client: Client, person: MakeUser, record: Writer) -> None:
    """The first page leads on where the default cluster is not theirs; without any cluster it refuses."""
    Cluster.objects.create(id="eu", name="Europe")
    limited_user = person("viewer")
    ClusterLimit.objects.create(user=limited_user, cluster="eu")
    client.force_login(limited_user)
    assert client.get("/")["Location"] == "/c/eu/"
    assert client.get("/map/").status_code == 403
    ClusterLimit.objects.update(cluster="gone")
    assert client.get("/").status_code == 403


def test_form_without_a_csrf_token_gets_a_page_that_says_what_to_do(person: MakeUser) -> None:
    """Not Django's own page; a signed-in user's attempt has the reason in the audit log."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(person("admin"))
    answer = client.post("/reconnect/", {"q": "x"})
    page = answer.content.decode()
    assert answer.status_code == 403
    for text in ("Form out of date", "Reload the page and send the form again.", "REFLOAT_TRUSTED_ORIGINS"):
        assert text in page
    assert "DEBUG" not in page
    assert AuditEntry.objects.get(outcome="refused").detail.startswith("CSRF: ")


def test_name_of_an_agent_leads_to_its_page(viewer: Client, record: Writer) -> None:
    """An unknown name is not found."""
    assert viewer.get("/agents/agent-1/").headers["Location"] == "/agents/agent-1-id/"
    assert viewer.get("/agents/nobody/").status_code == 404
