"""Fleet now: its chart and the trends of instances."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import numpy as np
import pytest
from django.test import Client

from dashboards.shared.rewind import format_at
from fleet.models.changes import Change
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.history import FleetMinute
from fleet.models.incidents import Incident
from fleet.models.inventory import Instance
from fleet.models.moments import to_moment
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.history_rows import create_agent_change
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client, person: MakeUser) -> Client:
    """A browser in which a viewer is signed in."""
    ensure_default_cluster()
    client.force_login(person("viewer"))
    return client


def _save_minute(at: float, stranded_peak: int, *groups: tuple[int, int, int, int]) -> None:
    FleetMinute.objects.create(
        cluster_id="default", at=at, state_counts=b"", stranded_peak=stranded_peak, at_risk_peak=0,
        groups=pack_groups(np.array([*groups], GROUP_COUNT), np.arange(100)),
    )  # fmt: skip


def test_page_shows_chart_and_trends(viewer: Client, fake_reader: FakeReader) -> None:
    """Counts, incident and change with links, and the chart of each instance."""
    now = time.time() // 60 * 60
    proxy_id = fake_reader.table("default", now).instances[2].facts.id
    Instance.objects.create(
        pk=11, cluster_id="default", instance_id=proxy_id, kind="proxy", name="p", position=1
    )
    _save_minute(now - 120, 67, (GroupKind.PROXY, State.STRANDED, 11, 67))
    incident = Incident.objects.create(
        cluster_id="default", key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1", generation=1,
        state="firing", severity=2, opened_at=now - 120, summary="proxy-1 is not responding.",
    )  # fmt: skip
    change = Change.objects.create(
        cluster_id="default", kind="policy", state=ChangeState.RUNNING.value, title="TTL", actor_name="ann",
        actor_kind="person", started_at=to_moment(now - 90),
    )  # fmt: skip
    page = viewer.get("/").content.decode()

    assert "Peaks in the last 24 h: 67 agents stranded (first at " in page
    assert f'href="/incidents/{incident.pk}/" tabindex="-1"' in page
    assert f">Incident {incident.pk}: proxy-1 is not responding (critical); opened " in page
    assert f'href="/changes/{change.pk}/">Change {change.pk}: TTL (running); ' in page
    assert re.search(r'href="/\?peak_of=20\d\d-\d\d-\d\dT\d\d:\d\d:00.000Z" tabindex="-1"', page)
    assert re.search(r"67 stranded and \d at risk at most. Open Fleet now at that time.", page)
    assert 'aria-label="67 agents, 67 affected at most"' in page
    assert "no data" in page
    assert "plotly" not in page
    # The chart ends with the counts of the tiles.
    assert re.search(r'<circle class="chart-now state-at_risk"[^>]*><title>\d+ at risk at ', page)
    # The script requests the instances without the chart.
    part = viewer.get("/?part=instances").content.decode()
    assert "fleet-chart-summary" not in part
    assert 'aria-label="67 agents, 67 affected at most"' in part


def test_quarter_of_an_hour_leads_to_the_moment_of_its_peak(viewer: Client) -> None:
    """Agents that recovered within the minute are stranded on the page that opens."""
    minute = time.time() // 60 * 60 - 120
    _save_minute(minute, 1)
    create_agent_change("agent-1", minute + 8, State.HEALTHY, State.STRANDED)
    create_agent_change("agent-1", minute + 20, State.STRANDED, State.HEALTHY)

    location = viewer.get(f"/?peak_of={format_at(minute)}").headers["Location"]
    assert location == f"/?at={format_at(minute + 8)}"


def test_page_without_history_says_so(viewer: Client, fake_reader: FakeReader) -> None:
    """A sentence instead of a chart."""
    page = viewer.get("/").content.decode()

    assert "Refloat has recorded no agent counts in the last 24 h." in page
    assert "chart-plot" not in page


def test_a_product_without_auths_says_so_in_their_place(
    viewer: Client, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that Refloat has not reached one yet."""
    table = fake_reader.table("default", time.time())
    proxies = {i: view for i, view in table.instances.items() if view.facts.kind is InstanceKind.PROXY}
    monkeypatch.setattr(fake_reader, "table", lambda *_: replace(table, instances=proxies))
    assert "Refloat has not reached any auth yet." in viewer.get("/?part=instances").content.decode()
    Cluster.objects.update(source="nats")
    page = viewer.get("/?part=instances").content.decode()
    assert "NATS has no auths: leaf nodes depend on hubs only." in page
    assert "Refloat has not reached any auth yet." not in page


@pytest.mark.parametrize(("source", "is_reported"), [("refloat", True), ("teleport", False)])
def test_page_claims_nothing_that_the_source_does_not_report(
    client: Client, person: MakeUser, fake_reader: FakeReader, source: str, is_reported: bool
) -> None:
    """Neither a number of tunnels, nor that Refloat can move agents."""
    ensure_default_cluster()
    Cluster.objects.update(source=source)
    client.force_login(person("operator"))
    page = client.get("/").content.decode()
    assert ("Take out of service…" in page) is is_reported
    assert ("not reported" in page) is not is_reported


def test_tunnels_are_counted_where_the_agents_are_not_named(
    viewer: Client, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By page and API; the missing ones in a sentence, and a proxy without counts reports none."""
    Cluster.objects.update(source="teleport")
    now = time.time()
    table = fake_reader.table("default", now)
    view = table.instances[2]
    facts = replace(
        view.facts,
        address="",
        diag_address="10.0.0.2:3000",
        connection_counts=(("app", 12), ("node", 1397)),
        missing_tunnel_count=3,
        counted_at=now,
    )
    instances = {**table.instances, 2: replace(view, facts=facts)}
    monkeypatch.setattr(fake_reader, "table", lambda *_: replace(table, instances=instances))
    monkeypatch.setattr(fake_reader, "instances", lambda *_: tuple(instances.values()))
    page = viewer.get("/?part=instances").content.decode()
    sentence = (
        "3 of 1,400 SSH tunnels are missing at proxy-1. The API of the cluster does not name the agents."
    )
    assert sentence in page
    assert "<b>1,409</b> tunnels" in page
    assert "1,397 node, 12 app" in page
    assert "not reported" in page
    proxy, other_proxy = viewer.get("/api/v1/instances").json()["instances"][2:]
    assert (proxy["connection_counts"], proxy["missing_tunnel_count"]) == ({"app": 12, "node": 1397}, 3)
    assert proxy["counts_text"] == sentence
    assert (other_proxy["connection_counts"], other_proxy["counted_at"], other_proxy["counts_text"]) == (
        {},
        None,
        "",
    )
