"""Rows of the delivery log."""

from __future__ import annotations

import pytest

from dashboards.alerts.delivery_rows import HIDDEN_CHANNEL_TEXT, delivery_row_of
from fleet.models.alerting import Channel, Delivery


@pytest.mark.django_db
def test_delivery_row_has_readable_text() -> None:
    """Waiting, sending, sent, failed."""
    channel = Channel.objects.create(name="ops", kind="webhook")
    row = Delivery(channel=channel, key="k", kind="firing", payload={}, created_at=0.0, next_attempt_at=50.0)
    assert delivery_row_of(row, 10.0, is_limited_user=False)["state"] == "waiting"
    row.leased_until = 20.0
    assert delivery_row_of(row, 10.0, is_limited_user=False)["state"] == "sending"
    row.failed_at = 30.0
    assert delivery_row_of(row, 40.0, is_limited_user=False)["state"] == "failed"
    row.sent_at = 30.0
    assert delivery_row_of(row, 40.0, is_limited_user=False)["state"] == "sent"


@pytest.mark.django_db
def test_notification_behind_others_says_what_it_waits_for() -> None:
    """A due one that was not attempted has no time of the next attempt, which would be in the past."""
    channel = Channel(name="ops", kind="webhook")
    row = Delivery(channel=channel, key="k", kind="firing", payload={}, created_at=0.0, next_attempt_at=50.0)
    assert delivery_row_of(row, 40.0, is_limited_user=False)["age_ms"] == -10_000
    due_row = delivery_row_of(row, 60.0, is_limited_user=False)
    assert (due_row["state"], due_row["at"], due_row["delay_reason"]) == ("waiting", None, "")
    queue_reason = "waits for earlier notifications of this channel"
    channel.rate_limited_until = 70.0
    assert delivery_row_of(row, 60.0, is_limited_user=False)["delay_reason"] == queue_reason
    assert delivery_row_of(row, 80.0, is_limited_user=False)["delay_reason"] == ""
    channel.failing_since = 45.0
    assert delivery_row_of(row, 80.0, is_limited_user=False)["delay_reason"] == queue_reason
    channel.enabled = False
    assert delivery_row_of(row, 80.0, is_limited_user=False)["delay_reason"] == "the channel is disabled"
    row.attempts, row.delay_reason = 1, "the last attempt failed"
    assert delivery_row_of(row, 80.0, is_limited_user=False)["delay_reason"] == "the last attempt failed"


@pytest.mark.django_db
def test_error_of_the_installations_channel_is_hidden_from_limited_readers() -> None:
    """It may name an address; a deleted channel is named, and may have been the installation's."""
    installation_channel = Channel.objects.create(name="ops", kind="webhook")
    own = Channel.objects.create(name="ops", kind="webhook", cluster="eu")
    for channel, error_text in (
        (installation_channel, HIDDEN_CHANNEL_TEXT),
        (own, "refused"),
        (None, HIDDEN_CHANNEL_TEXT),
    ):
        row = Delivery(
            channel=channel, channel_name="gone", key="k", kind="firing", payload={}, created_at=0.0,
            next_attempt_at=0.0, last_error="refused",
        )  # fmt: skip
        assert delivery_row_of(row, 1.0, is_limited_user=True)["error"] == error_text
        assert delivery_row_of(row, 1.0, is_limited_user=False)["error"] == "refused"
    assert delivery_row_of(row, 1.0, is_limited_user=False)["channel"] == "gone (deleted)"
    row.last_error = ""
    assert delivery_row_of(row, 1.0, is_limited_user=True)["error"] == ""
