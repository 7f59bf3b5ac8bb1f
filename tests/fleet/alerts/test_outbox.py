from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.notifications import Links, make_test_notification, payload
from fleet.alerts.outbox import (
    GIVE_UP_AFTER,
    LEASE_SECONDS,
    SENDERS,
    Outbox,
    SenderSlots,
    backoff_seconds,
    prune,
)
from fleet.models import Cluster
from fleet.models.alerting import Channel, Delivery
from fleet.models.incidents import Incident, IncidentEvent
from fleet.models.sealed_secrets import seal
from tests.fakes.mail import mail_server
from tests.fakes.receivers import receiving

pytestmark = pytest.mark.django_db


class Killed(BaseException):
    """The process died here."""


class Post:
    """An outbox, a clock that is moved by hand, and a receiver that honours keys."""

    def __init__(self) -> None:
        Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
        self.channel = Channel.objects.create(
            name="ops", kind="webhook", config={"url": "https://example.com"}
        )
        self.now = 1_000_000.0
        self.tried: list[str] = []
        self.down = False
        self.die_after_sending = False
        self.box = self.outbox("one")

    def outbox(self, holder: str, senders: dict[str, Callable[[SendRequest], None]] | None = None) -> Outbox:
        """A process that sends."""
        return Outbox(holder, lambda: self.now, lambda: 0.5, senders or {"webhook": self.send})

    def send(self, errand: SendRequest) -> None:
        """Take a message, or not."""
        if self.down:
            raise SendError("connection refused")
        self.tried.append(errand.key)
        if self.die_after_sending:
            raise Killed

    def put(self, key: str, incident: Incident | None = None, **given: Any) -> Delivery:
        """Put a message into the outbox."""
        return Delivery.objects.create(
            channel=self.channel, incident=incident, key=key, kind="firing",
            payload=payload(make_test_notification("ops", self.now), Links()),
            created_at=self.now, next_attempt_at=given.pop("at", self.now), **given,
        )  # fmt: skip

    def pass_time(self, seconds: float, step: float = 5.0) -> None:
        """Let time pass with a process that works."""
        for _ in range(int(seconds / step)):
            self.now += step
            while self.box.send_next():
                pass

    def incident(self, number: int = 1) -> Incident:
        """Something to send messages about."""
        return Incident.objects.create(
            cluster_id="default", key=f"proxy/{number}", cause_kind="proxy", cause_id="p", generation=1,
            state="firing", severity=2, opened_at=self.now,
        )  # fmt: skip


def test_killed_between_sent_and_recorded_sends_again_under_the_same_key() -> None:
    """Nothing is lost, and a receiver that honours the key takes it once."""
    post = Post()
    post.put("a/1")
    post.die_after_sending = True
    with pytest.raises(Killed):
        post.box.send_next()
    post.die_after_sending = False
    second = post.outbox("two")
    assert not second.send_next()
    post.now += 61
    assert second.send_next()
    assert post.tried == ["a/1", "a/1"]
    assert list(dict.fromkeys(post.tried)) == ["a/1"]
    assert Delivery.objects.get().sent_at == post.now
    assert not second.send_next()


