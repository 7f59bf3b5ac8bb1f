from __future__ import annotations

import pytest

from fleet.alerts import incident_actions, outbox
from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.incident_actions import ActionError, AlreadySilencedError
from fleet.alerts.outbox import Outbox
from fleet.audit import CONSOLE_ACTOR
from fleet.models import Cluster
from fleet.models.alerting import Channel, Delivery, Route, Silence
from fleet.models.changes import AuditEntry
from fleet.models.incidents import Incident, IncidentEvent

pytestmark = pytest.mark.django_db


@pytest.fixture
def incident() -> Incident:
    """A firing incident with one notification."""
    Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
    return Incident.objects.create(
        cluster_id="default", key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1", generation=1,
        state="firing", severity=2, opened_at=1.0, fired_at=2.0, notified_at=31.0, notification_count=1,
    )  # fmt: skip


def test_acknowledgement_is_sent_once_to_channels_that_support_it(incident: Incident) -> None:
    """PagerDuty gets it if it was notified of the incident; e-mail does not."""
    root = Route.objects.get(name="Everything")
    for kind in ("pagerduty", "email"):
        channel = Channel.objects.create(name=kind, kind=kind)
        root.channels.add(channel)
        Delivery.objects.create(
            channel=channel,
            incident=incident,
            key="k",
            kind="firing",
            payload={},
            created_at=1.0,
            next_attempt_at=1.0,
        )
    assert incident_actions.acknowledge(incident, "ada", 10.0)
    assert not incident_actions.acknowledge(incident, "bob", 11.0)
    incident.refresh_from_db()
    assert (incident.acknowledged_by, incident.acknowledged_at) == ("ada", 10.0)
    acknowledgements = Delivery.objects.filter(kind="acknowledged")
    assert [delivery.channel.kind for delivery in acknowledgements] == ["pagerduty"]
    incident_actions.unacknowledge(incident, "ada", 12.0)
    incident_actions.add_note(incident, "ada", " looks like the switch ", 13.0)
    assert list(IncidentEvent.objects.values_list("kind", "actor_name")) == [
        ("acknowledged", "ada"), ("unacknowledged", "ada"), ("note", "ada"),
    ]  # fmt: skip
    with pytest.raises(ActionError):
        incident_actions.add_note(incident, "ada", "  ", 14.0)


@pytest.mark.parametrize("console_url", ["https://console.example.com", "https://console.example.com/"])
def test_links_of_an_acknowledgement_lead_to_pages(incident: Incident, console_url: str) -> None:
    """With one slash, however the public URL of the console ends."""
    hook = Channel.objects.create(name="hook", kind="webhook")
    Route.objects.get(name="Everything").channels.add(hook)
    Delivery.objects.create(
        channel=hook, incident=incident, key="k", kind="firing", payload={}, created_at=1.0,
        next_attempt_at=1.0, sent_at=2.0,
    )  # fmt: skip
    assert incident_actions.acknowledge(incident, "ada", 10.0, console_url)
    (delivery,) = Delivery.objects.filter(kind="acknowledged")
    assert delivery.payload["links"]["Incident"] == f"https://console.example.com/incidents/{incident.pk}/"


def test_acknowledgement_reaches_a_channel_that_the_route_no_longer_has(incident: Incident) -> None:
    """A critical incident that became a warning left the route of the pager, whose alert is still open."""
    pager = Channel.objects.create(name="pager", kind="pagerduty")
    silent = Channel.objects.create(name="off", kind="pagerduty", enabled=False)
    for channel in (pager, silent):
        Delivery.objects.create(
            channel=channel, incident=incident, key="k", kind="firing", payload={}, created_at=1.0,
            next_attempt_at=1.0, sent_at=2.0,
        )  # fmt: skip
    assert incident_actions.acknowledge(incident, "ada", 10.0)
    (delivery,) = Delivery.objects.filter(kind="acknowledged")
    assert (delivery.channel, delivery.next_attempt_at) == (pager, 10.0)


