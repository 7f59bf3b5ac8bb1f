"""Order of the notifications in an outbox: of an incident, behind a channel that fails, and with several senders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.outbox import LEASE_SECONDS, Outbox
from fleet.models.alerting import Channel, Delivery
from tests.fakes.outbox_scenario import OutboxScenario, ProcessKilledError

pytestmark = pytest.mark.django_db


def _add_to_other_channel(scenario: OutboxScenario, key: str, **fields: Any) -> Delivery:
    """Add a pending delivery of another channel."""
    channel, _ = Channel.objects.get_or_create(name="other", kind="webhook")
    delivery = scenario.add_delivery(key, **fields)
    delivery.channel = channel
    delivery.save()
    return delivery


def _due_times() -> dict[str, tuple[float, str]]:
    """Return the time of the next attempt, and the reason of the delay, by key."""
    rows = Delivery.objects.values_list("key", "next_attempt_at", "delay_reason")
    return {key: (next_attempt_at, delay_reason) for key, next_attempt_at, delay_reason in rows}


def test_notification_waits_for_earlier_ones_of_its_incident_and_channel() -> None:
    """Only for those: other incidents and other channels do not wait."""
    scenario = OutboxScenario()
    incident = scenario.create_incident(1)
    scenario.add_delivery("1/1", incident, at=scenario.now + 60)
    scenario.add_delivery("1/2", incident)
    scenario.add_delivery("2/1", scenario.create_incident(2))
    _add_to_other_channel(scenario, "1/2 other", incident=incident)
    while scenario.outbox.send_next():
        pass
    assert scenario.attempted_keys == ["2/1", "1/2 other"]
    scenario.advance_time(60)
    assert scenario.attempted_keys[2:] == ["1/1", "1/2"]


def test_notification_that_is_being_sent_holds_back_the_next_one_of_its_incident() -> None:
    """A second sender must not overtake the first one."""
    scenario = OutboxScenario()
    incident = scenario.create_incident()
    other_outbox = scenario.make_outbox("two")

    def send(request: SendRequest) -> None:
        assert not other_outbox.send_next()
        scenario.send(request)

    scenario.add_delivery("1/1", incident)
    scenario.add_delivery("1/2", incident)
    assert scenario.make_outbox("one", {"webhook": send}).send_next()
    assert other_outbox.send_next()
    assert scenario.attempted_keys == ["1/1", "1/2"]


def test_notification_that_was_given_up_releases_the_next_one_of_its_incident() -> None:
    scenario = OutboxScenario()
    incident = scenario.create_incident()
    scenario.add_delivery("1/1", incident, failed_at=scenario.now)
    scenario.add_delivery("1/2", incident)
    assert scenario.outbox.send_next()
    assert scenario.attempted_keys == ["1/2"]


def test_longest_due_notification_is_sent_first() -> None:
    """Of those due at the same time, the one that was created first."""
    scenario = OutboxScenario()
    for key, delay in (("third", 0.0), ("fourth", 0.0), ("second", -10.0), ("first", -20.0)):
        scenario.add_delivery(key, at=scenario.now + delay)
    while scenario.outbox.send_next():
        pass
    assert scenario.attempted_keys == ["first", "second", "third", "fourth"]


def test_untried_notifications_wait_behind_a_failing_channel() -> None:
    """One request at a time asks whether the channel works again. Others keep their time: those that were tried, those
    that are due later, and those of other channels.
    """
    scenario = OutboxScenario()
    scenario.is_receiver_down = True
    now = scenario.now
    scenario.add_delivery("tried now")
    scenario.add_delivery("untried", at=now + 1)
    scenario.add_delivery("tried before", attempts=1, at=now + 2)
    scenario.add_delivery("later", at=now + 3600)
    _add_to_other_channel(scenario, "of another channel", at=now + 3)
    assert scenario.outbox.send_next()
    blocked_until = now + 5.0
    assert _due_times() == {
        "tried now": (blocked_until, "the last attempt failed"),
        "untried": (blocked_until, "the channel is failing; an earlier notification is retried first"),
        "tried before": (now + 2, ""),
        "later": (now + 3600, ""),
        "of another channel": (now + 3, ""),
    }


def test_notifications_held_behind_a_failing_channel_are_released_when_it_works() -> None:
    """Those of other channels, and those that wait for something else, stay."""
    scenario = OutboxScenario()
    now = scenario.now
    reason = "the channel is failing; an earlier notification is retried first"
    scenario.add_delivery("retried", attempts=1)
    scenario.add_delivery("held", at=now + 600, delay_reason=reason)
    scenario.add_delivery("quiet hours", at=now + 700, delay_reason="quiet hours")
    _add_to_other_channel(scenario, "held elsewhere", at=now + 800, delay_reason=reason)
    scenario.now += 1
    assert scenario.outbox.send_next()
    assert scenario.attempted_keys == ["retried"]
    assert _due_times() == {
        "retried": (now, ""),
        "held": (scenario.now, ""),
        "quiet hours": (now + 700, "quiet hours"),
        "held elsewhere": (now + 800, reason),
    }
    assert scenario.outbox.send_next()
    assert scenario.attempted_keys == ["retried", "held"]


def test_sender_that_another_one_overtook_leaves_its_result_alone() -> None:
    """The lease expired during the request; the other process has sent the notification, or is sending it."""
    scenario = OutboxScenario()
    scenario.add_delivery("a/1")
    leases: list[tuple[str, int]] = []

    def fail_after_the_lease(request: SendRequest) -> None:
        scenario.now += LEASE_SECONDS + 1
        scenario.die_after_sending = True
        with pytest.raises(ProcessKilledError):
            scenario.make_outbox("two").send_next()
        # The count of attempts alone does not tell the two senders apart.
        Delivery.objects.update(attempts=1)
        leases.extend(Delivery.objects.values_list("leased_by", "attempts"))
        raise SendError("no such address", permanent=True)

    assert scenario.make_outbox("one", {"webhook": fail_after_the_lease}).send_next()
    assert leases == [("two", 1)]
    delivery = Delivery.objects.get()
    assert (delivery.leased_by, delivery.failed_at, delivery.last_error) == ("two", None, "")


class _Interruption:
    """Runs something once, immediately before a sender writes its lease."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self.is_over = False

    def __call__(self, execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        if not self.is_over and sql.startswith('UPDATE "fleet_delivery" SET "leased_by"'):
            self.is_over = True
            self._action()
        return execute(sql, *arguments)


def _send_once(outbox: Outbox) -> None:
    assert outbox.send_next()


def _die_while_sending(outbox: Outbox) -> None:
    with pytest.raises(ProcessKilledError):
        outbox.send_next()


@pytest.mark.parametrize("other_sends", [_send_once, _die_while_sending])
def test_sender_that_chose_the_same_notification_takes_another_one(
    other_sends: Callable[[Outbox], None],
) -> None:
    """The other sender has the lease between the choice and the lease of this one."""
    scenario = OutboxScenario()
    scenario.add_delivery("a/1")
    scenario.add_delivery("b/1", at=scenario.now + 1)
    other_outbox = scenario.make_outbox("two")
    scenario.now += 1
    scenario.die_after_sending = other_sends is _die_while_sending
    interruption = _Interruption(lambda: other_sends(other_outbox))
    with connection.execute_wrapper(interruption):
        if scenario.die_after_sending:
            _die_while_sending(scenario.outbox)
        else:
            _send_once(scenario.outbox)
    assert interruption.is_over
    assert scenario.attempted_keys == ["a/1", "b/1"]
    assert not scenario.outbox.send_next()