@pytest.mark.parametrize("refused", [False, True], ids=["sent", "given up"])
def test_killed_before_the_timeline_knows_sends_again(monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    """A message is recorded together with its line in the timeline, or not at all."""
    post = Post()
    delivery = post.put("1/1", post.incident())

    def refuse(errand: SendRequest) -> None:
        raise SendError("no such address", permanent=True)

    def die(**columns: Any) -> None:
        raise Killed

    box = post.outbox("one", {"webhook": refuse}) if refused else post.box
    with monkeypatch.context() as patch:
        patch.setattr(IncidentEvent.objects, "create", die)
        with pytest.raises(Killed):
            box.send_next()
    delivery.refresh_from_db()
    assert (delivery.sent_at, delivery.failed_at) == (None, None)
    post.now += 61
    assert box.send_next()
    assert IncidentEvent.objects.filter(kind="delivery").count() == 1


@pytest.mark.parametrize("error", [None, SendError("refused"), SendError("no such room", permanent=True)])
def test_step_that_was_paused_past_its_lease_records_nothing(error: SendError | None) -> None:
    """Another step sends the message meanwhile. Both have the same name: the process was started again."""
    post = Post()
    row = post.put("a/1", post.incident())
    post.put("b/1", post.incident(2))
    post.die_after_sending = True
    kept: list[tuple[Any, ...]] = []

    def pause(errand: SendRequest) -> None:
        post.now += LEASE_SECONDS + 1
        with pytest.raises(Killed):
            post.outbox("one").send_next()
        kept.extend(Delivery.objects.order_by("pk").values_list())
        if error is not None:
            raise error

    post.outbox("one", {"webhook": pause}).send_next()
    row.refresh_from_db()
    assert (row.attempts, row.leased_by, row.sent_at, row.failed_at) == (2, "one", None, None)
    assert list(Delivery.objects.order_by("pk").values_list()) == kept
    assert not IncidentEvent.objects.exists()


def test_server_down_for_an_hour_loses_nothing_and_keeps_the_order() -> None:
    """Firing comes before resolved, each once, soon after it is back."""
    post = Post()
    one, other = post.incident(1), post.incident(2)
    post.down = True
    post.put("1/1", one)
    post.pass_time(600)
    post.put("1/2", one)
    post.put("2/1", other)
    post.pass_time(3000)
    assert post.tried == []
    assert Delivery.objects.filter(last_error="connection refused").exists()
    post.down = False
    post.pass_time(900)
    assert sorted(post.tried) == ["1/1", "1/2", "2/1"]
    assert post.tried.index("1/1") < post.tried.index("1/2")
    assert IncidentEvent.objects.filter(incident=one, kind="delivery").count() == 2


def test_mail_server_down_for_an_hour_gets_page_and_resolve_once(settings: Settings) -> None:
    """A real server that refuses connections, then is there: both mails, in order, once, and a log that tells it."""
    post = Post()
    incident = post.incident()
    with mail_server(up=False) as mail:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_USE_TLS = "127.0.0.1", mail.port, False
        Channel.objects.update(kind="email", config={"to": "ops@example.com"})
        post.box = post.outbox("one", dict(SENDERS))
        page = post.put("1/1", incident)
        post.pass_time(1800, step=30)
        post.put("1/2", incident)
        post.pass_time(1800, step=30)
        page.refresh_from_db()
        assert "Connection refused" in page.last_error
        assert (page.sent_at, page.failed_at) == (None, None)
        assert 5 < page.attempts < 20
        assert post.now < page.next_attempt_at <= post.now + 1.2 * 900
        mail.start()
        post.pass_time(1200, step=30)
        again = [message["Refloat-Key"] for message in mail.messages]
    assert again == ["1/1", "1/2"]
    assert not Delivery.objects.filter(sent_at=None).exists()
    said = IncidentEvent.objects.filter(incident=incident, kind="delivery").values_list("text", flat=True)
    assert list(said) == ["Notification (firing) sent to ops.", "Notification (firing) sent to ops."]


def test_answer_500_then_200_is_sent_once_after_a_wait() -> None:
    """Over real HTTP, with the same key both times, and signed."""
    post = Post()
    with receiving(500) as receiver:
        Channel.objects.update(
            config={"url": receiver.url}, secrets=seal({"signing_key": "s"}), allow_private=True
        )
        post.put("a/1")
        box = post.outbox("one", dict(SENDERS))
        assert box.send_next()
        first = Delivery.objects.get()
        assert (first.sent_at, first.attempts) == (None, 1)
        assert "status 500" in first.last_error
        assert not box.send_next()
        post.now = first.next_attempt_at
        assert box.send_next()
    assert Delivery.objects.get().sent_at == post.now
    assert receiver.taken == ["a/1"]
    assert len(receiver.requests) == 2


def test_private_target_is_refused_and_shown_as_failed() -> None:
    """Without leave nothing is even tried."""
    post = Post()
    with receiving() as receiver:
        Channel.objects.update(config={"url": receiver.url})
        post.put("a/1")
        post.outbox("one", dict(SENDERS)).send_next()
        assert receiver.requests == []
    row = Delivery.objects.get()
    assert row.failed_at == post.now
    assert "private or loopback" in row.last_error


def test_given_up_after_a_day_and_the_next_goes_on() -> None:
    """Shown as failed, with the last error; what waited behind it is sent."""
    post = Post()
    incident = post.incident()
    post.down = True
    post.put("1/1", incident)
    post.pass_time(GIVE_UP_AFTER, step=300)
    post.put("1/2", incident)
    post.down = False
    Delivery.objects.filter(key="1/1").update(next_attempt_at=post.now)
    post.pass_time(1800, step=60)
    first, second = Delivery.objects.order_by("pk")
    assert first.failed_at is not None
    assert first.last_error == "connection refused"
    assert second.sent_at is not None


def test_limit_of_a_channel_spreads_messages() -> None:
    """Ten in a minute by default; the rest waits and says why."""
    post = Post()
    for number in range(25):
        post.put(f"a/{number}")
    while post.box.send_next():
        pass
    assert len(post.tried) == 10
    assert "limit" in Delivery.objects.filter(sent_at=None)[0].waits_for
    post.pass_time(180)
    assert len(post.tried) == 25


def test_quiet_hours_hold_a_message_until_they_end() -> None:
    """Not before its time."""
    post = Post()
    post.put("a/1", at=post.now + 3600)
    post.pass_time(3500, step=100)
    assert post.tried == []
    post.pass_time(200, step=100)
    assert post.tried == ["a/1"]


def test_bug_of_a_sender_keeps_nobody_elses_message() -> None:
    """It is logged, counted as a failure, and the next is sent."""
    post = Post()

    def broken(errand: SendRequest) -> None:
        raise KeyError("to")

    other = Channel.objects.create(name="mail", kind="email", config={})
    Delivery.objects.create(
        channel=other, key="m", kind="firing", payload={}, created_at=post.now, next_attempt_at=post.now
    )
    post.put("a/1")
    box = post.outbox("one", {"webhook": post.send, "email": broken})
    while box.send_next():
        pass
    assert post.tried == ["a/1"]
    assert "KeyError" in Delivery.objects.get(key="m").last_error


def test_waits_grow_to_a_ceiling_and_differ() -> None:
    """Five seconds, doubled, a quarter of an hour at most."""
    assert [backoff_seconds(n, 0.5) for n in (1, 2, 3)] == [5.0, 10.0, 20.0]
    assert backoff_seconds(40, 0.5) == 900.0
    assert backoff_seconds(3, 0.0) < backoff_seconds(3, 1.0)


def test_prune_leaves_what_is_not_finished() -> None:
    """Old and sent goes."""
    post = Post()
    post.put("a/1", sent_at=post.now)
    post.put("a/2")
    assert prune(post.now + 1) == 1
    assert Delivery.objects.get().key == "a/2"


def test_newest_attempt_is_noted() -> None:
    """Sent, refused or given up at once; being given up after a day is no attempt."""
    post = Post()
    post.put("a/1")
    post.box.send_next()
    assert Delivery.objects.get(key="a/1").attempted_at == post.now
    post.down = True
    second = post.put("a/2")
    post.now += 1
    post.box.send_next()
    second.refresh_from_db()
    attempted_at = second.attempted_at
    assert attempted_at == post.now
    post.now += GIVE_UP_AFTER + 1
    post.box.send_next()
    second.refresh_from_db()
    assert (second.failed_at, second.attempted_at) == (post.now, attempted_at)


def test_timeline_says_no_error_of_a_channel() -> None:
    """It may name an address that people limited to the cluster must not see; the delivery log has it."""
    post = Post()

    def refuse(errand: SendRequest) -> None:
        raise SendError("https://hooks.example.com answered 404", permanent=True)

    post.put("a/1", post.incident())
    post.outbox("one", {"webhook": refuse}).send_next()
    assert "hooks.example.com" in Delivery.objects.get().last_error
    event = IncidentEvent.objects.get(kind="delivery")
    assert event.text == "Notification (firing) to ops failed. The delivery log shows the error."


def test_cluster_whose_receivers_hang_holds_up_no_other() -> None:
    """It takes all the threads but one, which is for everybody else, however many messages wait before theirs."""
    post = Post()
    for number in range(30):
        Channel.objects.create(name=f"hangs-{number}", kind="webhook", cluster="other")
    for row in Channel.objects.filter(cluster="other"):
        Delivery.objects.create(
            channel=row, key=f"o/{row.pk}", cluster="other", kind="firing",
            payload={}, created_at=post.now, next_attempt_at=post.now - 60,
        )  # fmt: skip
    post.put("d/1", cluster="default")
    places = SenderSlots()
    sending: list[dict[str, int]] = []

    def note(errand: SendRequest) -> None:
        sending.append(dict(places.used_counts))
        post.send(errand)

    box = Outbox("one", lambda: post.now, lambda: 0.5, {"webhook": note}, places)
    places.used_counts["other"] = places.total - 1
    assert box.send_next()
    assert post.tried == ["d/1"]
    assert sending == [{"other": places.total - 1, "default": 1}]
    assert not box.send_next()
    places.used_counts["other"] = 0
    assert box.send_next()
    assert post.tried[1].startswith("o/")
    assert +places.used_counts == {}
