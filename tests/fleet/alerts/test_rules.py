from __future__ import annotations

from dataclasses import replace

from fleet.alerts.findings import evaluate_rules
from fleet.alerts.rules import DEFAULT_RULES, Rule, RuleKind, effective_rules
from fleet.vocabulary.incidents import Severity
from tests.fakes.alerting import stranded


def test_threshold_is_the_larger_of_number_and_share() -> None:
    """Five agents, or half a percent of the cluster."""
    rule = next(rule for rule in DEFAULT_RULES if rule.name == "Agents stranded")
    assert [rule.threshold(agents) for agents in (10, 1000, 10_000)] == [5, 5, 50]
    assert not evaluate_rules(stranded(49), [rule])
    assert [*evaluate_rules(stranded(50), [rule])]


def test_effective_rules_of_a_cluster() -> None:
    """The installation's, its own, and its own alone where both have the name."""
    shared, own, other = (
        Rule("a", RuleKind.STRANDED, Severity.WARNING, cluster=cluster) for cluster in ("", "eu", "asia")
    )
    rest = replace(shared, name="b")
    assert effective_rules((shared, own, other, rest), "eu") == (own, rest)
    assert effective_rules((shared, own, other, rest), "default") == (shared, rest)
