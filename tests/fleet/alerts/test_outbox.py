from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from fleet.alerts import incident_actions
from fleet.alerts.channels import Receipt, SendError, SendRequest
from fleet.alerts.outbox import (
    GIVE_UP_AFTER_SECONDS,
    LEASE_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    SEND_FUNCTIONS,
    Outbox,
    SenderSlots,
    backoff_seconds,
    prune,
)
from fleet.audit import CONSOLE_ACTOR
from fleet.models.alerting import Channel, Delivery
from fleet.models.incidents import IncidentEvent
from fleet.models.sealed_secrets import seal
from tests.fakes.mail import mail_server
from tests.fakes.outbox_scenario import OutboxScenario, ProcessKilledError
from tests.fakes.receivers import run_receiver

pytestmark = pytest.mark.django_db


def test_process_killed_before_recording_sends_again_with_the_same_key() -> None:
    """A receiver that deduplicates by key accepts the notification once."""
    scenario = OutboxScenario()
    scenario.add_delivery("a/1")
    scenario.die_after_sending = True
    with pytest.raises(ProcessKilledError):
        scenario.outbox.send_next()
    scenario.die_after_sending = False
    second = scenario.make_outbox("two")
    assert not second.send_next()
    scenario.now += 61
    assert second.send_next()
    assert scenario.attempted_keys == ["a/1", "a/1"]
    assert list(dict.fromkeys(scenario.attempted_keys)) == ["a/1"]
    assert Delivery.objects.get().sent_at == scenario.now
    assert not second.send_next()


