"""Frequent tasks of alerting, from Fleet now to the result: at most four clicks each."""

from __future__ import annotations

import time

import pytest
from playwright.async_api import expect

from fleet.models.alerting import Channel, Delivery, Route, Silence
from fleet.models.incidents import Incident
from fleet.vocabulary.incidents import NotificationKind, Severity
from tests.browser.conftest import Visiting
from tests.browser.operator import REASON, start_operator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
]


def _create_channel(cluster: str, name: str) -> int:
    return Channel.objects.create(
        name=name, kind="webhook", cluster=cluster, config={"host": "https://hooks.example.com"}
    ).pk


def _take_channel(name: str) -> tuple[str, str]:
    """Delete a channel, and return its kind and its sealed secrets."""
    row = Channel.objects.get(name=name)
    row.delete()
    return row.kind, row.secrets


def _has_test(channel: int) -> bool:
    return Delivery.objects.filter(channel=channel, kind=NotificationKind.TEST.value).exists()


def _read_route(cluster: str) -> tuple[int, list[str], bool]:
    route = Route.objects.get(cluster=cluster)
    names = [channel.name for channel in route.channels.all()]
    return route.min_severity, names, route.includes_parent_channels


async def test_add_slack(visiting: Visiting) -> None:
    """Incidents, the channels, the tile, Create channel; Slack channel and token are typed."""
    visit = await visiting()
    await visit.fleet.begin()
    operator = await start_operator(visit)
    await operator.open_section("Incidents")
    await operator.click(operator.page.get_by_role("link", name="Notification channels and routes"))
    await operator.click(operator.page.locator(".kind-tile[href$='/new/slack/']"))
    await operator.type("#ops", field="slack_channel")
    await operator.page.keyboard.press("Tab")
    await operator.type("xoxb-1-2-abc", field="secret")
    await operator.page.get_by_role("dialog").locator("[name=name]").fill("Slack of this test")
    await operator.click(operator.page.get_by_role("button", name="Create channel"))
    await expect(
        operator.page.get_by_text("Channel Slack of this test was created.", exact=False)
    ).to_be_visible()
    assert operator.click_count == 4
    # Other tests share the routes of the installation, which send to its first channel.
    kind, secrets = await visit.rows(_take_channel, "Slack of this test")
    assert kind == "slack"
    assert secrets


async def test_send_a_test(visiting: Visiting) -> None:
    """Incidents, the channels, Send test: the card says how it goes."""
    visit = await visiting()
    await visit.fleet.begin()
    channel = await visit.rows(_create_channel, visit.cluster, "hook of this test")
    operator = await start_operator(visit)
    await operator.open_section("Incidents")
    await operator.click(operator.page.get_by_role("link", name="Notification channels and routes"))
    await operator.click(operator.page.get_by_role("button", name="Send test to hook of this test"))
    await expect(operator.page.locator(f"#channel-{channel}")).to_contain_text("Sending a test…")
    assert operator.click_count == 3
    assert await visit.rows(_has_test, channel)


def _create_incident(cluster: str) -> None:
    now = time.time()
    Incident.objects.create(
        cluster_id=cluster, key="proxy/p1", cause_kind="proxy", cause_id="p1", cause_name="proxy-1", generation=1,
        state="firing", severity=int(Severity.CRITICAL), opened_at=now - 60, fired_at=now - 30, summary="down",
    )  # fmt: skip


def _read_silence(cluster: str) -> tuple[str, str, float]:
    row = Silence.objects.get(cluster=cluster)
    return row.matchers, row.reason, row.ends_at - row.starts_at


async def test_silence_an_incident_for_two_hours(visiting: Visiting) -> None:
    """Incidents, Silence… of the incident, 2 h, Silence; the reason is typed."""
    visit = await visiting()
    await visit.fleet.begin()
    await visit.rows(_create_incident, visit.cluster)
    operator = await start_operator(visit)
    await operator.open_section("Incidents")
    await operator.click(operator.page.get_by_role("link", name="Silence… proxy-1"))
    await operator.type(REASON, field="reason")
    await operator.click(operator.page.get_by_role("dialog").get_by_role("radio", name="2 h", exact=True))
    await operator.click(operator.page.get_by_role("button", name="Silence proxy-1"))
    await expect(operator.page.get_by_role("dialog")).to_have_count(0)
    assert operator.click_count == 4
    matchers, reason, seconds = await visit.rows(_read_silence, visit.cluster)
    assert matchers == "cause=proxy/p1"
    assert (reason, round(seconds)) == (REASON, 7200)


async def test_route_critical_incidents_to_a_second_channel(visiting: Visiting) -> None:
    """Incidents, the channels, Add route… of the channel, Save route: the first channel is still notified."""
    visit = await visiting()
    await visit.fleet.begin()
    await visit.rows(_create_channel, visit.cluster, "second of this test")
    operator = await start_operator(visit)
    await operator.open_section("Incidents")
    await operator.click(operator.page.get_by_role("link", name="Notification channels and routes"))
    await operator.click(operator.page.get_by_role("link", name="Add route… to second of this test"))
    await operator.click(operator.page.get_by_role("button", name="Save route"))
    await expect(operator.page.locator(".route-tree")).to_contain_text("second of this test")
    assert operator.click_count == 4
    assert await visit.rows(_read_route, visit.cluster) == (
        int(Severity.CRITICAL),
        ["second of this test"],
        True,
    )
