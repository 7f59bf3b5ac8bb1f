from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.findings import evaluate_rules
from fleet.alerts.rules import (
    DEFAULT_RULES,
    Rule,
    RuleKind,
    describe_condition,
    describe_notifications,
    select_effective_rules,
)
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


@pytest.mark.parametrize(
    ("rule", "condition", "notifications"),
    [
        (
            Rule("a", RuleKind.STRANDED, Severity.CRITICAL, min_count=5, min_share=0.005),
            "When 5 agents and 0.5 % of the cluster are stranded by one cause for 2 polls",
            "Notify after 30 s, again every 4 h until acknowledged",
        ),
        (
            Rule(
                "b",
                RuleKind.STRANDED,
                Severity.WARNING,
                agent_set="critical",
                pending_seconds=600.0,
                group_wait=0.0,
            ),
            "When 1 agent of the set critical is stranded by one cause for 2 polls and 10 min",
            "Notify at once, again every 4 h until acknowledged",
        ),
        (
            Rule("c", RuleKind.EXCESS, Severity.INFO, pending_rounds=0),
            "When 1 agent has excess tunnels",
            "Only digests list it",
        ),
        (
            Rule("e", RuleKind.EXCESS, Severity.INFO, min_share=0.01),
            "When 1 % of the agents have excess tunnels for 2 polls",
            "Only digests list it",
        ),
        (
            Rule("d", RuleKind.INSTANCE, Severity.WARNING, pending_rounds=1),
            "When an auth or proxy is not responding, unhealthy or expired for 1 poll",
            "Notify after 30 s, again every 4 h until acknowledged",
        ),
    ],
)
def test_a_rule_is_a_sentence(rule: Rule, condition: str, notifications: str) -> None:
    """With the numbers that apply to its kind."""
    assert (describe_condition(rule), describe_notifications(rule)) == (condition, notifications)


def test_every_kind_of_rule_has_a_condition() -> None:
    """A new kind needs one."""
    assert all(describe_condition(Rule("x", kind, Severity.INFO)) for kind in RuleKind)
