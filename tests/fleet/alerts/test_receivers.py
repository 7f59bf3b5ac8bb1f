from __future__ import annotations

import pytest

from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.models.alerting import Channel, Delivery, Route
from fleet.models.incidents import Incident, IncidentEvent
from fleet.vocabulary.incidents import Severity
from tests.fakes.evaluator_scenario import EvaluatorScenario

pytestmark = pytest.mark.django_db


def test_timeline_shows_that_no_notification_was_sent() -> None:
    """The route has no channel."""
    scenario = EvaluatorScenario()
    Route.objects.get(name="Everything").channels.clear()
    scenario.run(60, stranded_count=20)
    scenario.run(400)
    texts = IncidentEvent.objects.filter(kind="notification").order_by("pk").values_list("text", flat=True)
    assert list(texts) == [
        "Notification due (firing), but not sent: the route has no channel.",
        "Notification due (resolved), but not sent: the route has no channel.",
    ]
    assert scenario.delivery_kinds == []


def test_short_outage_is_not_sent_to_receivers_that_keep_alerts() -> None:
    """They would show an alert that is over, until somebody closes it."""
    scenario = EvaluatorScenario()
    root = Route.objects.get(name="Everything")
    for kind in ("pagerduty", "alertmanager", "email"):
        root.channels.add(Channel.objects.create(name=kind, kind=kind))
    scenario.run(15, stranded_count=20)
    scenario.run(600)
    deliveries = Delivery.objects.values_list("channel__name", "kind")
    assert sorted(deliveries) == [("email", "short-outage"), ("ops", "short-outage")]


def test_channel_that_is_new_gets_a_first_notification() -> None:
    """Not a reminder of an incident that it never heard of; the others get the reminder."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=20)
    late = Channel.objects.create(name="late", kind="webhook", config={"url": "https://example.com/late"})
    Route.objects.get(name="Everything").channels.add(late)
    scenario.run(2 * 4 * 3600 + 60, stranded_count=20, step=180)
    kinds = list(Delivery.objects.order_by("created_at", "-kind", "pk").values_list("channel__name", "kind"))
    assert kinds == [
        ("ops", "firing"), ("ops", "repeat"), ("late", "firing"), ("late", "repeat"), ("ops", "repeat"),
    ]  # fmt: skip
    first_payload = Delivery.objects.get(channel=late, kind="firing").payload
    assert first_payload["kind"] == "firing"
    assert first_payload["subject"].startswith("CRIT default: 20 agents stranded")
    assert len(set(Delivery.objects.filter(channel=late).values_list("key", flat=True))) == 2


def test_lower_severity_is_sent_to_channels_that_update_in_place_only() -> None:
    """The agents have recovered, the proxy has not: kinds say so with `severity_note`."""
    scenario = EvaluatorScenario()
    root = Route.objects.get(name="Everything")
    for slug in CHANNEL_KINDS.keys() - {"webhook"}:
        root.channels.add(Channel.objects.create(name=slug, kind=slug))
    scenario.run(60, stranded_count=20)
    Delivery.objects.update(sent_at=scenario.now)
    scenario.run(120, is_proxy_sick=True)
    assert Incident.objects.get(cause_kind="proxy").severity == Severity.WARNING.look.number
    deliveries = Delivery.objects.filter(kind="severity")
    kinds_without_note = {slug for slug, kind in CHANNEL_KINDS.items() if not kind.severity_note}
    assert set(deliveries.values_list("channel__kind", flat=True)) == kinds_without_note == {"slack"}
