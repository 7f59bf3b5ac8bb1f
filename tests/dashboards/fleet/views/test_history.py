from __future__ import annotations

import json
import re
import time
from typing import Any

import numpy as np
import pytest
from django.test import Client

from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.history import FleetMinute, Keyframe
from fleet.models.incidents import Incident
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.history_rows import instance_key

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client, person: MakeUser) -> Client:
    """A browser in which a viewer is signed in; no test here needs the record."""
    ensure_default_cluster()
    client.force_login(person("viewer"))
    return client


def _save_fault(cluster: str = "default", ago: float = 3600.0, stranded_count: int = 67) -> float:
    """Write one minute in which agents of proxy-1 were stranded; return its start."""
    at = (time.time() - ago) // 60 * 60
    key = instance_key("proxy-1-id", cluster)
    groups = np.array([(GroupKind.PROXY, State.STRANDED, key, stranded_count)], GROUP_COUNT)
    FleetMinute.objects.create(
        cluster_id=cluster, at=at, state_counts=b"", stranded_peak=stranded_count, at_risk_peak=3,
        groups=pack_groups(groups, np.arange(1000)),
    )  # fmt: skip
    return at


def _script_data(page: str) -> Any:
    element = re.search(r'<script id="history-json" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert element is not None
    return json.loads(element[1])


def test_page_shows_counts_and_proxies(viewer: Client) -> None:
    """The same numbers in the drawing, the tables and the data of the script; with links to the map."""
    at = _save_fault()
    incident = Incident.objects.create(
        cluster_id="default", key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1", generation=1,
        state="firing", severity=2, opened_at=at, fired_at=at, summary="x",
    )  # fmt: skip
    page = viewer.get("/history/").content.decode()

    assert "Peaks in this range: 67 agents stranded" in page
    assert f'href="/incidents/{incident.pk}/"' in page
    assert re.search(r'href="/map/\?peak_of=20[^"]*Z" tabindex="-1"', page)
    assert "67 stranded and 3 at risk at most. Open the map at that time." in page
    assert re.search(r'href="/map/\?at=20[^"]*Z&amp;q=proxy%3Aproxy-1"', page)
    assert 'class="level-4"' in page
    data = _script_data(page)
    assert max(count for count in data["chart"]["stranded"] if count is not None) == 67
    assert data["strips"]["proxy"]["names"] == ["proxy-1"]
    assert 'aria-current="page">24 h<' in page
    assert 'href="/history/" aria-current="page"' in page


@pytest.mark.parametrize(("range_name", "step"), [("6h", 60), ("7d", 1800), ("30d", 7200), ("90d", 21_600)])
def test_ranges(viewer: Client, range_name: str, step: int) -> None:
    """At most 400 columns, whatever the range."""
    _save_fault()
    data = _script_data(viewer.get("/history/", {"range": range_name}).content.decode())
    assert data["step"] == step * 1000
    assert len(data["chart"]["stranded"]) <= 400


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"range": "1y"}, "Unknown range"),
        ({"since": "soon"}, "Invalid time"),
        ({"since": "2023-11-14", "until": "2023-11-13"}, "ends before it starts"),
    ],
)
def test_invalid_ranges(viewer: Client, parameters: dict[str, str], sentence: str) -> None:
    """400, a sentence, and a way back."""
    response = viewer.get("/history/", parameters)
    assert response.status_code == 400
    page = response.content.decode()
    assert sentence in page
    assert "Invalid time range" in page
    assert "Show the last 24 h" in page


def test_without_history(viewer: Client) -> None:
    """The page says when there will be some."""
    page = viewer.get("/history/").content.decode()
    assert "it writes the first counts within a minute after the first poll" in page
    assert "history-json" not in page


def test_range_before_the_history(viewer: Client) -> None:
    """The page says when it begins, and leads there; a range that reaches back beyond it is shown."""
    _save_fault()
    page = viewer.get("/history/", {"since": "2023-11-14", "until": "2023-11-15"}).content.decode()
    assert "This range ends before the history begins at" in page
    link = re.search(r'<a href="\?([^"]*)">Show the nearest range with data', page)
    assert link is not None
    assert "Peaks in this range" in viewer.get(f"/history/?{link[1].replace('&amp;', '&')}").content.decode()
    first_days = viewer.get("/history/", {"since": "1970-01-01", "until": "1970-01-02"})
    assert "This range ends before the history begins at" in first_days.content.decode()
    assert "The history begins at" in viewer.get("/history/?range=7d").content.decode()


def test_range_in_which_polling_had_stopped(viewer: Client) -> None:
    """A gap is not zero: the page says so, and leads to the newest counts."""
    _save_fault(ago=90_000)
    page = viewer.get("/history/?range=6h").content.decode()
    assert "No counts were recorded in this range: polling had stopped." in page
    link = re.search(r'<a href="\?([^"]*)">Show the nearest range with data', page)
    assert link is not None
    assert "67 agents stranded" in viewer.get(f"/history/?{link[1].replace('&amp;', '&')}").content.decode()


def test_comparison_is_offered_for_moments_that_can_be_shown(viewer: Client) -> None:
    """Counts of an earlier version have no keyframes."""
    at = _save_fault()
    assert 'href="/history/compare/"' in viewer.get("/history/").content.decode()
    Keyframe.objects.create(cluster_id="default", at=at - 60, content=b"")
    assert 'href="/history/compare/?peak_of=20' in viewer.get("/history/").content.decode()


def test_clusters_have_their_own_history(client: Client, make_limited_user: MakeUser) -> None:
    """Links stay in the cluster, and a user without access is refused."""
    ensure_default_cluster()
    user = make_limited_user("viewer")
    Cluster.objects.get(pk="other")
    _save_fault(stranded_count=5)
    _save_fault("other", stranded_count=9)
    client.force_login(user)
    page = client.get("/c/other/history/").content.decode()
    assert "9 agents stranded" in page
    assert 'href="/c/other/map/?peak_of=' in page
    assert _script_data(page)["prefix"] == "/c/other"
    assert client.get("/history/").status_code == 403
