"""The life of an incident through evaluations, outbox and database to strict receivers: exactly the right messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from fleet.alerts import digest, incident_actions
from fleet.alerts.outbox import SEND_FUNCTIONS, Outbox
from fleet.audit import CONSOLE_ACTOR
from fleet.models.alerting import AlertClock, Channel, Delivery, Route, Silence
from fleet.models.incidents import Incident
from fleet.models.sealed_secrets import seal
from tests.fakes.evaluator_scenario import EvaluatorScenario
from tests.fakes.pagerduty_events import ROUTING_KEY, PagerDutyService, run_pagerduty
from tests.fakes.post_server import PostAnswer
from tests.fakes.slack_api import (
    OPS_ID,
    TOKEN,
    WEBHOOK_PATH,
    SlackChannel,
    SlackWorkspace,
    make_rate_limit,
    run_slack,
)
from tests.fakes.teams_webhook import TeamsWorkflow, run_teams

pytestmark = pytest.mark.django_db

_START = 1_790_000_000.0
_CONSOLE_URL = "https://console.example.com"
_AUDIT_ID = "C0000000002"


class LifeScenario:
    """A small fleet, whose incidents go to a channel of each kind."""

    def __init__(self, slack: SlackWorkspace, teams: TeamsWorkflow, pagerduty: PagerDutyService) -> None:
        self.slack, self.teams, self.pagerduty = slack, teams, pagerduty
        # Messages of the webhook go to a Slack channel of their own.
        slack.channels[_AUDIT_ID] = SlackChannel("audit")
        slack.webhooks[WEBHOOK_PATH] = _AUDIT_ID
        self.fleet = EvaluatorScenario()
        self.fleet.channel.delete()
        self.fleet.now = _START
        self.route = Route.objects.get(name="Everything")
        self.add_channel("slack", {"url": slack.api_url, "channel": "#ops"}, {"token": TOKEN})
        self.add_channel("slack-webhook", {}, {"url": f"{slack.url}{WEBHOOK_PATH}"})
        self.add_channel("teams", {}, {"url": teams.url})
        self.add_channel("pagerduty", {"url": pagerduty.url}, {"routing_key": ROUTING_KEY})
        self.outbox = self.make_outbox("one")

    def add_channel(self, kind: str, config: dict[str, str], secrets: dict[str, str]) -> None:
        """Add a channel to the root of the routes."""
        channel = Channel.objects.create(
            name=kind, kind=kind, config=config, secrets=seal(secrets), allow_private=True, per_minute=1000
        )
        self.route.channels.add(channel)

    def make_outbox(self, holder: str) -> Outbox:
        """Return the outbox of an alerting process."""
        return Outbox(holder, lambda: self.fleet.now, lambda: 0.5, SEND_FUNCTIONS)

    def run(self, seconds: int, stranded_count: int = 0, *, is_proxy_sick: bool = False) -> None:
        """Evaluate and send."""
        for _ in range(0, seconds, 5):
            self.fleet.run(5, stranded_count=stranded_count, is_proxy_sick=is_proxy_sick)
            self.send_all()

    def send_all(self) -> None:
        """Send everything that is due."""
        while self.outbox.send_next():
            pass

    @property
    def incident(self) -> Incident:
        """The incident of proxy-1."""
        return Incident.objects.get(cause_kind="proxy")

    def kinds_sent_to(self, channel: str) -> list[str]:
        """Return the kinds of the notifications that a channel accepted."""
        deliveries = Delivery.objects.filter(channel__name=channel).exclude(sent_at=None)
        return list(deliveries.order_by("pk").values_list("kind", flat=True))


@pytest.fixture
def life() -> Iterator[LifeScenario]:
    with run_slack() as slack, run_teams() as teams, run_pagerduty() as pagerduty:
        yield LifeScenario(slack, teams, pagerduty)


def test_whole_life_of_an_incident(life: LifeScenario) -> None:
    """Slack has one message in its last state, with the timeline as its thread; others have one message for each

    notification; PagerDuty has one alert. Silences and removed acknowledgements reach only Slack.
    """
    life.route.escalate_after = 600.0
    life.route.save()
    life.route.escalate_to.set(Channel.objects.filter(kind="slack"))
    life.run(120, is_proxy_sick=True)
    (message,) = life.slack.ops.messages
    assert message.view.title == "Warning: proxy-1 in cluster default"
    life.run(60, 12)
    assert message.view.title == "Critical: proxy-1 in cluster default"
    assert message.view.facts["⟦Affected⟧"] == "12 agents now, peak 12"
    life.run(700, 30)
    assert incident_actions.acknowledge(life.incident, "alice", life.fleet.now, _CONSOLE_URL)
    life.run(5, 30)
    assert message.view.facts["⟦State⟧"] == "Firing, acknowledged by alice"
    incident_actions.unacknowledge(life.incident, "alice", life.fleet.now, _CONSOLE_URL)
    life.run(5, 30)
    assert message.view.facts["⟦State⟧"] == "Firing"
    silence = incident_actions.create_silence(
        "cause=proxy-1", "new disks", "alice", life.fleet.now, life.fleet.now + 3600, CONSOLE_ACTOR
    )
    life.run(10, 30)
    assert message.view.facts["⟦State⟧"] == "Firing, silenced until 15:28 UTC by alice: new disks"
    assert "Silence" not in message.view.buttons
    incident_actions.extend_silence(silence, 3600, life.fleet.now, CONSOLE_ACTOR)
    life.run(10, 30)
    assert message.view.facts["⟦State⟧"] == "Firing, silenced until 16:28 UTC by alice: new disks"
    incident_actions.end_silence(Silence.objects.get(), life.fleet.now, CONSOLE_ACTOR)
    life.run(10, 30)
    assert message.view.facts["⟦State⟧"] == "Firing"
    life.run(400)
    assert life.incident.state == "resolved"
    assert message.view.title == "Resolved: proxy-1 in cluster default"
    assert message.view.facts["⟦Affected⟧"] == "0 agents now, peak 30"
    assert list(message.view.buttons) == ["Open incident", "Runbook"]
    assert life.slack.ops.messages == [message]
    assert [entry.partition(" default")[0] for entry in life.slack.ops.thread_of(message)] == [
        "+CRIT (worse)",
        "CRIT (more agents)",
        "+CRIT (not acknowledged)",
        "alice acknowledged the incident.",
        "The acknowledgement was removed.",
        "Silenced until 15:28 UTC by alice: new disks",
        "Silenced until 16:28 UTC by alice: new disks",
        "The silence ended.",
        "The incident is recovering: no alert rule matches any more.",
        "RESOLVED",
    ]
    kinds = ["firing", "worse", "update", "resolved"]
    assert life.kinds_sent_to("slack-webhook") == life.kinds_sent_to("teams") == kinds
    assert [message.view.title for message in life.slack.channels[_AUDIT_ID].messages] == [
        "Warning: proxy-1 in cluster default",
        "Critical (more severe): proxy-1 in cluster default",
        "Critical (more agents): proxy-1 in cluster default",
        "Resolved: proxy-1 in cluster default",
    ]
    assert len(life.teams.cards) == 4
    assert life.kinds_sent_to("pagerduty") == ["firing", "worse", "update", "acknowledged", "resolved"]
    assert [(alert.status, alert.severity) for alert in itertools.chain(*life.pagerduty.alerts.values())] == [
        ("resolved", "critical")
    ]
    assert not Delivery.objects.filter(sent_at=None).exists()


def test_incident_silenced_from_the_beginning_is_posted_when_its_silence_ends(life: LifeScenario) -> None:
    """The warning that the silence ends is its first message; the first notification is shown in the channel, too."""
    silence = incident_actions.create_silence(
        "cause=proxy-1", "new disks", "alice", life.fleet.now, life.fleet.now + 1200, CONSOLE_ACTOR
    )
    life.run(900, 12)
    assert life.slack.ops.messages == []
    incident_actions.notify_silence_end(silence, life.fleet.now, _CONSOLE_URL)
    life.send_all()
    (message,) = life.slack.ops.messages
    assert "silenced until 14:33 UTC" in message.view.facts["⟦State⟧"]
    assert life.teams.cards[0].texts[0] == "Critical (silence ends soon): proxy-1 in cluster default"
    assert life.pagerduty.alerts == {}
    life.run(400, 12)
    assert life.slack.ops.messages == [message]
    (entry,) = life.slack.ops.thread_of(message)
    assert entry.startswith("+CRIT default: 12 agents stranded")
    assert message.view.facts["⟦State⟧"] == "Firing"


def test_outage_that_is_over_within_the_grouping_wait_is_one_message(life: LifeScenario) -> None:
    """It says that it is over; PagerDuty, which would keep an alert, gets nothing. If it returns, all are notified."""
    life.run(15, 12)
    life.run(30)
    (message,) = life.slack.ops.messages
    assert message.view.title == "Over, was critical: proxy-1 in cluster default"
    assert message.view.facts["⟦State⟧"] == "Over"
    assert list(message.view.buttons) == ["Open incident", "Runbook"]
    assert [card.texts[0] for card in life.teams.cards] == [message.view.title]
    assert life.pagerduty.alerts == {}
    life.run(20, 12)
    (entry,) = life.slack.ops.thread_of(message)
    assert entry.startswith("+CRIT default: 12 agents stranded")
    assert message.view.facts["⟦State⟧"] == "Firing"
    assert life.kinds_sent_to("pagerduty") == ["firing"]
    life.run(400)
    assert life.slack.ops.messages == [message]
    assert life.kinds_sent_to("teams") == ["short-outage", "firing", "resolved"]
    assert life.kinds_sent_to("pagerduty") == ["firing", "resolved"]


def test_short_outage_without_a_channel_for_it_says_so(life: LifeScenario) -> None:
    """In the timeline: nobody has to guess why nothing was sent."""
    Channel.objects.exclude(kind="pagerduty").delete()
    life.run(15, 12)
    life.run(400)
    texts = list(life.incident.events.filter(kind="notification").values_list("text", flat=True))
    reason = "the route has no channel besides those that keep an alert until it is resolved."
    assert texts == [f"Notification due (short-outage), but not sent: {reason}"]
    assert not Delivery.objects.exists()


def test_digest_and_test_are_messages_of_their_own(life: LifeScenario) -> None:
    """Not in the thread of an incident."""
    life.run(60, 12)
    Channel.objects.exclude(kind="pagerduty").update(digest="daily")
    clock = AlertClock.objects.get()
    clock.digest_at = digest.newest_due_at(life.fleet.now) - 86400
    assert digest.enqueue_digests(clock, life.fleet.now, _CONSOLE_URL) == 3
    for channel in Channel.objects.all():
        incident_actions.enqueue_test_notification(channel, life.fleet.now, CONSOLE_ACTOR)
    life.send_all()
    titles = [message.view.title for message in life.slack.ops.messages]
    assert sorted(titles) == [
        "Critical: proxy-1 in cluster default",
        "DAILY DIGEST default: 1 critical incident",
        "Test notification from Refloat",
    ]
    assert [card.texts[0] for card in life.teams.cards if "DIGEST" in card.texts[0]] == [
        "DAILY DIGEST default: 1 critical incident"
    ]
    assert not any(life.slack.ops.thread_of(message) for message in life.slack.ops.messages)
    life.run(400)
    assert life.slack.ops.messages[0].view.title.startswith("Resolved")
    assert len(life.slack.ops.messages) == 3


def test_receivers_that_are_down_get_everything_later_in_order(life: LifeScenario) -> None:
    """Token revoked, workflow turned off, PagerDuty failing; all of them work again within a day."""
    life.slack.revoked_tokens.add(TOKEN)
    life.teams.is_turned_off = True
    life.pagerduty.answers += [PostAnswer(500)] * 5
    life.run(120, is_proxy_sick=True)
    life.run(60, 12)
    assert (
        "the token was revoked. Reinstall the Slack app"
        in Delivery.objects.filter(channel__kind="slack").earliest("pk").last_error
    )
    assert life.slack.ops.messages == life.teams.cards == []
    life.slack.revoked_tokens.clear()
    life.teams.is_turned_off = False
    life.run(1800, 12)
    (message,) = life.slack.ops.messages
    assert message.view.title == "Critical: proxy-1 in cluster default"
    assert [entry.partition(" default")[0] for entry in life.slack.ops.thread_of(message)] == [
        "+CRIT (worse)"
    ]
    assert [card.texts[0].partition(":")[0] for card in life.teams.cards] == [
        "Warning",
        "Critical (more severe)",
    ]
    assert [event["payload"]["severity"] for event in life.pagerduty.events] == ["warning", "critical"]


def test_slack_that_limits_the_rate_gets_everything_after_the_wait(life: LifeScenario) -> None:
    """One request only, until then; other channels do not wait."""
    life.slack.answers.append(make_rate_limit("300"))
    Channel.objects.get(kind="slack-webhook").delete()
    life.run(120, is_proxy_sick=True)
    life.run(60, 12)
    assert life.slack.methods == ["chat.postMessage"]
    assert len(life.teams.cards) == 2
    life.run(300, 12)
    assert life.slack.methods == ["chat.postMessage", "chat.postMessage", "chat.update", "chat.postMessage"]
    (message,) = life.slack.ops.messages
    assert message.view.title == "Critical: proxy-1 in cluster default"


def test_message_deleted_in_slack_is_posted_anew_and_updated_from_then_on(life: LifeScenario) -> None:
    life.run(60, 12)
    life.slack.ops.delete(life.slack.ops.messages[0])
    assert incident_actions.acknowledge(life.incident, "alice", life.fleet.now, _CONSOLE_URL)
    life.run(5, 12)
    (message,) = life.slack.ops.messages
    assert message.view.facts["⟦State⟧"] == "Firing, acknowledged by alice"
    life.run(400)
    assert life.slack.ops.messages == [message]
    assert message.view.title.startswith("Resolved")


def test_two_processes_send_each_message_once(life: LifeScenario) -> None:
    """They take turns, and each one updates the message of the other."""
    other_outbox = life.make_outbox("two")
    life.fleet.run(120, is_proxy_sick=True)
    life.fleet.run(60, stranded_count=12)
    life.fleet.run(400)
    outboxes = itertools.cycle([life.outbox, other_outbox])
    while next(outboxes).send_next() or next(outboxes).send_next():
        life.fleet.now += 1
    (message,) = life.slack.ops.messages
    assert message.view.title.startswith("Resolved")
    assert [entry.partition(" default")[0] for entry in life.slack.ops.thread_of(message)] == [
        "+CRIT (worse)", "The incident is recovering: no alert rule matches any more.", "RESOLVED",
    ]  # fmt: skip
    assert len(life.teams.cards) == 3


def test_channel_deleted_in_the_console_while_messages_wait(life: LifeScenario) -> None:
    """They are marked as failed, and nothing is sent to Slack any more, also not by a channel that is added later."""
    life.run(60, 12)
    life.slack.ops.is_member = False
    life.fleet.run(60, stranded_count=40)
    incident_actions.acknowledge(life.incident, "alice", life.fleet.now, _CONSOLE_URL)
    life.send_all()
    incident_actions.delete_channel(Channel.objects.get(kind="slack"), life.fleet.now, CONSOLE_ACTOR)
    life.slack.ops.is_member = True
    life.run(400, 40)
    (message,) = life.slack.ops.messages
    assert (message.edit_count, message.view.facts["⟦State⟧"]) == (1, "Firing, acknowledged by alice")
    errors: list[Any] = list(
        Delivery.objects.filter(channel=None, sent_at=None).values_list("last_error", flat=True)
    )
    assert all("The channel was deleted" in error for error in errors)
    life.add_channel("slack", {"url": life.slack.api_url, "channel": OPS_ID}, {"token": TOKEN})
    life.run(400)
    assert len(life.slack.ops.messages) == 1
