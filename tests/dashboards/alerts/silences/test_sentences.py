from __future__ import annotations

import time

import pytest

from dashboards.alerts.silences.sentences import (
    Receivers,
    SilencePeriod,
    describe_incident_silence,
    describe_queued,
    describe_resolution,
    describe_silence,
    join_names,
    read_receivers,
    read_reminded_names,
)
from fleet.alerts import store
from fleet.models.alerting import Channel, Delivery, Route
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident

#: 2026-11-28 12:30 UTC.
_NOW = 1795869000.0
_PERIOD = SilencePeriod(_NOW, _NOW + 7200, _NOW)


def test_silence_of_an_incident_says_what_happens() -> None:
    """Until when, what is sent nevertheless and why, and what comes at the end."""
    sentences = describe_incident_silence(
        "proxy-1", _PERIOD, Receivers(1, ("ops-hook",)), reminded_names=("mail", "ops-hook")
    )
    assert sentences == [
        "No new notifications about proxy-1 until 14:30 UTC.",
        (
            "The notification that it is resolved is still sent to ops-hook, because ops-hook was notified and may "
            "keep an alert open until then."
        ),
        (
            "If the incident is firing at 14:15 UTC, a reminder that the silence ends is sent to mail and ops-hook."
        ),
        "If the incident is still firing at the end, its notifications continue.",
    ]


@pytest.mark.parametrize(
    ("receivers", "is_first_sent"), [(Receivers(1, ("ops",)), False), (Receivers(), True)]
)
def test_silence_of_an_acknowledged_incident_says_what_is_sent_after_it(
    receivers: Receivers, is_first_sent: bool
) -> None:
    """An acknowledged incident neither repeats nor escalates, but its first notification is sent."""
    sentence = describe_incident_silence("proxy-1", _PERIOD, receivers, is_acknowledged=True)[-1]
    assert "continue" not in sentence
    assert (
        "still firing at the end, its first notification is sent. After that, it" in sentence
    ) == is_first_sent
    assert "it notifies only of a higher severity than before, of flapping and of its resolution" in sentence


def test_exceptions_are_named() -> None:
    """Notifications that wait, and receivers of open alerts."""
    receivers = Receivers(1, ("am", "ops"), ("am",), (("ops", 2),), ("ops",), ("ops", "pager"))
    sentences = describe_incident_silence("proxy-1", _PERIOD, receivers)
    assert "2 notifications that are already queued are still sent to ops." in sentences
    assert "An acknowledgement is still sent to ops and pager." in sentences
    assert any(
        sentence.startswith("The message in ops is updated in place, without a new message: silence")
        for sentence in sentences
    )
    assert any(
        sentence.startswith("am keeps its alert: Refloat posts it every minute") for sentence in sentences
    )


def test_queued_notifications_are_counted_by_channel() -> None:
    """One, several to one channel, and several to two."""
    assert describe_queued(Receivers()) == ""
    single = Receivers(queued_counts=(("ops", 1),))
    assert describe_queued(single) == "1 notification that is already queued is still sent to ops."
    several = Receivers(queued_counts=(("ops", 3), ("pager", 1)))
    assert (
        describe_queued(several)
        == "4 notifications that are already queued are still sent to ops (3) and pager (1)."
    )


@pytest.mark.parametrize(
    ("receivers", "expected"),
    [
        (Receivers(), "No notification was sent so far, so none is sent when it is resolved."),
        (Receivers(1), "No notification channel gets the notification that it is resolved."),
        (
            Receivers(1, ("a", "b", "c")),
            (
                "The notification that it is resolved is still sent to a, b and c, because a, b and c were notified "
                "and may keep an alert open until then."
            ),
        ),
    ],
)
def test_resolution_is_sent_to_channels_that_were_notified(receivers: Receivers, expected: str) -> None:
    """As `plan_notification` and `plan_resolved_receivers` have it."""
    assert describe_resolution(receivers) == expected


def test_silence_by_matchers_is_about_agents_or_incidents() -> None:
    """A silence that starts later has both ends."""
    agents = describe_silence(_PERIOD, Receivers(), incident_count=1, is_about_agents=True)
    assert agents[0] == "Alert rules do not count matching agents until 14:30 UTC."
    assert agents[1].startswith("An incident that affects no other agents recovers. No notification was sent")
    later = SilencePeriod(_NOW + 86400, _NOW + 90000, _NOW)
    incidents = describe_silence(later, Receivers(), incident_count=0, is_about_agents=False)
    assert incidents == [
        (
            "No new notifications about matching incidents from Sun 29 Nov 12:30 UTC until Sun 29 Nov 13:30 UTC, also "
            "not about new ones."
        )
    ]
    assert join_names(["a"]) == "a"


@pytest.mark.django_db
def test_receivers_are_those_that_get_the_resolved_notification() -> None:
    """As planned when it is resolved: not those that take no resolutions, nor those of other incidents."""
    cluster = ensure_default_cluster()
    incidents = [
        Incident.objects.create(
            cluster=cluster, key=f"proxy/{number}", cause_kind="proxy", cause_id=str(number), cause_name="p",
            generation=1, state="firing", severity=2, opened_at=1.0, notified_at=31.0, notification_count=1,
        )
        for number in range(2)
    ]  # fmt: skip
    channels = [
        Channel.objects.create(name="am", kind="alertmanager"),
        Channel.objects.create(name="mail", kind="email", send_resolved=False),
        Channel.objects.create(name="hook", kind="webhook"),
    ]
    for number, channel in enumerate(channels):
        Delivery.objects.create(
            channel=channel, incident=incidents[number == 2], cluster="default", key=str(number), kind="firing",
            payload={}, created_at=1.0, next_attempt_at=1.0, sent_at=None if number == 1 else 2.0,
        )  # fmt: skip
    receivers = read_receivers(incidents[:1])
    assert receivers == Receivers(1, ("am",), ("am",), (("mail", 1),))
    planned_receivers = store.plan_resolved_receivers(incidents[0], {}, time.time())
    assert set(planned_receivers) == {channels[0].pk}
    # A first notification that waits counts: the receiver opens an alert when it arrives.
    Channel.objects.filter(name="mail").update(send_resolved=True)
    assert read_receivers(incidents[:1]).resolved_names == ("am", "mail")
    assert set(store.plan_resolved_receivers(incidents[0], {}, time.time())) == {
        channel.pk for channel in channels[:2]
    }
    assert read_receivers([]) == Receivers()


@pytest.mark.django_db
def test_reminded_channels_are_those_of_the_route_that_people_read() -> None:
    """Not the channels of other routes, those that keep an alert, and those that are disabled."""
    cluster = ensure_default_cluster()
    incident = Incident.objects.create(
        cluster=cluster, key="proxy/1", cause_kind="proxy", cause_id="1", cause_name="p",
        generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    Channel.objects.create(name="elsewhere", kind="slack")
    route = Route.objects.get(parent=None)
    route.channels.set(
        [
            Channel.objects.create(name="hook", kind="webhook"),
            Channel.objects.create(name="pager", kind="pagerduty"),
            Channel.objects.create(name="off", kind="email", enabled=False),
            Channel.objects.create(name="mail", kind="email"),
        ]
    )
    assert read_reminded_names(incident, _NOW) == ("hook", "mail")
