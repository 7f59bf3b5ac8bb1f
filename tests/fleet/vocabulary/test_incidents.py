from __future__ import annotations

from dataclasses import replace

from fleet.vocabulary.incidents import (
    Cause,
    CauseKind,
    Incident,
    IncidentState,
    RuleMark,
    Severity,
    is_console_cause,
)
from tests.fakes.alerting import PROXY


def test_incident_is_named_by_cluster_cause_and_generation() -> None:
    """For ever, and for every receiver."""
    incident = Incident("default", PROXY, 3, IncidentState.FIRING, 100.0)
    assert incident.id == "default/proxy/proxy-id-1/3"


def test_cause_is_named_once() -> None:
    """The kind is not repeated if the name contains it."""
    assert PROXY.label == "proxy-1"
    assert Cause(CauseKind.REGION, "eu", "region eu").label == "region eu"
    assert Cause(CauseKind.GROUP, "blue", "proxy group blue").label == "proxy group blue"


def test_duration_ends_when_it_became_quiet() -> None:
    """The recovery time is not included."""
    assert Incident("d", PROXY, 1, IncidentState.FIRING, 100.0).duration_seconds(160.0) == 60.0
    quiet = Incident("d", PROXY, 1, IncidentState.RESOLVED, 100.0, recovering_since=150.0, resolved_at=450.0)
    assert quiet.duration_seconds(999.0) == 50.0


def test_kinds_are_ordered_by_strength() -> None:
    """Inhibition reads the order."""
    assert [kind.value for kind in CauseKind] == [
        "console", "cluster", "backend", "region", "auth", "proxy-group", "proxy", "agents", "fleet",
        "identity",
    ]  # fmt: skip
    assert Severity.CRITICAL > Severity.WARNING > Severity.INFO


def test_key_of_the_console_differs_from_others() -> None:
    """A cause may be named as it likes: the kind before the slash counts."""
    assert is_console_cause(Cause(CauseKind.CONSOLE, "default", "Refloat monitoring").key)
    assert not is_console_cause(Cause(CauseKind.PROXY, "console/1", "console").key)
    assert not is_console_cause("")


def test_rules_that_fired_are_named_when_they_no_longer_match() -> None:
    """The rule that made an incident critical, after its agents recovered; not one that has not held long enough."""
    mark = RuleMark(100.0, 100.0, 1, Severity.WARNING, 3, "3 agents stranded.")
    incident = Incident("d", PROXY, 1, IncidentState.FIRING, 100.0, marks={"Few agents stranded": mark})
    assert incident.shown_rule_names == ("Few agents stranded",)
    later_incident = replace(incident, fired_rule_names=("Agents stranded",))
    assert later_incident.shown_rule_names == ("Agents stranded",)