def test_test_notification_is_sent_once_and_holds_back_nothing() -> None:
    """A failed test is over: later notifications of the channel are not delayed by it."""
    channel = Channel.objects.create(name="ops", kind="webhook")
    incident_actions.enqueue_test_notification(channel, 10.0, CONSOLE_ACTOR)

    def refuse(request: SendRequest) -> None:
        raise SendError("connection refused")

    sender = Outbox("one", lambda: 11.0, lambda: 0.5, {"webhook": refuse})
    later_delivery = Delivery.objects.create(
        channel=channel, key="k", kind="firing", payload={}, created_at=10.0, next_attempt_at=99.0
    )
    assert sender.send_next()
    assert not sender.send_next()
    test = Delivery.objects.get(kind="test")
    assert (test.failed_at, test.last_error) == (11.0, "connection refused")
    later_delivery.refresh_from_db()
    assert (later_delivery.next_attempt_at, later_delivery.delay_reason) == (99.0, "")


def test_removed_acknowledgement_updates_messages_in_place(incident: Incident) -> None:
    """Only in channels that do so and have a notification of the incident, whatever the routes are now.

    Its links and actions are kept.
    """
    root = Route.objects.get(name="Everything")
    payload = {
        "links": {"Runbook": "https://wiki.example.com/", "Incident": "https://old.example.com/"},
        "actions": [{"label": "Drain proxy-1", "url": "https://console.example.com/drain/"}],
    }
    for name, kind in (("slack", "slack"), ("hook", "webhook")):
        channel = Channel.objects.create(name=name, kind=kind)
        root.channels.add(channel)
        Delivery.objects.create(
            channel=channel, incident=incident, key="k", kind="firing", payload=payload, created_at=1.0,
            next_attempt_at=1.0,
        )  # fmt: skip
    root.channels.set(Channel.objects.filter(name="hook"))
    root.channels.add(Channel.objects.create(name="new", kind="slack"))
    assert incident_actions.acknowledge(incident, "ada", 10.0, "https://console.example.com")
    incident_actions.unacknowledge(incident, "ada", 10.4, "https://console.example.com")
    assert incident_actions.acknowledge(incident, "bob", 10.8, "https://console.example.com")
    incident_actions.unacknowledge(incident, "ada", 10.9)
    incident_actions.unacknowledge(incident, "ada", 11.0)
    assert list(
        Delivery.objects.filter(channel__name="slack").order_by("pk").values_list("kind", flat=True)
    ) == ["firing", "acknowledged", "unacknowledged", "acknowledged", "unacknowledged"]
    assert set(Delivery.objects.filter(kind="unacknowledged").values_list("channel__name", flat=True)) == {
        "slack"
    }
    assert not Delivery.objects.filter(channel__name="new").exists()
    acknowledgement = Delivery.objects.filter(channel__name="slack", kind="acknowledged").earliest("pk")
    assert acknowledgement.payload["key"] == acknowledgement.key
    assert acknowledgement.payload["actions"] == payload["actions"]
    assert acknowledgement.payload["links"]["Runbook"] == "https://wiki.example.com/"
    assert acknowledgement.payload["links"]["Incident"].startswith("https://console.example.com/incidents/")
    assert acknowledgement.payload["incident"]["acknowledged_by"] == "ada"


def test_silence_of_everything_requires_the_typed_word() -> None:
    """Every silence requires a reason and an end."""
    with pytest.raises(ActionError, match=r"such as cause=proxy-1\. Enter the word “everything”"):
        incident_actions.create_silence("", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR)
    with pytest.raises(ActionError, match="these matchers silence everything or almost everything"):
        incident_actions.create_silence("kind=*", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR)
    assert (
        incident_actions.create_silence(
            "", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR, typed_word="Everything"
        ).creator
        == "ada"
    )
    with pytest.raises(ActionError, match="enter a reason"):
        incident_actions.create_silence("kind=proxy", " ", "ada", 0.0, 60.0, CONSOLE_ACTOR)
    for ends_at in (0.0, 31 * 86400.0):
        with pytest.raises(ActionError, match="30 days"):
            incident_actions.create_silence("kind=proxy", "upgrade", "ada", 0.0, ends_at, CONSOLE_ACTOR)


