from __future__ import annotations

from dataclasses import replace

from fleet.alerts.findings import evaluate_rules
from fleet.alerts.rules import DEFAULT_RULES, Rule, RuleKind, select_effective_rules
from fleet.vocabulary.incidents import Severity
from tests.fakes.alerting import stranded_facts


def test_threshold_is_the_larger_of_number_and_share() -> None:
    """Five agents or 0.5 % of the cluster."""
    rule = next(rule for rule in DEFAULT_RULES if rule.name == "Agents stranded")
    assert [rule.threshold(agents) for agents in (10, 1000, 10_000)] == [5, 5, 50]
    assert not evaluate_rules(stranded_facts(49), [rule])
    assert [*evaluate_rules(stranded_facts(50), [rule])]


def test_cluster_overrides_rules_of_the_installation() -> None:
    """Rules of the installation and of the cluster; the cluster's rule overrides one with the same name."""
    installation_rule, cluster_rule, other_cluster_rule = (
        Rule("a", RuleKind.STRANDED, Severity.WARNING, cluster=cluster) for cluster in ("", "eu", "asia")
    )
    unique_rule = replace(installation_rule, name="b")
    assert select_effective_rules(
        (installation_rule, cluster_rule, other_cluster_rule, unique_rule), "eu"
    ) == (
        cluster_rule,
        unique_rule,
    )
    assert select_effective_rules(
        (installation_rule, cluster_rule, other_cluster_rule, unique_rule), "default"
    ) == (
        installation_rule,
        unique_rule,
    )