@pytest.mark.parametrize("is_refused", [False, True], ids=["sent", "given up"])
def test_process_killed_before_writing_the_timeline_sends_again(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """A delivery and its timeline event are saved together."""
    scenario = OutboxScenario()
    delivery = scenario.add_delivery("1/1", scenario.create_incident())

    def refuse(request: SendRequest) -> None:
        raise SendError("no such address", permanent=True)

    def die(**columns: Any) -> None:
        raise ProcessKilledError

    outbox = scenario.make_outbox("one", {"webhook": refuse}) if is_refused else scenario.outbox
    with monkeypatch.context() as patch:
        patch.setattr(IncidentEvent.objects, "create", die)
        with pytest.raises(ProcessKilledError):
            outbox.send_next()
    delivery.refresh_from_db()
    assert (delivery.sent_at, delivery.failed_at) == (None, None)
    scenario.now += 61
    assert outbox.send_next()
    assert IncidentEvent.objects.filter(kind="delivery").count() == 1


@pytest.mark.parametrize("error", [None, SendError("refused"), SendError("no such room", permanent=True)])
def test_sender_paused_past_its_lease_records_nothing(error: SendError | None) -> None:
    """Another process sends the notification meanwhile, with the same name because it was restarted."""
    scenario = OutboxScenario()
    row = scenario.add_delivery("a/1", scenario.create_incident())
    scenario.add_delivery("b/1", scenario.create_incident(2))
    scenario.die_after_sending = True
    rows: list[tuple[Any, ...]] = []

    def pause(request: SendRequest) -> None:
        scenario.now += LEASE_SECONDS + 1
        with pytest.raises(ProcessKilledError):
            scenario.make_outbox("one").send_next()
        rows.extend(Delivery.objects.order_by("pk").values_list())
        if error is not None:
            raise error

    scenario.make_outbox("one", {"webhook": pause}).send_next()
    row.refresh_from_db()
    assert (row.attempts, row.leased_by, row.sent_at, row.failed_at) == (2, "one", None, None)
    assert list(Delivery.objects.order_by("pk").values_list()) == rows
    assert not IncidentEvent.objects.exists()


def test_receiver_outage_of_an_hour_loses_nothing_and_keeps_the_order() -> None:
    """Each notification is sent once, in order, soon after the receiver is back."""
    scenario = OutboxScenario()
    incident, other_incident = scenario.create_incident(1), scenario.create_incident(2)
    scenario.is_receiver_down = True
    scenario.add_delivery("1/1", incident)
    scenario.advance_time(600)
    scenario.add_delivery("1/2", incident)
    scenario.add_delivery("2/1", other_incident)
    scenario.advance_time(3000)
    assert scenario.attempted_keys == []
    assert Delivery.objects.filter(last_error="connection refused").exists()
    scenario.is_receiver_down = False
    scenario.advance_time(900)
    assert sorted(scenario.attempted_keys) == ["1/1", "1/2", "2/1"]
    assert scenario.attempted_keys.index("1/1") < scenario.attempted_keys.index("1/2")
    assert IncidentEvent.objects.filter(incident=incident, kind="delivery").count() == 2


def test_mail_server_outage_of_an_hour_delivers_each_mail_once(settings: Settings) -> None:
    """A real server that refuses connections at first; both mails are sent in order and logged."""
    scenario = OutboxScenario()
    incident = scenario.create_incident()
    with mail_server(up=False) as mail:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_USE_TLS = "127.0.0.1", mail.port, False
        Channel.objects.update(kind="email", config={"to": "ops@example.com"})
        scenario.outbox = scenario.make_outbox("one", dict(SEND_FUNCTIONS))
        firing = scenario.add_delivery("1/1", incident)
        scenario.advance_time(1800, step=30)
        scenario.add_delivery("1/2", incident)
        scenario.advance_time(1800, step=30)
        firing.refresh_from_db()
        assert "Connection refused" in firing.last_error
        assert (firing.sent_at, firing.failed_at) == (None, None)
        assert 5 < firing.attempts < 20
        assert scenario.now < firing.next_attempt_at <= scenario.now + 1.2 * 900
        mail.start()
        scenario.advance_time(1200, step=30)
        keys = [message["Refloat-Key"] for message in mail.messages]
    assert keys == ["1/1", "1/2"]
    assert not Delivery.objects.filter(sent_at=None).exists()
    texts = IncidentEvent.objects.filter(incident=incident, kind="delivery").values_list("text", flat=True)
    assert list(texts) == ["Notification (firing) sent to ops.", "Notification (firing) sent to ops."]


def test_status_500_is_retried_after_a_delay() -> None:
    """Over real HTTP, with the same key both times."""
    scenario = OutboxScenario()
    with run_receiver(500) as receiver:
        Channel.objects.update(
            config={"url": receiver.url}, secrets=seal({"signing_key": "s"}), allow_private=True
        )
        scenario.add_delivery("a/1")
        outbox = scenario.make_outbox("one", dict(SEND_FUNCTIONS))
        assert outbox.send_next()
        first = Delivery.objects.get()
        assert (first.sent_at, first.attempts) == (None, 1)
        assert "status 500" in first.last_error
        assert not outbox.send_next()
        scenario.now = first.next_attempt_at
        assert outbox.send_next()
    assert Delivery.objects.get().sent_at == scenario.now
    assert receiver.keys == ["a/1"]
    assert len(receiver.requests) == 2


def test_private_address_fails_the_delivery() -> None:
    """No request is sent."""
    scenario = OutboxScenario()
    with run_receiver() as receiver:
        Channel.objects.update(config={"url": receiver.url})
        scenario.add_delivery("a/1")
        scenario.make_outbox("one", dict(SEND_FUNCTIONS)).send_next()
        assert receiver.requests == []
    row = Delivery.objects.get()
    assert row.failed_at == scenario.now
    assert "private or loopback" in row.last_error


def test_delivery_fails_after_a_day_and_the_next_one_is_sent() -> None:
    """The failed delivery keeps its last error."""
    scenario = OutboxScenario()
    incident = scenario.create_incident()
    scenario.is_receiver_down = True
    scenario.add_delivery("1/1", incident)
    scenario.advance_time(GIVE_UP_AFTER_SECONDS, step=300)
    scenario.add_delivery("1/2", incident)
    scenario.is_receiver_down = False
    Delivery.objects.filter(key="1/1").update(next_attempt_at=scenario.now)
    scenario.advance_time(1800, step=60)
    first, second = Delivery.objects.order_by("pk")
    assert first.failed_at is not None
    assert first.last_error == "connection refused"
    assert second.sent_at is not None


def test_rate_limit_of_a_channel_delays_deliveries() -> None:
    """10 per minute by default; the others have a delay reason."""
    scenario = OutboxScenario()
    for number in range(25):
        scenario.add_delivery(f"a/{number}")
    while scenario.outbox.send_next():
        pass
    assert len(scenario.attempted_keys) == 10
    assert "limit" in Delivery.objects.filter(sent_at=None)[0].delay_reason
    scenario.advance_time(180)
    assert len(scenario.attempted_keys) == 25


def test_quiet_hours_delay_a_delivery_until_they_end() -> None:
    scenario = OutboxScenario()
    scenario.add_delivery("a/1", at=scenario.now + 3600)
    scenario.advance_time(3500, step=100)
    assert scenario.attempted_keys == []
    scenario.advance_time(200, step=100)
    assert scenario.attempted_keys == ["a/1"]


def test_exception_of_a_sender_does_not_block_other_channels() -> None:
    """The exception counts as a failed attempt."""
    scenario = OutboxScenario()

    def broken(request: SendRequest) -> None:
        raise KeyError("to")

    mail_channel = Channel.objects.create(name="mail", kind="email", config={})
    Delivery.objects.create(
        channel=mail_channel,
        key="m",
        kind="firing",
        payload={},
        created_at=scenario.now,
        next_attempt_at=scenario.now,
    )
    scenario.add_delivery("a/1")
    outbox = scenario.make_outbox("one", {"webhook": scenario.send, "email": broken})
    while outbox.send_next():
        pass
    assert scenario.attempted_keys == ["a/1"]
    assert "KeyError" in Delivery.objects.get(key="m").last_error


def test_backoff_grows_to_a_maximum_with_jitter() -> None:
    """5 s, doubled each time, at most 15 min."""
    assert [backoff_seconds(n, 0.5) for n in (1, 2, 3)] == [5.0, 10.0, 20.0]
    assert backoff_seconds(40, 0.5) == 900.0
    assert backoff_seconds(3, 0.0) < backoff_seconds(3, 1.0)


def test_prune_keeps_pending_deliveries() -> None:
    """Old deliveries that were sent are deleted."""
    scenario = OutboxScenario()
    scenario.add_delivery("a/1", sent_at=scenario.now)
    scenario.add_delivery("a/2")
    assert prune(scenario.now + 1) == 1
    assert Delivery.objects.get().key == "a/2"


def test_time_of_the_last_attempt_is_stored() -> None:
    """Failing after a day without a request is no attempt."""
    scenario = OutboxScenario()
    scenario.add_delivery("a/1")
    scenario.outbox.send_next()
    assert Delivery.objects.get(key="a/1").attempted_at == scenario.now
    scenario.is_receiver_down = True
    second = scenario.add_delivery("a/2")
    scenario.now += 1
    scenario.outbox.send_next()
    second.refresh_from_db()
    attempted_at = second.attempted_at
    assert attempted_at == scenario.now
    scenario.now += GIVE_UP_AFTER_SECONDS + 1
    scenario.outbox.send_next()
    second.refresh_from_db()
    assert (second.failed_at, second.attempted_at) == (scenario.now, attempted_at)


def test_timeline_does_not_show_the_error_of_a_channel() -> None:
    """The error may contain an address that people limited to the cluster must not see; the delivery log shows it."""
    scenario = OutboxScenario()

    def refuse(request: SendRequest) -> None:
        raise SendError("https://hooks.example.com answered 404", permanent=True)

    scenario.add_delivery("a/1", scenario.create_incident())
    scenario.make_outbox("one", {"webhook": refuse}).send_next()
    assert "hooks.example.com" in Delivery.objects.get().last_error
    event = IncidentEvent.objects.get(kind="delivery")
    assert event.text == "Notification (firing) to ops failed. The delivery log shows the error."


def test_hanging_receivers_of_a_cluster_do_not_delay_other_clusters() -> None:
    """One thread stays free for other clusters, however many deliveries are pending."""
    scenario = OutboxScenario()
    for number in range(30):
        Channel.objects.create(name=f"hangs-{number}", kind="webhook", cluster="other")
    for row in Channel.objects.filter(cluster="other"):
        Delivery.objects.create(
            channel=row, key=f"o/{row.pk}", cluster="other", kind="firing",
            payload={}, created_at=scenario.now, next_attempt_at=scenario.now - 60,
        )  # fmt: skip
    scenario.add_delivery("d/1", cluster="default")
    slots = SenderSlots()
    used_counts: list[dict[str, int]] = []

    def record_slots(request: SendRequest) -> None:
        used_counts.append(dict(slots.used_count_by_cluster))
        scenario.send(request)

    outbox = Outbox("one", lambda: scenario.now, lambda: 0.5, {"webhook": record_slots}, slots)
    slots.used_count_by_cluster["other"] = slots.thread_count - 1
    assert outbox.send_next()
    assert scenario.attempted_keys == ["d/1"]
    assert used_counts == [{"other": slots.thread_count - 1, "default": 1}]
    assert not outbox.send_next()
    slots.used_count_by_cluster["other"] = 0
    assert outbox.send_next()
    assert scenario.attempted_keys[1].startswith("o/")
    assert +slots.used_count_by_cluster == {}


def test_receipt_is_stored_and_handed_to_later_notifications_of_the_incident() -> None:
    """Of the newest one that has a receipt, per channel and incident."""
    scenario = OutboxScenario()
    incident = scenario.create_incident()
    received_entries: list[tuple[str, Receipt | None, bool]] = []

    def send(request: SendRequest) -> Receipt | None:
        received_entries.append((request.key, request.earlier_receipt, request.is_outdated))
        return None if request.key == "1/2" else {"ts": request.key}

    outbox = scenario.make_outbox("one", {"webhook": send})
    for key in ("1/1", "1/2", "1/3"):
        scenario.add_delivery(key, incident)
    scenario.add_delivery("2/1", scenario.create_incident(2))
    scenario.add_delivery("test")
    while outbox.send_next():
        pass
    assert sorted(received_entries, key=lambda entry: entry[0]) == [
        ("1/1", None, False), ("1/2", {"ts": "1/1"}, False), ("1/3", {"ts": "1/1"}, False), ("2/1", None, False),
        ("test", None, False),
    ]  # fmt: skip
    assert Delivery.objects.get(key="1/3").receipt == {"ts": "1/3"}
    assert Delivery.objects.filter(receipt__isnull=True).get().key == "1/2"
    other_channel = Channel.objects.create(name="other", kind="webhook")
    Delivery.objects.filter(key="1/1").update(sent_at=None, receipt=None)
    received_entries.clear()
    scenario.add_delivery("1/4", incident)
    Delivery.objects.filter(key="1/4").update(channel=other_channel)
    while outbox.send_next():
        pass
    assert sorted(received_entries, key=lambda entry: entry[0]) == [
        ("1/1", {"ts": "1/3"}, True),
        ("1/4", None, False),
    ]


def test_receiver_that_limits_the_rate_is_left_alone_until_then() -> None:
    """The whole channel waits, with notifications that are created meanwhile, and keeps the order."""
    scenario = OutboxScenario()
    incident = scenario.create_incident()
    attempt_count = 0

    def send(request: SendRequest) -> None:
        nonlocal attempt_count
        attempt_count += 1
        if scenario.now < 1_000_120.0:
            raise SendError("too many requests", retry_after_seconds=120.0)
        scenario.send(request)

    scenario.outbox = scenario.make_outbox("one", {"webhook": send})
    scenario.add_delivery("1/1", incident)
    scenario.add_delivery("2/1", scenario.create_incident(2))
    assert scenario.outbox.send_next()
    scenario.add_delivery("1/2", incident)
    scenario.add_delivery("3/1", scenario.create_incident(3))
    scenario.advance_time(115, step=1)
    assert attempt_count == 1
    delivery = Delivery.objects.get(key="3/1")
    assert delivery.delay_reason == "the receiver limits the rate of requests: next attempt at 13:48:40 UTC"
    assert delivery.next_attempt_at == 1_000_120.0
    incident_actions.retry_delivery(delivery, scenario.now, CONSOLE_ACTOR)
    assert not scenario.outbox.send_next()
    scenario.advance_time(10, step=1)
    assert scenario.attempted_keys == ["1/1", "2/1", "1/2", "3/1"]


def test_receiver_cannot_stop_a_channel_for_more_than_an_hour() -> None:
    """A wrong header must not lose notifications."""
    scenario = OutboxScenario()

    def refuse(request: SendRequest) -> None:
        raise SendError("too many requests", retry_after_seconds=1e9)

    scenario.add_delivery("a/1")
    scenario.make_outbox("one", {"webhook": refuse}).send_next()
    assert Delivery.objects.get().next_attempt_at == scenario.now + MAX_RETRY_AFTER_SECONDS
    assert scenario.make_outbox("two").send_next() is False
    scenario.now += MAX_RETRY_AFTER_SECONDS
    assert scenario.outbox.send_next()
    assert scenario.attempted_keys == ["a/1"]


def test_other_channels_do_not_wait_for_a_receiver_that_limits_the_rate() -> None:
    scenario = OutboxScenario()
    scenario.add_delivery("a/1")
    Channel.objects.update(rate_limited_until=scenario.now + 60)
    other_channel = Channel.objects.create(name="other", kind="webhook")
    scenario.add_delivery("b/1")
    Delivery.objects.filter(key="b/1").update(channel=other_channel)
    assert scenario.outbox.send_next()
    assert scenario.attempted_keys == ["b/1"]


@pytest.mark.parametrize("is_refused", [False, True], ids=["sent", "failed"])
def test_channel_deleted_during_an_attempt(is_refused: bool) -> None:
    """The row says what happened: sent, or not sent because the channel was deleted."""
    scenario = OutboxScenario()

    def delete_channel(request: SendRequest) -> None:
        incident_actions.delete_channel(
            Channel.objects.get(pk=scenario.channel.pk), scenario.now, CONSOLE_ACTOR
        )
        if is_refused:
            raise SendError("token revoked", retry_after_seconds=30.0)

    scenario.add_delivery("1/1", scenario.create_incident())
    scenario.add_delivery("2/1", scenario.create_incident(2))
    assert scenario.make_outbox("one", {"webhook": delete_channel}).send_next()
    first, second = Delivery.objects.order_by("pk")
    assert "deleted before" in second.last_error
    assert (first.channel_id, first.channel_name) == (None, "ops")
    if is_refused:
        assert (first.sent_at, first.failed_at) == (None, scenario.now)
        assert "deleted before" in first.last_error
    else:
        assert (first.sent_at, first.failed_at, first.last_error) == (scenario.now, None, "")
    assert not scenario.outbox.send_next()
