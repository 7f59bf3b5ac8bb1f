"""Looks that may be left out. That none is left out which would change something is asserted by every `Watch`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.alerts.facts import AffectedGroup, Facts, SickInstance
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.round import EvaluationOutcome, evaluate
from fleet.alerts.routes import Route
from fleet.alerts.rules import DEFAULT_RULES
from fleet.alerts.silences import Silence
from fleet.alerts.unchanged_looks import SteadyState, steady_state_after
from fleet.vocabulary.incidents import Severity
from tests.fakes.alerting import AUTH, BACKEND, NO_TUNNEL, PROXY, Watch, sightless, sound, stranded

_SILENCE = Silence("upgrade", parse_matchers("cause=proxy-1"), 0.0, 2_000_000.0)
_SHAPES = (
    sound(),
    stranded(3),
    stranded(207),
    stranded(400),
    stranded(207, critical=2),
    stranded(40, NO_TUNNEL),
    replace(stranded(207, AUTH), recently_lost_count=0),
    replace(
        sound(),
        sick=(
            SickInstance(PROXY, "proxy-1 expired.", 9, expired_only=True),
            SickInstance(AUTH, "auth-1 is silent.", 4),
        ),
    ),
    replace(
        sound(), backend_down=True, groups=(AffectedGroup(BACKEND, stranded_count=900, at_risk_count=50),)
    ),
    replace(sound(), groups=(AffectedGroup(PROXY, at_risk_count=90),), excess_count=200),
    sightless(),
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
def test_look_that_is_left_out_would_have_changed_nothing(
    phases: list[tuple[Facts, int, bool]], interval: float
) -> None:
    """Whatever happens in whatever order, with silences that come and go; by the assertion in `Watch.run`."""
    watch = Watch(interval=interval)
    for facts, seconds, silenced in phases:
        watch.quiet = (_SILENCE,) if silenced else ()
        watch.run(seconds, facts, step=max(1.0, seconds / 60))


def test_quiet_fleet_needs_no_look() -> None:
    """New rounds that changed nothing are no reason."""
    watch = Watch()
    watch.run(60, sound())
    assert watch.needless == 59


def test_incident_that_everybody_was_told_of_needs_a_look_when_it_is_to_be_repeated() -> None:
    """Few looks in an hour: when it is told of, when a rule's time is over, when the trend is due."""
    watch = Watch()
    watch.run(4 * 3600, stranded(207))
    assert watch.kinds == ["firing"]
    assert watch.needless > 4 * 3600 - 60
    watch.run(120, stranded(207))
    assert watch.kinds == ["firing", "repeat"]


def _calm() -> tuple[SteadyState, Facts]:
    watch = Watch()
    watch.run(900, stranded(207))
    assert watch.calm is not None
    return watch.calm, replace(stranded(207), now=watch.now + 1, as_of=watch.now + 1)


@pytest.mark.parametrize(
    "change",
    [
        {"stranded_count": 208},
        {"fresh": False},
        {"groups": ()},
        {"versions": {"proxy-id-1": ("proxy-1", "2")}},
        {"now": 1.0},
    ],
)
def test_calm_ends_with_the_facts(change: dict[str, object]) -> None:
    """Any of them; and when the clock went back."""
    calm, facts = _calm()
    assert calm.applies_to(facts, DEFAULT_RULES, (), None)
    assert not calm.applies_to(replace(facts, **change), DEFAULT_RULES, (), None)  # type: ignore[arg-type]


def test_calm_ends_with_rules_silences_and_the_clock() -> None:
    """Somebody edits a rule, makes a silence, or the next message is due."""
    calm, facts = _calm()
    assert not calm.applies_to(facts, DEFAULT_RULES[1:], (), None)
    assert not calm.applies_to(facts, DEFAULT_RULES, (_SILENCE,), None)
    assert calm.applies_to(replace(facts, now=calm.valid_until - 1), DEFAULT_RULES, (), None)
    assert not calm.applies_to(replace(facts, now=calm.valid_until), DEFAULT_RULES, (), None)


def test_calm_ends_when_the_second_level_is_due_or_routes_change() -> None:
    """Where an incident can be escalated, routes count."""
    watch = Watch()
    watch.run(900, stranded(207))
    assert watch.incidents[PROXY.key].severity is Severity.CRITICAL
    facts = replace(stranded(207), now=watch.now + 1, as_of=watch.now + 1)
    tree = (Route("all", channels=(1,), escalate_after=3600.0, escalate_to=(2,)),)
    outcome = evaluate(watch.incidents, facts, DEFAULT_RULES, (), watch.past.get)

    calm = steady_state_after(outcome, facts, DEFAULT_RULES, (), tree)

    assert calm is not None
    assert calm.valid_until == (watch.incidents[PROXY.key].fired_at or 0) + 3600
    assert calm.applies_to(facts, DEFAULT_RULES, (), tree)
    assert not calm.applies_to(facts, DEFAULT_RULES, (), ())


def test_no_calm_after_a_change_or_without_eyes() -> None:
    """A look that opens an incident, and one that sees nothing."""
    outcome = evaluate({}, stranded(207), DEFAULT_RULES, (), lambda key: None)
    assert outcome.changed_incidents
    assert steady_state_after(outcome, stranded(207), DEFAULT_RULES, (), None) is None
    assert steady_state_after(EvaluationOutcome(), sightless(), DEFAULT_RULES, (), None) is None
