from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from django.test import Client

from dashboards.fleet.fleet_chart_rows import read_changes, read_chart, read_incidents, read_instance_trends
from dashboards.shared.rewind import format_at
from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import FleetMinute
from fleet.models.incidents import Incident
from fleet.models.inventory import Instance
from fleet.models.moments import to_moment
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.incidents import Severity
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.history_rows import create_agent_change
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

#: 2023-11-15 00:00 UTC.
NOW = 1_700_006_400.0
HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture(autouse=True)
def _cluster() -> None:
    ensure_default_cluster()


def _save_minute(at: float, stranded_peak: int, *groups: tuple[int, int, int, int]) -> None:
    FleetMinute.objects.create(
        cluster_id="default", at=at, state_counts=b"", stranded_peak=stranded_peak, at_risk_peak=0,
        groups=pack_groups(np.array([*groups], GROUP_COUNT), np.arange(100)),
    )  # fmt: skip


def _save_incident(
    key: str, opened_at: float, resolved_at: float | None = None, state: str = "firing"
) -> int:
    row = Incident.objects.create(
        cluster_id="default", key=f"proxy/{key}", cause_kind="proxy", cause_id=key, cause_name=key, generation=1,
        state="resolved" if resolved_at else state, severity=2, opened_at=opened_at, resolved_at=resolved_at,
        summary=f"{key} is not responding.",
    )  # fmt: skip
    return row.pk


def _save_change(title: str, state: ChangeState, **times: float) -> int:
    moments: dict[str, Any] = {name: to_moment(at) for name, at in times.items()}
    return Change.objects.create(
        cluster_id="default", kind="policy", state=state.value, title=title, actor_name="ann", actor_kind="person",
        **moments,
    ).pk  # fmt: skip


def test_incidents_overlap_the_period() -> None:
    """Pending ones are not open yet; what happened after the moment is not known at it."""
    _save_incident("old", NOW - 2 * DAY, NOW - DAY - 1)
    _save_incident("later", NOW + 1)
    _save_incident("pending", NOW - HOUR, state="pending")
    numbers = [
        _save_incident("open", NOW - HOUR),
        _save_incident("resolved-later", NOW - 2 * HOUR, NOW + HOUR),
        _save_incident("long", NOW - 2 * DAY, NOW - HOUR),
    ]
    incidents = read_incidents("default", NOW - DAY, NOW)

    assert [incident.number for incident in incidents] == numbers
    assert [incident.resolved_at for incident in incidents] == [None, None, NOW - HOUR]
    assert (incidents[0].summary, incidents[0].severity) == ("open is not responding", Severity.CRITICAL)


def test_changes_were_carried_out_in_the_period() -> None:
    """Plans and cancelled plans were not; a change that ended later was running."""
    _save_change("plan", ChangeState.PLANNED)
    _save_change("cancelled", ChangeState.CANCELLED, ended_at=NOW - HOUR)
    _save_change("old", ChangeState.VERIFIED, started_at=NOW - 3 * DAY, ended_at=NOW - 2 * DAY)
    _save_change("later", ChangeState.VERIFIED, started_at=NOW + 1, ended_at=NOW + 2)
    _save_change("failed", ChangeState.FAILED, started_at=NOW - HOUR, ended_at=NOW - HOUR + 9)
    _save_change("ended later", ChangeState.VERIFIED, started_at=NOW - 2 * HOUR, ended_at=NOW + HOUR)
    changes = read_changes("default", NOW - DAY, NOW)

    assert [(change.title, change.state, change.ended_at) for change in changes] == [
        ("failed", ChangeState.FAILED, NOW - HOUR + 9),
        ("ended later", ChangeState.RUNNING, None),
    ]


def test_rows_are_bounded() -> None:
    """The newest 100."""
    for number in range(101):
        _save_incident(f"proxy-{number}", NOW - HOUR + number)

    incidents = read_incidents("default", NOW - DAY, NOW)
    assert (len(incidents), incidents[0].opened_at, incidents[-1].opened_at) == (
        100,
        NOW - HOUR + 100,
        NOW - HOUR + 1,
    )


def test_chart_has_the_minutes_of_its_cluster() -> None:
    """Of the 24 h only."""
    _save_minute(NOW - DAY - HOUR, 9)
    _save_minute(NOW - HOUR, 3)

    assert read_chart("default", NOW, is_past=False).peak == 3
    assert not read_chart("other", NOW, is_past=False).has_data


def test_trends_are_by_instance() -> None:
    """Of the last hour, of auths and proxies."""
    proxy = Instance.objects.create(
        pk=11, cluster_id="default", instance_id="p1", kind="proxy", name="proxy-1", position=1
    )
    _save_minute(NOW - 2 * HOUR, 0, (GroupKind.PROXY, State.HEALTHY, proxy.pk, 99))
    _save_minute(
        NOW - 60, 0, (GroupKind.PROXY, State.STRANDED, proxy.pk, 4), (GroupKind.CAUSE, 1, proxy.pk, 50)
    )

    trends = read_instance_trends("default", NOW)
    assert {name: trend.sentence for name, trend in trends.items()} == {"p1": "4 agents, 4 affected at most"}


def test_page_shows_chart_and_trends(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """Counts, incident and change with links, and the chart of each instance."""
    now = time.time() // 60 * 60
    proxy_id = fake_reader.table("default", now).instances[2].facts.id
    Instance.objects.create(
        pk=11, cluster_id="default", instance_id=proxy_id, kind="proxy", name="p", position=1
    )
    _save_minute(now - 120, 67, (GroupKind.PROXY, State.STRANDED, 11, 67))
    incident = _save_incident("proxy-1", now - 120)
    change = _save_change("TTL", ChangeState.RUNNING, started_at=now - 90)
    client.force_login(person("viewer"))
    page = client.get("/").content.decode()

    assert "Peaks in the last 24 h: 67 agents stranded" in page
    assert f'href="/incidents/{incident}/" tabindex="-1"' in page
    assert f'href="/changes/{change}/">Change {change} (running): TTL' in page
    assert re.search(r'href="/\?peak_of=20\d\d-\d\d-\d\dT\d\d:\d\d:00.000Z" tabindex="-1"', page)
    assert 'aria-label="67 agents, 67 affected at most"' in page
    assert "no data" in page
    # The script requests the instances without the chart.
    part = client.get("/?part=instances").content.decode()
    assert "fleet-chart-summary" not in part
    assert 'aria-label="67 agents, 67 affected at most"' in part


def test_quarter_of_an_hour_leads_to_the_moment_of_its_peak(client: Client, person: MakeUser) -> None:
    """Agents that recovered within the minute are stranded on the page that opens."""
    minute = time.time() // 60 * 60 - 120
    _save_minute(minute, 1)
    create_agent_change("agent-1", minute + 8, State.HEALTHY, State.STRANDED)
    create_agent_change("agent-1", minute + 20, State.STRANDED, State.HEALTHY)
    client.force_login(person("viewer"))

    location = client.get(f"/?peak_of={format_at(minute)}").headers["Location"]
    assert location == f"/?at={format_at(minute + 8)}"
    assert client.get("/?peak_of=").headers["Location"] == "/"
    assert client.get("/?peak_of=noon").status_code == 400


def test_page_without_history_says_so(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """A sentence instead of a chart."""
    client.force_login(person("viewer"))
    page = client.get("/").content.decode()

    assert "Refloat has recorded no agent counts in the last 24 h." in page
    assert "chart-plot" not in page
