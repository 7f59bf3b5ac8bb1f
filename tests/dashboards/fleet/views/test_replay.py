"""One past moment for the map, and the markers of a range."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest
from django.test import Client

from dashboards.shared import rewind
from fleet.monitoring.history.past_table import NotRecordedError
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

#: 2023-11-14T22:13:20Z.
AT = 1_700_000_000.0
AT_TEXT = "2023-11-14T22:13:20Z"


@pytest.fixture
def viewer(
    client: Client, person: MakeUser, monkeypatch: pytest.MonkeyPatch, fake_reader: FakeReader
) -> Client:
    """A browser of a viewer; in the past, the first one of three agents was stranded."""

    def read(cluster: str, at: float, present: FleetTable) -> FleetTable:
        if at < AT:
            raise NotRecordedError(AT)
        states = [State.STRANDED, State.HEALTHY, State.HEALTHY]
        return replace(FakeReader(states=states, as_of=AT).table("default", AT), is_past=True)

    monkeypatch.setattr(rewind, "read_past_table", read)
    monkeypatch.setattr(rewind, "_past_readers", rewind._PastReaders())
    client.force_login(person("admin"))
    return client


def test_moment_has_what_the_map_shows(viewer: Client) -> None:
    """Columns as the socket sends them, instances and headline; no action is offered."""
    answer = viewer.get("/map/moment.json", {"at": AT_TEXT})
    content = answer.json()
    assert content["at"] == "2023-11-14T22:13:20.000Z"
    hello = content["hello"]
    assert (hello["agents"], hello["counts"]["stranded"], hello["stale"]) == (3, 1, False)
    columns = zlib.decompress(base64.b64decode(content["columns"]))
    assert columns[18:] == bytes([State.STRANDED, State.HEALTHY, State.HEALTHY])
    assert [row["name"] for row in content["instances"]] == ["auth-1", "auth-2", "proxy-1", "proxy-2"]
    headline = content["headline"]
    assert (headline["state"], headline["counts"]["stranded"]) == ("stranded", 1)
    assert headline["actions"] == headline["preventions"] == []
    again = viewer.get("/map/moment.json", {"at": AT_TEXT}, headers={"If-None-Match": answer["ETag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        ("", "The parameter at is missing"),
        ("soon", "Invalid time"),
        ("2023-11-14T22:13:19Z", "the history begins at 2023-11-14 22:13:20 UTC"),
    ],
)
def test_moments_that_cannot_be_shown(viewer: Client, at: str, sentence: str) -> None:
    """400 and a sentence."""
    answer = viewer.get("/map/moment.json", {"at": at})
    assert answer.status_code == 400
    assert sentence in answer.json()["detail"]


def test_page_and_its_data_are_of_the_moment(viewer: Client) -> None:
    """Banner, counts, and what the page requests later; nothing can be done from it."""
    page = viewer.get("/map/", {"at": AT_TEXT}).content.decode()
    assert "This is the past: 2023-11-14 22:13:20 UTC." in page
    assert 'data-count="stranded">1<' in page
    assert 'data-action="reconnect"' not in page
    assert "data-live" not in page
    matches = viewer.get("/map/matches.json", {"q": "state:stranded", "at": AT_TEXT}).json()
    assert (matches["count"], matches["agents"]) == (1, 3)
    assert viewer.get("/map/names.json", {"agents": "3", "at": AT_TEXT}).status_code == 400
    assert viewer.get("/map/names.json", {"agents": "3"}).status_code == 200
    assert viewer.get("/map/names.json", {"agents": "0", "at": "soon"}).json()["detail"].startswith("Invalid")
    present = viewer.get("/map/").content.decode()
    assert 'id="past-banner" role="region" aria-label="Past moment" hidden' in present
    assert 'data-action="reconnect"' in present


@pytest.mark.parametrize(
    "span",
    [
        {},
        {"since": AT_TEXT},
        {"since": AT_TEXT, "until": "2023-11-14T22:13:19Z"},
        {"since": "2023-10-01T00:00:00Z", "until": AT_TEXT},
        {"since": "soon", "until": AT_TEXT},
    ],
)
def test_invalid_ranges(viewer: Client, span: dict[str, str]) -> None:
    """400 and a sentence."""
    answer = viewer.get("/map/markers.json", span)
    assert answer.status_code == 400
    assert json.loads(answer.content)["detail"].startswith("Invalid")


def test_markers_of_a_range(viewer: Client) -> None:
    """Both kinds, also when there is none."""
    answer = viewer.get("/map/markers.json", {"since": "2023-11-14T00:00:00Z", "until": AT_TEXT})
    assert answer.json() == {"incidents": [], "changes": []}
