"""Notices of failing channels: from the outbox to the sentence."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import User

from dashboards.fleet.failing_channels import (
    describe_failing,
    describe_recipients,
    read_failing_channels,
)
from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.outbox import Outbox
from fleet.models.alerting import Channel, Delivery

#: 2026-11-28 12:47:10 UTC.
_FAILED_AT = 1_795_870_030.0


def test_notice_has_the_time_and_the_number_of_waiting_notifications() -> None:
    """A time of another day has its date."""
    later = _FAILED_AT + 600
    assert describe_failing("Slack", _FAILED_AT, 17, later) == (
        "Channel Slack has been failing since 12:47 UTC: 17 notifications are waiting."
    )
    assert describe_failing("Slack", _FAILED_AT, 1, later).endswith(": 1 notification is waiting.")
    assert describe_failing("Slack", _FAILED_AT, 0, later + 86_400) == (
        "Channel Slack has been failing since 2026-11-28 12:47 UTC."
    )


def test_recipients_name_the_failing_ones() -> None:
    recipients = [("Slack", _FAILED_AT), ("Webhook", None)]
    assert describe_recipients(recipients, _FAILED_AT) == "Slack (failing since 12:47 UTC), Webhook"
    assert describe_recipients([], _FAILED_AT) == ""


class ReceiverScenario:
    """A channel whose receiver can be down, and its outbox."""

    def __init__(self) -> None:
        self.channel = Channel.objects.create(name="Slack", kind="slack")
        self.now = float(round(time.time()))
        self.error: SendError | None = SendError("connection refused")
        self.outbox = Outbox("one", lambda: self.now, lambda: 0.5, {"slack": self.send})

    def send(self, request: SendRequest) -> None:
        """Receive a notification, or fail."""
        if self.error is not None:
            raise self.error

    def add_delivery(self, key: str, kind: str = "firing", cluster: str = "default") -> None:
        """Add a delivery that is due."""
        Delivery.objects.create(
            channel=self.channel, cluster=cluster, key=key, kind=kind, payload={}, created_at=self.now,
            next_attempt_at=self.now,
        )  # fmt: skip

    def read_failing_since(self) -> float | None:
        """Return since when the channel has been failing."""
        self.channel.refresh_from_db()
        return self.channel.failing_since


@pytest.mark.django_db
@pytest.mark.parametrize("is_permanent", [False, True])
def test_channel_fails_from_the_first_failed_attempt_until_one_succeeds(is_permanent: bool) -> None:
    scenario = ReceiverScenario()
    scenario.error = SendError("connection refused", permanent=is_permanent)
    scenario.add_delivery("a/1")
    started_at = scenario.now
    assert scenario.outbox.send_next()
    assert scenario.read_failing_since() == started_at
    scenario.now += 60
    scenario.add_delivery("b/1")
    assert scenario.outbox.send_next()
    assert scenario.read_failing_since() == started_at
    scenario.now += 60
    scenario.add_delivery("c/1")
    scenario.error = None
    assert scenario.outbox.send_next()
    assert scenario.read_failing_since() is None


@pytest.mark.django_db
def test_failed_test_is_no_failing_channel() -> None:
    """Its result is on the card, and it delays no notification."""
    scenario = ReceiverScenario()
    scenario.add_delivery("a/1", kind="test")
    assert scenario.outbox.send_next()
    assert scenario.read_failing_since() is None


@pytest.mark.django_db
def test_notices_are_about_enabled_channels_of_the_cluster() -> None:
    """They count the notifications that the user may see."""
    scenario = ReceiverScenario()
    Channel.objects.create(name="off", kind="slack", enabled=False, failing_since=scenario.now)
    Channel.objects.create(name="other", kind="slack", cluster="eu", failing_since=scenario.now)
    Channel.objects.create(name="good", kind="slack")
    user = User.objects.create(username="viewer")
    assert read_failing_channels("default", scenario.now, user) == []
    for key, cluster in (("a/1", "default"), ("b/1", "default"), ("c/1", "eu")):
        scenario.add_delivery(key, cluster=cluster)
    assert scenario.outbox.send_next()
    (failing_channel,) = read_failing_channels("default", scenario.now, user)
    assert failing_channel.number == scenario.channel.pk
    assert failing_channel.notice.startswith("Channel Slack has been failing since ")
    assert failing_channel.notice.endswith(": 2 notifications are waiting.")
