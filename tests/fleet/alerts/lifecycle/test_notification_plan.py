from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.findings import evaluate_rules
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.lifecycle.notification_plan import (
    find_due_notification,
    plan_notification,
    with_notification,
)
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.rules import DEFAULT_RULES
from fleet.alerts.silences import Silence
from fleet.vocabulary.incidents import Incident, IncidentState, NotificationKind, RuleMark, Severity
from tests.fakes.alerting import PROXY, AlertSimulation, healthy_facts, stranded_facts

_RULES = {rule.name: rule for rule in DEFAULT_RULES}
_FINDING = evaluate_rules(stranded_facts(207), DEFAULT_RULES)[PROXY.key]
_NEW = Incident("default", PROXY, 1, IncidentState.PENDING, 100.0)


def _evaluation(now: float, round_number: float | None = None) -> EvaluationContext:
    return EvaluationContext(now, now if round_number is None else round_number, _RULES)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"inhibited_by": "backend/default"}, "inhibited by backend/default"),
        ({"silenced_by": "upgrade"}, "silenced: upgrade"),
        (
            {"acknowledged_at": 1.0, "notified_at": 1.0, "notification_count": 1},
            "the incident is acknowledged, so only its resolution and flapping are notified",
        ),
        (
            {
                "acknowledged_at": 1.0,
                "notified_at": 1.0,
                "notification_count": 1,
                "severity": Severity.WARNING,
                "notified_severity": Severity.WARNING,
            },
            "the incident is acknowledged, so only its resolution, a severity above warning and flapping are notified",
        ),
    ],
)
def test_plan_contains_the_reason_why_nothing_is_sent(change: dict[str, object], reason: str) -> None:
    """The page shows the reason."""
    simulation = AlertSimulation()
    simulation.run(60, stranded_facts(207))
    open_incident = simulation.incidents[PROXY.key]
    incident = replace(open_incident, **({"notified_severity": open_incident.severity} | change))
    assert plan_notification(incident, _evaluation(simulation.now)).reason == reason
    assert find_due_notification(incident, _evaluation(simulation.now)) is None


@pytest.mark.parametrize(
    ("notified_count", "count", "is_notified"),
    [(3, 8, False), (3, 9, True), (20, 30, False), (20, 31, True)],
)
def test_growth_is_notified_by_factor_and_number(notified_count: int, count: int, is_notified: bool) -> None:
    """More than 5 agents and more than half as many again."""
    simulation = AlertSimulation()
    simulation.run(60, stranded_facts(207))
    incident = replace(
        simulation.incidents[PROXY.key], notified_affected_count=notified_count, affected_count=count
    )
    plan = plan_notification(incident, _evaluation(simulation.now))
    assert (plan.kind is NotificationKind.UPDATE) is is_notified


def test_pending_incident_says_when_it_fires() -> None:
    """As soon as it has lasted for enough polls and only its time is missing; the earliest of its rules counts."""
    rules = {
        name: replace(_RULES["Agents stranded"], name=name, pending_rounds=2, pending_seconds=seconds)
        for name, seconds in (("early", 60.0), ("late", 600.0))
    }
    mark = RuleMark(100.0, 100.0, 2, Severity.CRITICAL, 207, "207 agents stranded")
    evaluation_context = EvaluationContext(110.0, 110.0, rules)
    incident = replace(_NEW, severity=Severity.CRITICAL, marks=dict.fromkeys(rules, mark))
    assert plan_notification(incident, evaluation_context).reason == (
        "the incident is pending: it fires at 00:02:40 UTC if it lasts until then"
    )
    unsettled = replace(incident, marks=dict.fromkeys(rules, replace(mark, round_count=1)))
    assert plan_notification(unsettled, evaluation_context).reason == (
        "the incident is pending: its rule has not held long enough to fire"
    )


def test_plan_contains_the_time_of_the_next_notification() -> None:
    """The first notification after the group wait, then the repeat."""
    simulation = AlertSimulation()
    simulation.run(15, stranded_facts(207))
    incident = simulation.incidents[PROXY.key]
    first = plan_notification(incident, _evaluation(simulation.now))
    assert (first.at, first.kind) == (incident.opened_at + 30, NotificationKind.FIRING)
    notified = with_notification(incident, NotificationKind.FIRING, simulation.now)
    repeat = plan_notification(notified, _evaluation(simulation.now))
    assert (repeat.at, repeat.kind) == (simulation.now + 4 * 3600, NotificationKind.REPEAT)


def test_recovered_agents_are_notified_with_their_severity_and_count() -> None:
    """A proxy fails and its agents move within the group wait: one firing notification within 35 s, one resolved."""
    simulation = AlertSimulation()
    simulation.run(13, stranded_facts(113))
    proxy_silent = replace(stranded_facts(0), affected_groups=())
    simulation.run(60, proxy_silent)
    ((at, notification),) = simulation.notifications
    assert at <= 35
    assert (
        notification.incident.severity,
        notification.incident.peak_count,
        notification.incident.affected_count,
    ) == (
        Severity.CRITICAL,
        113,
        0,
    )
    assert notification.incident.summary == "113 agents were stranded."
    now = simulation.incidents[PROXY.key]
    assert (now.severity, now.summary) == (Severity.WARNING, "proxy-1 does not answer.")
    simulation.run(400, healthy_facts())
    assert simulation.notification_kinds == ["firing", "resolved"]


def test_agents_that_recovered_during_a_silence_are_not_notified_when_it_ends() -> None:
    """The notification describes the incident as it is then: a proxy that does not respond."""
    simulation = AlertSimulation()
    simulation.silences = [
        Silence("upgrade", parse_matchers("cause=proxy-1"), simulation.now, simulation.now + 3600)
    ]
    simulation.run(13, stranded_facts(113))
    proxy_silent = replace(stranded_facts(0), affected_groups=())
    simulation.run(3000, proxy_silent, step=5)
    simulation.silences = []
    simulation.run(10, proxy_silent)
    ((_, notification),) = simulation.notifications
    assert (notification.incident.severity, notification.incident.summary) == (
        Severity.WARNING,
        "proxy-1 does not answer.",
    )


def test_resolved_notification_of_a_silenced_incident_is_planned() -> None:
    """Not if no notification about the incident was sent before."""
    simulation = AlertSimulation()
    simulation.run(60, stranded_facts(207))
    simulation.run(5, healthy_facts())
    incident = replace(simulation.incidents[PROXY.key], silenced_by="upgrade")
    assert incident.state is IncidentState.RECOVERING
    resolved_plan = plan_notification(incident, _evaluation(simulation.now))
    assert resolved_plan.kind is NotificationKind.RESOLVED
    assert resolved_plan.at is not None
    assert resolved_plan.at > simulation.now
    assert find_due_notification(incident, _evaluation(simulation.now)) is None
    silenced_plan = plan_notification(replace(incident, notified_at=None), _evaluation(simulation.now))
    assert (silenced_plan.at, silenced_plan.reason) == (None, "silenced: upgrade")
