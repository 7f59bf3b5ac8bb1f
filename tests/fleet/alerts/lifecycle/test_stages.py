from __future__ import annotations

from dataclasses import replace

from fleet.alerts.facts import AffectedGroup, SickInstance
from fleet.alerts.findings import evaluate_rules
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.lifecycle.stages import advance, advance_while_blind
from fleet.alerts.rules import DEFAULT_RULES
from fleet.vocabulary.incidents import Incident, IncidentState, Severity, TimelineKind
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


def test_severity_that_decreases_is_an_update_in_place_and_in_the_timeline() -> None:
    """No notification is sent again; a severity that was notified before is an update, too."""
    simulation = AlertSimulation()
    sick = replace(healthy_facts(), sick_instances=(SickInstance(PROXY, "proxy-1 expired.", 100),))
    for seconds, facts in ((120, stranded_facts(207)), (120, sick), (120, stranded_facts(207))):
        simulation.run(seconds, facts)
    assert simulation.notification_kinds == ["firing"]
    assert [(update.kind.value, update.incident.severity) for update in simulation.updates_in_place] == [
        ("severity", Severity.WARNING),
        ("severity", Severity.CRITICAL),
    ]
    assert [
        entry.text for _, entry in simulation.timeline_entries if entry.kind is TimelineKind.SEVERITY
    ] == [
        "The severity decreased from critical to warning: proxy-1 expired.",
        "The severity increased from warning to critical: 207 agents stranded.",
    ]
