"""Evaluations that may be skipped. Every `AlertSimulation` asserts that a skipped one would have changed nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.alerts.evaluation import EvaluationOutcome, evaluate
from fleet.alerts.facts import AffectedGroup, ClusterFacts, SickInstance
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.routing.tree import Route
from fleet.alerts.rules import DEFAULT_RULES
from fleet.alerts.silences import Silence
from fleet.alerts.steady_state import SteadyState, steady_state_of
from fleet.vocabulary.incidents import Severity
from tests.fakes.alerting import (
    AUTH,
    BACKEND,
    NO_TUNNEL,
    PROXY,
    AlertSimulation,
    healthy_facts,
    stale_facts,
    stranded_facts,
)

_SILENCE = Silence("upgrade", parse_matchers("cause=proxy-1"), 0.0, 2_000_000.0)
_SHAPES = (
    healthy_facts(),
    stranded_facts(3),
    stranded_facts(207),
    stranded_facts(400),
    stranded_facts(207, critical=2),
    stranded_facts(40, NO_TUNNEL),
    replace(stranded_facts(207, AUTH), recently_lost_count=0),
    replace(
        healthy_facts(),
        sick_instances=(
            SickInstance(PROXY, "proxy-1 expired.", 9, is_expired_only=True),
            SickInstance(AUTH, "auth-1 is silent.", 4),
        ),
    ),
    replace(
        healthy_facts(),
        backend_down=True,
        affected_groups=(AffectedGroup(BACKEND, stranded_count=900, at_risk_count=50),),
    ),
    replace(
        healthy_facts(), affected_groups=(AffectedGroup(PROXY, at_risk_count=90),), excess_agent_count=200
    ),
    stale_facts(),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(_SHAPES), st.sampled_from((3, 8, 29, 31, 65, 301, 1000, 2000)), st.booleans()
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from((0.6, 5.0)),
)
def test_skipped_evaluation_would_have_changed_nothing(
    phases: list[tuple[ClusterFacts, int, bool]], poll_interval: float
) -> None:
    """Any sequence of facts and silences; the assertion is in `AlertSimulation.run`."""
    simulation = AlertSimulation(poll_interval=poll_interval)
    for facts, seconds, is_silenced in phases:
        simulation.silences = (_SILENCE,) if is_silenced else ()
        simulation.run(seconds, facts, step=max(1.0, seconds / 60))


def test_quiet_fleet_needs_no_evaluation() -> None:
    """A poll that changed nothing needs no evaluation."""
    simulation = AlertSimulation()
    simulation.run(60, healthy_facts())
    assert simulation.skipped_evaluation_count == 59


def test_notified_incident_is_evaluated_again_when_its_repeat_is_due() -> None:
    """Few evaluations in an hour: for its notification, the durations of its rules and its trend."""
    simulation = AlertSimulation()
    simulation.run(4 * 3600, stranded_facts(207))
    assert simulation.notification_kinds == ["firing"]
    assert simulation.skipped_evaluation_count > 4 * 3600 - 60
    simulation.run(120, stranded_facts(207))
    assert simulation.notification_kinds == ["firing", "repeat"]


def _steady_state() -> tuple[SteadyState, ClusterFacts]:
    simulation = AlertSimulation()
    simulation.run(900, stranded_facts(207))
    assert simulation.steady_state is not None
    return simulation.steady_state, replace(
        stranded_facts(207), now=simulation.now + 1, as_of=simulation.now + 1
    )


@pytest.mark.parametrize(
    "change",
    [
        {"stranded_count": 208},
        {"is_fresh": False},
        {"affected_groups": ()},
        {"versions": {"proxy-id-1": ("proxy-1", "2")}},
        {"now": 1.0},
    ],
)
def test_steady_state_ends_when_the_facts_change(change: dict[str, object]) -> None:
    """Any of the facts, or a clock that was set back."""
    state, facts = _steady_state()
    assert state.applies_to(facts, DEFAULT_RULES, (), None)
    assert not state.applies_to(replace(facts, **change), DEFAULT_RULES, (), None)  # type: ignore[arg-type]


def test_steady_state_ends_when_rules_or_silences_change_or_a_notification_is_due() -> None:
    """Somebody edits a rule, creates a silence, or the next notification is due."""
    state, facts = _steady_state()
    assert not state.applies_to(facts, DEFAULT_RULES[1:], (), None)
    assert not state.applies_to(facts, DEFAULT_RULES, (_SILENCE,), None)
    assert state.applies_to(replace(facts, now=state.valid_until - 1), DEFAULT_RULES, (), None)
    assert not state.applies_to(replace(facts, now=state.valid_until), DEFAULT_RULES, (), None)


def test_steady_state_ends_when_an_escalation_is_due_or_routes_change() -> None:
    """Routes count while an incident can be escalated."""
    simulation = AlertSimulation()
    simulation.run(900, stranded_facts(207))
    assert simulation.incidents[PROXY.key].severity is Severity.CRITICAL
    facts = replace(stranded_facts(207), now=simulation.now + 1, as_of=simulation.now + 1)
    tree = (Route("all", channel_ids=(1,), escalate_after=3600.0, escalate_to=(2,)),)
    outcome = evaluate(simulation.incidents, facts, DEFAULT_RULES, (), simulation.previous_incidents.get)

    state = steady_state_of(outcome, facts, DEFAULT_RULES, (), tree)

    assert state is not None
    assert state.valid_until == (simulation.incidents[PROXY.key].fired_at or 0) + 3600
    assert state.applies_to(facts, DEFAULT_RULES, (), tree)
    assert not state.applies_to(facts, DEFAULT_RULES, (), ())


def test_no_steady_state_after_a_change_or_with_stale_facts() -> None:
    """An evaluation that opens an incident, and one of stale facts."""
    outcome = evaluate({}, stranded_facts(207), DEFAULT_RULES, (), lambda key: None)
    assert outcome.changed_incidents
    assert steady_state_of(outcome, stranded_facts(207), DEFAULT_RULES, (), None) is None
    assert steady_state_of(EvaluationOutcome(), stale_facts(), DEFAULT_RULES, (), None) is None
