from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.facts import AffectedGroup
from fleet.alerts.findings import evaluate_rules
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.lifecycle.notification_plan import (
    find_due_notification,
    plan_notification,
    with_notification,
)
from fleet.alerts.lifecycle.stages import advance, advance_while_blind
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.rules import DEFAULT_RULES
from fleet.alerts.silences import Silence
from fleet.vocabulary.incidents import Incident, IncidentState, NotificationKind, Severity
from tests.fakes.alerting import PROXY, AlertSimulation, healthy_facts, stranded_facts

_RULES = {rule.name: rule for rule in DEFAULT_RULES}
_FINDING = evaluate_rules(stranded_facts(207), DEFAULT_RULES)[PROXY.key]
_NEW = Incident("default", PROXY, 1, IncidentState.PENDING, 100.0)


def _evaluation(now: float, round_number: float | None = None) -> EvaluationContext:
    return EvaluationContext(now, now if round_number is None else round_number, _RULES)


def test_pending_incident_fires_after_two_rounds() -> None:
    """A second evaluation of the same round does not count."""
    first_round = advance(_NEW, _FINDING, _evaluation(100.0, 1.0)).incident
    assert first_round is not None
    first_round_again = advance(first_round, _FINDING, _evaluation(101.0, 1.0)).incident
    assert first_round_again is not None
    assert first_round_again.state is IncidentState.PENDING
    firing = advance(first_round_again, _FINDING, _evaluation(102.0, 2.0)).incident
    assert firing is not None
    assert (firing.state, firing.fired_at, firing.affected_count) == (IncidentState.FIRING, 102.0, 207)


def test_pending_incident_that_ends_is_dropped() -> None:
    """A single round is no incident."""
    assert advance(_NEW, None, _evaluation(100.0)).incident is None


def test_hold_drops_pending_incidents_and_restarts_the_recovery_time() -> None:
    """Without polls no incident fires or resolves."""
    assert advance_while_blind(_NEW, 200.0).incident is None
    quiet = replace(_NEW, state=IncidentState.RECOVERING, recovering_since=150.0)
    recovering = advance_while_blind(quiet, 200.0).incident
    assert recovering is not None
    assert recovering.recovering_since == 200.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"inhibited_by": "backend/default"}, "inhibited by backend/default"),
        ({"silenced_by": "upgrade"}, "silenced: upgrade"),
        (
            {"acknowledged_at": 1.0, "notified_at": 1.0, "notification_count": 1},
            "the incident is acknowledged",
        ),
    ],
)
def test_plan_contains_the_reason_why_nothing_is_sent(change: dict[str, object], reason: str) -> None:
    """The page shows the reason."""
    simulation = AlertSimulation()
    simulation.run(60, stranded_facts(207))
    open_incident = simulation.incidents[PROXY.key]
    incident = replace(open_incident, notified_severity=open_incident.severity, **change)  # type: ignore[arg-type]
    assert plan_notification(incident, _evaluation(simulation.now)).reason == reason
    assert find_due_notification(incident, _evaluation(simulation.now)) is None


def test_plan_contains_the_time_of_the_next_notification() -> None:
    """The first notification after the group wait, then the repeat."""
    simulation = AlertSimulation()
    simulation.run(15, stranded_facts(207))
    incident = simulation.incidents[PROXY.key]
    first = plan_notification(incident, _evaluation(simulation.now))
    assert (first.at, first.kind) == (incident.opened_at + 30, NotificationKind.FIRING)
    repeat = plan_notification(with_notification(incident, simulation.now), _evaluation(simulation.now))
    assert (repeat.at, repeat.kind) == (simulation.now + 4 * 3600, NotificationKind.REPEAT)


def test_resolved_incident_keeps_its_highest_severity_and_peak() -> None:
    """Not the severity that it had at its end."""
    simulation = AlertSimulation()
    simulation.run(60, stranded_facts(207))
    critical = simulation.incidents[PROXY.key]
    simulation.run(120, stranded_facts(3))
    simulation.run(90, replace(stranded_facts(0), affected_groups=()))
    assert simulation.incidents[PROXY.key].severity is Severity.WARNING

    simulation.run(1200, healthy_facts())

    last_state = simulation.fired_incidents[critical.id]
    assert last_state.state is IncidentState.RESOLVED
    assert (last_state.severity, last_state.summary, last_state.peak_count) == (
        Severity.CRITICAL,
        "207 agents were stranded.",
        207,
    )


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


