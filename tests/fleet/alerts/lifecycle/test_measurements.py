from __future__ import annotations

from dataclasses import replace

from fleet.alerts.facts import AffectedGroup
from fleet.alerts.findings import evaluate_rules
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.lifecycle.measurements import with_marks, with_measurements
from fleet.alerts.rules import DEFAULT_RULES
from fleet.vocabulary.incidents import Incident, IncidentState, Severity
from tests.fakes.alerting import PROXY, AlertSimulation, healthy_facts, stranded_facts

_RULES = {rule.name: rule for rule in DEFAULT_RULES}
_FINDING = evaluate_rules(stranded_facts(207), DEFAULT_RULES)[PROXY.key]
_NEW = Incident("default", PROXY, 1, IncidentState.PENDING, 100.0)


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


def test_names_of_agents_stay_until_there_are_others() -> None:
    """The notification that an incident is resolved names those that it affected."""
    context = EvaluationContext(130.0, 130.0, _RULES)
    first_finding = replace(_FINDING, agent_names=("agent-1",))
    incident = with_measurements(with_marks(_NEW, first_finding, context), first_finding, context)
    assert incident.agent_names == ("agent-1",)
    assert with_measurements(incident, replace(first_finding, agent_names=()), context).agent_names == (
        "agent-1",
    )
    assert with_measurements(incident, replace(first_finding, agent_names=("b",)), context).agent_names == (
        "b",
    )


def test_trend_has_at_most_60_points() -> None:
    """A point is added only when the count changes."""
    simulation = AlertSimulation()
    for count in range(100, 1600, 2):
        simulation.run(11, stranded_facts(count), step=11)
    simulation.run(60, healthy_facts(), step=10)
    assert len(simulation.incidents[PROXY.key].trend) == 60
