from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from dashboards.alerts.channel_cards import ChannelOutcome
from fleet.models.alerting import Channel, Delivery

pytestmark = pytest.mark.django_db


def _channel() -> Channel:
    return Channel.objects.create(name="ops", kind="email", config={"to": "all@example.com"})


def _delivery(channel: Channel, subject: str, **columns: Any) -> Delivery:
    return Delivery.objects.create(
        channel=channel, cluster="default", key=subject, kind="firing", payload={"subject": subject},
        **{"created_at": 1.0, "next_attempt_at": 1.0} | columns,
    )  # fmt: skip


def _outcome(config_admin: Client) -> ChannelOutcome:
    (card,) = config_admin.get("/alerts/channels/").context["cards"]
    outcome: ChannelOutcome = card.outcome
    return outcome


def test_channel_is_as_its_newest_attempt_was(config_admin: Client) -> None:
    """One that failed once and has sent since is well; one that sent and fails now is not."""
    channel = _channel()
    _delivery(channel, "1", failed_at=5.0, attempted_at=5.0, last_error="a private address")
    for number in range(2, 11):
        _delivery(channel, str(number), sent_at=5.0 + number, attempted_at=5.0 + number)
    assert _outcome(config_admin).state == "sent"
    # An old one that is tried again is the newest attempt.
    Delivery.objects.filter(key="1").update(failed_at=None, attempted_at=99.0, last_error="refused again")
    outcome = _outcome(config_admin)
    assert (outcome.state, outcome.detail, outcome.is_test) == ("failed", "refused again", False)


def test_channel_without_an_attempt_is_not_tested(config_admin: Client) -> None:
    """It is not OK before its first notification was sent; one that waits was not attempted."""
    channel = _channel()
    assert "Not tested yet" in config_admin.get("/alerts/channels/").content.decode()
    _delivery(channel, "1")
    page = config_admin.get("/alerts/channels/").content.decode()
    assert "Not tested yet" in page
    assert "1 notification waiting" in page
    Delivery.objects.update(sent_at=5.0, attempted_at=5.0)
    assert _outcome(config_admin).state == "sent"


def test_test_from_the_list_answers_there(config_admin: Client) -> None:
    """Sending, then accepted or failed; a test that nothing sends says what to check."""
    channel = _channel()
    answer = config_admin.post(f"/alerts/channels/{channel.pk}/", {"do": "test", "from": "list"})
    assert answer["Location"] == f"/alerts/channels/#channel-{channel.pk}"
    page = config_admin.get("/alerts/channels/").content.decode()
    assert "Sending a test…" in page
    assert 'data-refresh-ms="500"' in page
    Delivery.objects.update(created_at=time.time() - 11)
    assert "manage.py alerts" in config_admin.get("/alerts/channels/").content.decode()
    Delivery.objects.update(attempts=1, attempted_at=time.time(), last_error="it answered 404")
    page = config_admin.get("/alerts/channels/").content.decode()
    assert "<b>Test failed</b>" in page
    assert "It answered 404" in page
    Delivery.objects.update(sent_at=time.time())
    page = config_admin.get("/alerts/channels/").content.decode()
    assert "<b>Test accepted</b>" in page
    assert "data-refresh-ms" not in page


def test_delivery_log_shows_the_kind_beside_the_subject(config_admin: Client) -> None:
    """Not as the last word of the subject."""
    _delivery(_channel(), "CRIT default: no automatic recovery")
    page = config_admin.get("/alerts/channels/").content.decode()
    assert '<th scope="col">Subject</th><th scope="col">Kind</th>' in page
    assert "CRIT default: no automatic recovery</th><td>firing</td>" in page


def test_log_of_messages_is_live(config_admin: Client) -> None:
    """The list and the log of a channel ask again, sooner while a message waits."""
    channel = _channel()
    page = config_admin.get("/alerts/channels/").content.decode()
    assert all(
        part in page for part in ('id="channels" data-refresh', 'id="log" data-refresh', "js/refresh.js")
    )
    path = f"/alerts/channels/{channel.pk}/"
    assert "data-refresh-ms" not in config_admin.get(path).content.decode()
    config_admin.post(path, {"do": "test"})
    assert 'data-refresh-ms="500"' in config_admin.get(path).content.decode()