def test_incident_without_affected_agents_is_described_by_its_peak() -> None:
    """The sentence and the peak count the same agents, also if most recovered before the incident fired."""
    simulation = AlertSimulation()
    simulation.run(
        4,
        replace(
            stranded_facts(60), affected_groups=(AffectedGroup(PROXY, stranded_count=60, at_risk_count=70),)
        ),
    )
    simulation.run(60, stranded_facts(80))
    assert simulation.incidents[PROXY.key].summary == "80 agents stranded."
    simulation.run(10, healthy_facts())
    quiet = simulation.incidents[PROXY.key]
    assert (quiet.state, quiet.affected_count, quiet.peak_count) == (IncidentState.RECOVERING, 0, 130)
    assert quiet.summary == "60 agents were stranded and 70 at risk."
    simulation.run(400, healthy_facts())
    (last_state,) = simulation.fired_incidents.values()
    assert (last_state.summary, last_state.peak_count) == (quiet.summary, 130)


def test_past_title_names_the_instance_if_only_its_rule_fired() -> None:
    """One agent strands before the proxy's minute is over, and moves: the title was never about that agent."""
    simulation = AlertSimulation()
    simulation.run(20, stranded_facts(1))
    simulation.run(60, replace(stranded_facts(0), affected_groups=()))
    firing = simulation.incidents[PROXY.key]
    assert (firing.state, firing.summary) == (IncidentState.FIRING, "proxy-1 does not answer.")
    simulation.run(10, healthy_facts())
    quiet = simulation.incidents[PROXY.key]
    assert (quiet.state, quiet.fired_rule_names) == (IncidentState.RECOVERING, ("Auth or proxy failing",))
    assert quiet.summary == "proxy-1 was failing: 1 agent was stranded."
    simulation.run(400, healthy_facts())
    assert [state.summary for state in simulation.fired_incidents.values()] == [quiet.summary]


def test_incident_keeps_the_names_of_all_rules_that_fired() -> None:
    """Marks are only of rules that held last, but the peak severity comes from an earlier rule."""
    simulation = AlertSimulation()
    simulation.run(30, stranded_facts(207))
    simulation.run(90, replace(stranded_facts(0), affected_groups=()))
    incident = simulation.incidents[PROXY.key]
    assert [*incident.marks] == ["Auth or proxy failing"]
    assert incident.fired_rule_names == ("Agents stranded", "Auth or proxy failing")


def test_agents_at_risk_that_strand_later_are_described_as_stranded() -> None:
    """The number of affected agents stays the same while they strand. They are too few for a rule about agents."""
    simulation = AlertSimulation()
    for at_risk in (27, 18, 0, 27):
        group = AffectedGroup(PROXY, stranded_count=27 - at_risk, at_risk_count=at_risk)
        simulation.run(20, replace(stranded_facts(27 - at_risk), affected_groups=(group,)))
    simulation.run(10, healthy_facts())
    quiet = simulation.incidents[PROXY.key]
    assert (quiet.state, quiet.peak_count) == (IncidentState.RECOVERING, 27)
    assert quiet.summary == "proxy-1 was failing: 27 agents were stranded."


def test_trend_has_at_most_60_points() -> None:
    """A point is added only when the count changes."""
    simulation = AlertSimulation()
    for count in range(100, 1600, 2):
        simulation.run(11, stranded_facts(count), step=11)
    simulation.run(60, healthy_facts(), step=10)
    assert len(simulation.incidents[PROXY.key].trend) == 60


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
    silenced_plan = plan_notification(replace(incident, notification_count=0), _evaluation(simulation.now))
    assert (silenced_plan.at, silenced_plan.reason) == (None, "silenced: upgrade")