def test_actions_on_silences_and_channels_are_in_the_audit_log() -> None:
    """A refused action is logged with its error."""
    row = incident_actions.create_silence("kind=proxy", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR)
    with pytest.raises(AlreadySilencedError):
        incident_actions.create_silence("kind=proxy", "again", "ada", 0.0, 60.0, CONSOLE_ACTOR)
    incident_actions.extend_silence(row, 3600.0, 30.0, CONSOLE_ACTOR)
    incident_actions.end_silence(row, 100.0, CONSOLE_ACTOR)
    # Nobody is reminded of an end that somebody chose.
    assert Silence.objects.get(pk=row.pk).expiry_notified
    channel = Channel.objects.create(name="hook", kind="webhook")
    incident_actions.retry_delivery(
        incident_actions.enqueue_test_notification(channel, 5.0, CONSOLE_ACTOR), 7.0, CONSOLE_ACTOR
    )
    incident_actions.delete_channel(channel, 9.0, CONSOLE_ACTOR)
    rows = list(AuditEntry.objects.order_by("pk"))
    assert [(row.action, row.outcome) for row in rows] == [
        ("silence.create", "succeeded"),
        ("silence.create", "refused"),
        ("silence.extend", "succeeded"),
        ("silence.end", "succeeded"),
        ("channel.test", "succeeded"),
        ("delivery.retry", "succeeded"),
        ("channel.delete", "succeeded"),
    ]
    assert "Extend that silence instead" in rows[1].detail
    assert (rows[0].subject, rows[0].reason) == ("kind=proxy", "upgrade")


def test_silence_is_extended_and_ended() -> None:
    """It is extended from its end; the warning before its end is sent again."""
    row = incident_actions.create_silence("kind=proxy", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR)
    Silence.objects.update(expiry_notified=True)
    incident_actions.extend_silence(row, 3600.0, 30.0, CONSOLE_ACTOR)
    row.refresh_from_db()
    assert (row.ends_at, row.expiry_notified) == (3660.0, False)
    incident_actions.end_silence(row, 100.0, CONSOLE_ACTOR)
    row.refresh_from_db()
    assert row.ends_at == 100.0
    with pytest.raises(ActionError):
        incident_actions.extend_silence(row, 31 * 86400.0, 100.0, CONSOLE_ACTOR)


def test_silence_that_was_changed_meanwhile_is_not_extended() -> None:
    """The second of two people has to reload."""
    row = incident_actions.create_silence("kind=proxy", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR)
    stale_silence = Silence.objects.get()
    incident_actions.end_silence(row, 30.0, CONSOLE_ACTOR)
    with pytest.raises(ActionError, match="Create a new silence instead"):
        incident_actions.extend_silence(stale_silence, 3600.0, 30.0, CONSOLE_ACTOR)
    assert Silence.objects.get().ends_at == 30.0


def test_channel_can_be_tested_and_failed_delivery_retried() -> None:
    """Both go through the outbox."""
    channel = Channel.objects.create(name="ops", kind="webhook")
    delivery = incident_actions.enqueue_test_notification(channel, 5.0, CONSOLE_ACTOR)
    assert (delivery.kind, delivery.next_attempt_at) == ("test", 5.0)
    Delivery.objects.update(failed_at=6.0, attempts=9)
    incident_actions.retry_delivery(delivery, 7.0, CONSOLE_ACTOR)
    delivery.refresh_from_db()
    assert (delivery.failed_at, delivery.attempts, delivery.next_attempt_at) == (None, 0, 7.0)


