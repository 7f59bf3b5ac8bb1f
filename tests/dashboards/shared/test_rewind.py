"""`?at=`: what is a past moment, and pages and API that show one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from django.test import Client

from dashboards.shared import rewind
from dashboards.shared.rewind import MomentError, PastReader, add_at, format_at, parse_at, peak_query_of
from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import FleetMinute, Keyframe
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.history.past_table import NotRecordedError
from fleet.monitoring.state.outbox import GROUP_COUNT
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.history_rows import create_agent_change
from tests.fakes.reader import FakeReader

#: 2023-11-14T22:13:20Z.
AT = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("2023-11-14T22:13:20Z", AT),
        ("2023-11-14T22:13:20.500Z", AT + 0.5),
        ("2023-11-14T23:13:20+01:00", AT),
        ("2023-11-14T23:13:20 01:00", AT),  # a plus that was not escaped
        ("2023-11-14 22:13:20", AT),
        ("2023-11-14T22:13:23Z", AT + 2),  # ahead by a clock that differs: the present
    ],
)
def test_moments(text: str, expected: float | None) -> None:
    """ISO 8601; without an offset, UTC."""
    assert parse_at(text, AT + 2) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("yesterday", "Invalid time 'yesterday': write it like"),
        ("0001-01-01T00:00:00+14:00", "Invalid time"),
        ("2023-11-15T22:13:20Z", "2023-11-15T22:13:20Z is in the future"),
    ],
)
def test_no_moments(text: str, sentence: str) -> None:
    """The error says what to write."""
    with pytest.raises(MomentError, match=sentence):
        parse_at(text, AT)


def test_moment_is_rounded_up_to_the_millisecond() -> None:
    """The state at that moment then includes the round of the moment itself."""
    at = datetime(2026, 11, 23, 10, 14, 7, 123_400, UTC).timestamp()
    assert format_at(at) == "2026-11-23T10:14:07.124Z"
    assert format_at(1_800_000_000.0) == "2027-01-15T08:00:00.000Z"


def test_links_stay_in_the_moment() -> None:
    """To the millisecond, in front of other parameters or behind them; the present has none."""
    assert parse_at(format_at(AT + 0.123), AT + 9) == AT + 0.123
    assert add_at("/agents/?state=stranded", None) == "/agents/?state=stranded"
    assert add_at("/map/", AT) == "/map/?at=2023-11-14T22%3A13%3A20.000Z"
    assert add_at("/agents/?q=a", AT) == "/agents/?q=a&at=2023-11-14T22%3A13%3A20.000Z"


def past_table() -> FleetTable:
    """Return three agents of the past; the first one is stranded."""
    states = [State.STRANDED, State.HEALTHY, State.HEALTHY]
    return replace(FakeReader(states=states, as_of=AT).table("default", AT), is_past=True)


def test_past_reader_has_what_pages_read() -> None:
    """Counts, instances and agents of the table; an unknown agent is None."""
    reader = PastReader(past_table())
    summary = reader.summary("default", AT)
    assert (summary.counts[State.STRANDED], summary.agent_count, summary.as_of) == (1, 3, AT)
    assert [view.facts.name for view in reader.instances("default", AT)][:2] == ["auth-1", "auth-2"]
    explanation = reader.explain("default", "id-0", AT)
    assert explanation is not None
    assert explanation.view.state is State.STRANDED
    assert explanation.view.verdict.sentence.startswith("Recorded as stranded")
    assert reader.explain("default", "nobody", AT) is None


@pytest.fixture
def past(monkeypatch: pytest.MonkeyPatch, fake_reader: FakeReader) -> None:
    """Give the history one moment, beside a present in which every agent is healthy."""

    def read(cluster: str, at: float, present: FleetTable) -> FleetTable:
        if at < AT:
            raise NotRecordedError(AT)
        return past_table()

    monkeypatch.setattr(rewind, "read_past_table", read)
    monkeypatch.setattr(rewind, "_past_readers", rewind._PastReaders())


@pytest.mark.django_db
@pytest.mark.usefixtures("past")
def test_pages_show_the_past_and_say_so(client: Client, person: MakeUser) -> None:
    """Links stay in the past, nothing can be done from it, and no script fetches the present."""
    client.force_login(person("admin"))
    at = "2023-11-14T22:13:20Z"
    page = client.get(f"/?at={at}").content.decode()
    assert 'data-count="stranded">1<' in page
    assert "This is the past: 2023-11-14 22:13:20 UTC." in page
    assert "/agents/?state=stranded&amp;at=2023-11-14T22%3A13%3A20.000Z" in page
    assert "Drain…" not in page
    assert "fleet.js" not in page
    agents = client.get(f"/agents/?state=stranded&at={at}").content.decode()
    assert "<b>1</b> matching agent" in agents
    assert "refresh.js" not in agents
    agent = client.get(f"/agents/id-0/?at={at}").content.decode()
    assert "Recorded as stranded" in agent
    assert "Evidence" not in agent
    assert "Retire agent" not in agent
    assert "This is the past" not in client.get("/").content.decode()


@pytest.mark.django_db
@pytest.mark.usefixtures("past")
@pytest.mark.parametrize("path", ["/", "/map/", "/agents/"])
def test_peak_leads_to_its_moment(client: Client, person: MakeUser, path: str) -> None:
    """When most agents were stranded; other parameters stay. Counts that were not recorded lead to their start."""
    ensure_default_cluster()
    client.force_login(person("viewer"))
    start = AT + 40 - AT % 60
    groups = pack_groups(np.zeros(0, GROUP_COUNT), np.zeros(1, np.int64))
    FleetMinute.objects.create(
        cluster_id="default", at=start, state_counts=b"", stranded_peak=1, at_risk_peak=0, groups=groups
    )
    create_agent_change("agent-1", start + 8, State.HEALTHY, State.STRANDED)
    create_agent_change("agent-1", start + 20, State.STRANDED, State.HEALTHY)

    location = client.get(path, {"peak_of": format_at(start), "q": "a b"}).headers["Location"]
    assert location == f"{path}?q=a%20b&at={format_at(start + 8)}"
    assert client.get(location).status_code == 200
    unrecorded = client.get(path, {"peak_of": format_at(start - 60)}).headers["Location"]
    assert unrecorded == f"{path}?at={format_at(start - 60)}"
    assert client.get(path, {"peak_of": ""}).headers["Location"] == path


def test_link_to_a_peak() -> None:
    """The start of its counts."""
    assert peak_query_of(AT) == "peak_of=2023-11-14T22:13:20.000Z"


@pytest.mark.django_db
@pytest.mark.usefixtures("past")
@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"peak_of": "noon"}, "Invalid time &#x27;noon&#x27;"),
        ({"peak_of": "2999-01-01"}, "is in the future"),
        ({"peak_of": "2023-11-15", "at": "2023-11-15"}, "Too many parameters: use either at, or peak_of."),
        ({"at": "noon"}, "Invalid time"),
        ({"at": "2023-11-14"}, "the history begins at 2023-11-14 22:13:20 UTC"),
    ],
)
def test_wrong_moment_leads_to_recorded_ones(
    client: Client, person: MakeUser, parameters: dict[str, str], sentence: str
) -> None:
    """400, a sentence, and links to the present and to the first moment, if there is any."""
    ensure_default_cluster()
    client.force_login(person("viewer"))
    answer = client.get("/map/", parameters)
    page = answer.content.decode()
    assert answer.status_code == 400
    assert sentence in page
    assert 'href="/map/">Back to now' in page
    assert "Show the first recorded moment" not in page
    Keyframe.objects.create(cluster_id="default", at=AT, content=b"")
    page = client.get("/map/", parameters).content.decode()
    assert 'href="/map/?at=2023-11-14T22:13:20.000Z">Show the first recorded moment' in page


@pytest.mark.usefixtures("past")
def test_moments_are_kept_until_the_record_is_rebuilt(fake_reader: FakeReader) -> None:
    """Then agents have other indices."""
    reader = rewind.open_moment(format_at(AT), "default").reader
    assert rewind.open_moment(format_at(AT), "default").reader is reader
    fake_reader.epoch = "e2"
    assert rewind.open_moment(format_at(AT), "default").reader is not reader


@pytest.mark.django_db
@pytest.mark.usefixtures("past")
def test_api_answers_as_of_the_past(client: Client, person: MakeUser) -> None:
    """Summary, list, agent and instances, with the moment as their time."""
    client.force_login(person("viewer"))
    at = "2023-11-14T22:13:20Z"
    summary = json.loads(client.get(f"/api/v1/fleet/summary?at={at}").content)
    assert (summary["counts"]["stranded"], summary["as_of"], summary["age_ms"]) == (1, at, 0)
    agents = json.loads(client.get(f"/api/v1/agents?state=stranded&at={at}").content)
    assert [agent["id"] for agent in agents["agents"]] == ["id-0"]
    agent = json.loads(client.get(f"/api/v1/agents/id-0?at={at}").content)
    assert agent["state"] == "stranded"
    instances = json.loads(client.get(f"/api/v1/instances?at={at}").content)
    assert len(instances["instances"]) == 4


@pytest.mark.django_db
@pytest.mark.usefixtures("past")
@pytest.mark.parametrize(
    "path", ["/", "/agents/", "/agents/id-0/", "/agents.csv", "/agents.json", "/api/v1/agents"]
)
@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        ("2023-11-14T22:13:19Z", "the history begins at 2023-11-14 22:13:20 UTC"),
        ("soon", "Invalid time"),
    ],
)
def test_moments_that_cannot_be_shown(
    client: Client, person: MakeUser, path: str, at: str, sentence: str
) -> None:
    """400 and a sentence, on pages and in the API."""
    client.force_login(person("viewer"))
    response = client.get(path, {"at": at})
    assert response.status_code == 400
    assert sentence in response.content.decode()
