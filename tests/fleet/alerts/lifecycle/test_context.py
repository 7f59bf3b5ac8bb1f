from __future__ import annotations

import pytest

from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.rules import DEFAULT_RULES
from fleet.vocabulary.incidents import Incident, IncidentState, RuleMark, Severity
from tests.fakes.alerting import PROXY

_CONTEXT = EvaluationContext(100.0, 100.0, {rule.name: rule for rule in DEFAULT_RULES})


def _mark(*, is_firing: bool) -> RuleMark:
    return RuleMark(90.0, 100.0, 3, Severity.WARNING, 5, "5 agents stranded.", is_firing=is_firing)


@pytest.mark.parametrize(
    ("is_firing_by_rule", "strongest_name"),
    [
        ({"Few agents stranded": True, "Agents stranded": False}, "Few agents stranded"),
        ({"Few agents stranded": True, "Agents stranded": True}, "Agents stranded"),
        ({"Few agents stranded": False, "Agents stranded": False}, "Agents stranded"),
        ({"removed yesterday": True}, "deleted"),
    ],
)
def test_strongest_rule_is_the_most_severe_that_fires(
    is_firing_by_rule: dict[str, bool], strongest_name: str
) -> None:
    """Before any fires, of those that match; a rule that was deleted meanwhile has a replacement."""
    marks = {name: _mark(is_firing=is_firing) for name, is_firing in is_firing_by_rule.items()}
    incident = Incident("default", PROXY, 1, IncidentState.FIRING, 90.0, marks=marks)
    assert _CONTEXT.strongest_rule(incident).name == strongest_name