def test_timeline_says_who_silenced_the_incident_and_until_when(incident: Incident) -> None:
    """Wherever the silence was made; not of incidents that it does not match, or before it starts."""
    row = incident_actions.create_silence(
        "kind=proxy", "upgrade", "ada", 10.0, 3610.0, CONSOLE_ACTOR, now=10.0
    )
    incident_actions.create_silence("kind=auth", "upgrade", "ada", 10.0, 3610.0, CONSOLE_ACTOR)
    incident_actions.create_silence("cause=proxy-1", "later", "ada", 90.0, 3610.0, CONSOLE_ACTOR, now=10.0)
    incident_actions.extend_silence(row, 60.0, 20.0, CONSOLE_ACTOR)
    row.refresh_from_db()
    assert incident_actions.end_silence(row, 30.0, CONSOLE_ACTOR)
    assert not incident_actions.end_silence(row, 40.0, CONSOLE_ACTOR)
    name = CONSOLE_ACTOR.identity.name
    assert list(IncidentEvent.objects.values_list("incident", "kind", "at", "text")) == [
        (incident.pk, "silenced", 10.0, f"{name} silenced the incident for 1 h: upgrade"),
        (incident.pk, "extended", 20.0, f"{name} extended the silence until 1970-01-01 01:01:10 UTC."),
        (incident.pk, "unsilenced", 30.0, f"{name} ended the silence."),
    ]


def test_duplicate_silence_is_refused_while_it_is_active() -> None:
    """The order of the matchers does not matter; another cluster or a later period is allowed."""
    first = incident_actions.create_silence(
        "kind=proxy cause=p1", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR, cluster="eu"
    )
    with pytest.raises(AlreadySilencedError, match=f"silence {first.pk} by ada.*Extend that"):
        incident_actions.create_silence(
            "cause=p1 kind=proxy", "again", "bob", 30.0, 90.0, CONSOLE_ACTOR, cluster="eu"
        )
    incident_actions.create_silence(
        "kind=proxy cause=p1", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR, cluster="asia"
    )
    incident_actions.create_silence(
        "kind=proxy cause=p1", "upgrade", "ada", 60.0, 90.0, CONSOLE_ACTOR, cluster="eu"
    )
    incident_actions.create_silence("kind=proxy", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR, cluster="eu")
    assert Silence.objects.count() == 4
    incident_actions.create_silence("agent=a|b", "upgrade", "ada", 0.0, 60.0, CONSOLE_ACTOR, cluster="eu")
    with pytest.raises(AlreadySilencedError):
        incident_actions.create_silence("agent=b|a", "again", "bob", 0.0, 60.0, CONSOLE_ACTOR, cluster="eu")


def test_deliveries_of_a_deleted_channel_are_kept(incident: Incident) -> None:
    """Sent deliveries keep the name of the channel; pending deliveries fail with a reason."""
    channel = Channel.objects.create(name="ops", kind="webhook", cluster="default")
    for key, sent_at in (("a", 3.0), ("b", None)):
        Delivery.objects.create(
            channel=channel, incident=incident, key=key, kind="firing", payload={}, created_at=1.0,
            next_attempt_at=1.0, sent_at=sent_at,
        )  # fmt: skip
    assert incident_actions.delete_channel(channel, 9.0, CONSOLE_ACTOR) == 1
    sent_delivery, pending_delivery = Delivery.objects.order_by("key")
    assert (
        sent_delivery.channel,
        sent_delivery.channel_name,
        sent_delivery.sent_at,
        sent_delivery.last_error,
    ) == (None, "ops", 3.0, "")
    assert (pending_delivery.channel_name, pending_delivery.failed_at) == ("ops", 9.0)
    assert "deleted" in pending_delivery.last_error
    assert not outbox.select_due_deliveries(10.0).exists()


def test_test_delivery_belongs_to_the_cluster_of_its_channel() -> None:
    """Whoever may see the channel sees the result."""
    for owner in ("", "eu"):
        channel = Channel.objects.create(name="ops", kind="webhook", cluster=owner)
        assert incident_actions.enqueue_test_notification(channel, 5.0, CONSOLE_ACTOR).cluster == owner
