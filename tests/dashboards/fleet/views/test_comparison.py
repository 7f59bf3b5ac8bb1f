from __future__ import annotations

import re
from dataclasses import replace

import pytest
from asgiref.sync import async_to_sync
from django.http import StreamingHttpResponse
from django.test import Client

from dashboards.fleet.views import comparison
from dashboards.shared import rewind
from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import FleetMinute, Keyframe
from fleet.models.incidents import Incident
from fleet.monitoring.history.past_table import NotRecordedError
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.history_rows import create_agent_change
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

#: 2023-11-14T22:13:20Z.
AT = 1_700_000_000.0
AT_TEXT = "2023-11-14T22:13:20Z"


@pytest.fixture
def viewer(
    client: Client, person: MakeUser, monkeypatch: pytest.MonkeyPatch, fake_reader: FakeReader
) -> Client:
    """A browser of a viewer; in the past, the first agent was stranded and proxy-1 did not respond."""
    ensure_default_cluster()

    def read(cluster: str, at: float, present: FleetTable) -> FleetTable:
        if at < AT:
            raise NotRecordedError(AT)
        if at > AT:
            return replace(present, is_past=True)
        states = [State.STRANDED, *[State.HEALTHY] * (len(present.ids) - 1)]
        past = FakeReader(states=states, as_of=AT, proxy_state=InstanceState.SILENT)
        return replace(past.table("default", AT), is_past=True)

    monkeypatch.setattr(rewind, "read_past_table", read)
    monkeypatch.setattr(rewind, "_past_readers", rewind._PastReaders())
    client.force_login(person("viewer"))
    return client


def test_page_shows_what_differs(viewer: Client) -> None:
    """Counts, instances and agents of both moments, with links to them."""
    page = viewer.get("/history/compare/", {"a": AT_TEXT}).content.decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "3 agents differ" in text
    assert "healthy 3 2 \u22121" in text
    assert "at risk 0 1 +1" in text
    assert "proxy-1 not responding OK" in text
    assert 'href="/agents/id-0/?at=2023-11-14T22:13:20.000Z" aria-label="agent-0 at A: stranded"' in page
    assert 'href="/agents/id-0/">agent-0' in page
    assert "All differences 3" in text
    assert "Auth 0" in text
    assert "(now)" in text


def test_filter_and_pages(viewer: Client, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following the links sees every agent once; they name both moments, so that pages fit together."""
    monkeypatch.setattr(comparison, "_PAGE_SIZE", 10)
    fake_reader.states = [State.STRANDED] * 26
    query, names = f"a={AT_TEXT}&show=state", []
    while query:
        page = viewer.get(f"/history/compare/?{query}").content.decode()
        names += re.findall(r'<th scope="row"><a href="[^"]*">(agent-\d+)</a>', page)
        link = re.search(r'href="\?([^"]*)" rel="next"', page)
        query = link[1].replace("&amp;", "&") if link else ""
        assert not query or "b=20" in query
    assert names == [f"agent-{index}" for index in range(1, 26)]
    assert 'rel="prev"' in page
    assert (
        "No agents differ in this." in viewer.get(f"/history/compare/?a={AT_TEXT}&show=auth").content.decode()
    )


def test_csv(viewer: Client) -> None:
    """All agents that differ; a wrong parameter is a sentence."""
    response = viewer.get("/history/compare.csv", {"a": AT_TEXT, "show": "state"})
    assert isinstance(response, StreamingHttpResponse)
    assert response["Content-Type"].startswith("text/csv")
    assert "comparison-default-20231114T221320Z-" in response["Content-Disposition"]

    async def read() -> str:
        return b"".join([chunk async for chunk in response.streaming_content]).decode()

    assert async_to_sync(read)().count("\r\n") == 4
    wrong = viewer.get("/history/compare.csv", {"a": AT_TEXT, "show": "colour"})
    assert (wrong.status_code, wrong.content.decode()) == (
        400,
        "Unknown difference 'colour': use state, tunnels, auth, or leave show out.\n",
    )


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"a": "soon"}, "Moment A: Invalid time"),
        ({"a": AT_TEXT, "b": "soon"}, "Moment B: Invalid time"),
        ({"a": "2023-11-14T22:13:19Z"}, "the history begins at 2023-11-14 22:13:20 UTC"),
        ({"a": AT_TEXT, "page": "0"}, "Invalid page"),
        ({"a": AT_TEXT, "page": "9" * 30}, "Invalid page"),
        ({"a": AT_TEXT, "show": "colour"}, "Unknown difference"),
        ({"a": "", "peak_of": "noon"}, "Invalid time"),
    ],
)
def test_invalid_parameters(viewer: Client, parameters: dict[str, str], sentence: str) -> None:
    """400 and a sentence, with the form as it was filled in."""
    response = viewer.get("/history/compare/", parameters)
    page = response.content.decode()
    assert response.status_code == 400
    assert sentence in page
    assert f'name="a" value="{parameters["a"]}"' in page


def test_young_history_is_no_mistake(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without parameters, the page says that nothing was recorded yet."""

    def read(cluster: str, at: float, present: FleetTable) -> FleetTable:
        raise NotRecordedError(None)

    monkeypatch.setattr(rewind, "read_past_table", read)
    response = viewer.get("/history/compare/")
    assert response.status_code == 200
    assert "Refloat has not recorded the fleet yet" in response.content.decode()
    # Not earlier than what can be shown.
    first_at = comparison.record_reader.current_time() - 100
    Keyframe.objects.create(cluster_id="default", at=first_at, content=b"")
    page = viewer.get("/history/compare/").content.decode()
    assert f'name="a" value="{rewind.format_at(first_at)[:19]}' in page


def test_peak_is_the_first_moment(viewer: Client) -> None:
    """The moment at which its agents were stranded, not the end of their minute."""
    minute = comparison.record_reader.current_time() // 60 * 60 - 600
    FleetMinute.objects.create(
        cluster_id="default", at=minute, state_counts=b"", stranded_peak=1, at_risk_peak=0, groups=b""
    )
    create_agent_change("agent-1", minute + 8, State.HEALTHY, State.STRANDED)
    create_agent_change("agent-1", minute + 20, State.STRANDED, State.HEALTHY)
    for parameters in ({"peak_of": rewind.format_at(minute)}, {}):
        page = viewer.get("/history/compare/", parameters).content.decode()
        assert f'name="a" value="{rewind.format_at(minute + 8)}"' in page


def test_incidents_suggest_moments(viewer: Client) -> None:
    """Those of the last week that can be shown, the newest first."""
    now = comparison.record_reader.current_time()
    Keyframe.objects.create(cluster_id="default", at=now - 7200, content=b"")
    for key, ago in (("old", 7300.0), ("first", 5000.0), ("last", 4000.0)):
        Incident.objects.create(
            cluster_id="default", key=f"proxy/{key}", cause_kind="proxy", cause_id=key, cause_name=key, generation=1,
            state="resolved", severity=2, opened_at=now - ago, resolved_at=now - 3000 if key == "first" else None,
            summary=f"{key} is not responding.",
        )  # fmt: skip
    Incident.objects.filter(cause_name="last").update(state="firing")
    page = viewer.get("/history/compare/", {"a": AT_TEXT}).content.decode()
    labels = re.findall(r"Before and (\w+): Incident \d+: (\w+)", page)
    assert labels == [("now", "last"), ("after", "first")]


def test_unreachable_record(viewer: Client, fake_reader: FakeReader) -> None:
    """The page of every view that needs the record."""
    fake_reader.down = True
    assert viewer.get("/history/compare/", {"a": AT_TEXT}).status_code == 503
