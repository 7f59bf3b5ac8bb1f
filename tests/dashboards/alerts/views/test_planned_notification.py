"""What the page of an incident says about its next notification."""

from __future__ import annotations

import re
import time

import pytest
from django.test import Client

from fleet.models.alerting import Channel, Delivery, Route
from fleet.models.incidents import Incident
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


def test_short_outage_has_no_notification_left(client: Client, person: MakeUser, incident: Incident) -> None:
    """The channel was told that it is over: it does not get a resolved notification."""
    channel = Channel.objects.create(name="ops", kind="webhook")
    Delivery.objects.create(
        channel=channel, incident=incident, cluster="default", key="k", kind="short-outage", payload={}, created_at=1.0,
        next_attempt_at=1.0, sent_at=2.0,
    )  # fmt: skip
    now = time.time()
    Incident.objects.update(
        state="recovering", recovering_since=now, notified_at=None, short_outage_notified_at=now
    )
    client.force_login(person("operator"))
    page = client.get(f"/incidents/{incident.pk}/").content.decode()
    assert "No notification planned: the notification of the short outage was sent." in page
    assert "to ops" not in page
    assert "ops" not in client.get(f"/incidents/{incident.pk}/silence/").content.decode()


def test_silenced_incident_shows_who_is_notified_of_its_end(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """The channels that were notified of its start; while recovering, the time."""
    channel = Channel.objects.create(name="ops", kind="webhook")
    Delivery.objects.create(
        channel=channel, incident=incident, cluster="default", key="k", kind="firing", payload={}, created_at=1.0,
        next_attempt_at=1.0, sent_at=2.0,
    )  # fmt: skip
    client.force_login(person("operator"))
    url = f"/incidents/{incident.pk}/"
    client.post(f"{url}silence/", {"reason": "known"})
    page = client.get(url).content.decode()
    assert "Only the resolved notification is sent, to ops. Reason: silenced: known (operator)." in page
    assert "No notification planned" not in page
    Incident.objects.update(state="recovering", recovering_since=time.time())
    page = client.get(url).content.decode()
    assert "(the incident resolves unless a rule fires again) to ops." in page
    assert "by operator: known" in page


def test_failing_channel_is_shown_on_pages_of_incidents(config_admin: Client, incident: Incident) -> None:
    """The incident does not promise a notification without saying that its channel fails."""
    channel = Channel.objects.create(name="Slack", kind="slack")
    Route.objects.get().channels.add(channel)
    Delivery.objects.create(
        channel=channel, cluster="default", key="k", kind="firing", payload={}, created_at=1.0, next_attempt_at=9e9,
    )  # fmt: skip
    channel_page = f"/alerts/channels/{channel.pk}/"
    paths = ("/incidents/", f"/incidents/{incident.pk}/", "/alerts/channels/", channel_page)
    for path in paths:
        assert "failing since" not in config_admin.get(path).content.decode()
    Channel.objects.update(failing_since=time.time())
    notice = re.compile(r"Channel Slack has been failing since \d\d:\d\d UTC: 1 notification is waiting\.")
    for path in paths:
        assert notice.search(config_admin.get(path).content.decode()), path
    list_page, incident_page = (config_admin.get(path).content.decode() for path in paths[:2])
    assert f'href="/alerts/channels/#channel-{channel.pk}"' in list_page
    assert re.search(r"to Slack \(failing since \d\d:\d\d UTC\)", incident_page)
