from __future__ import annotations

from dataclasses import replace

from fleet.alerts.facts import AffectedGroup, SickInstance
from fleet.alerts.findings import describe_harm, evaluate_rules
from fleet.alerts.rules import DEFAULT_RULES, Rule, RuleKind
from fleet.vocabulary.incidents import Cause, CauseKind, Severity
from tests.fakes.alerting import PROXY, sightless, sound, stranded


def _names(found: object) -> set[str]:
    return {signal.rule for finding in found.values() for signal in finding.signals}  # type: ignore[attr-defined]


def test_default_rules_find_every_kind() -> None:
    """A rule for each thing to look at, each with another name."""
    assert {rule.kind for rule in DEFAULT_RULES} == set(RuleKind)
    assert len({rule.name for rule in DEFAULT_RULES}) == len(DEFAULT_RULES)


def test_sound_fleet_has_no_findings_and_blind_facts_one() -> None:
    """What we cannot see is not found."""
    assert evaluate_rules(sound(), DEFAULT_RULES) == {}
    assert list(evaluate_rules(sightless(), DEFAULT_RULES)) == ["console/default"]


def test_rules_of_one_cause_make_one_finding() -> None:
    """The proxy and its agents are one trouble."""
    found = evaluate_rules(stranded(207, critical=2), DEFAULT_RULES)
    assert list(found) == [PROXY.key, "fleet/rate"]
    assert found[PROXY.key].affected == 207
    labelled = [signal for signal in found[PROXY.key].signals if signal.is_label_scoped]
    assert [(signal.count, signal.sentence) for signal in labelled] == [(2, "2 critical agents stranded.")]


def test_rules_that_are_off_or_of_another_cluster_find_nothing() -> None:
    """Scope and switch."""
    rule = Rule("r", RuleKind.STRANDED, Severity.WARNING)
    assert evaluate_rules(stranded(1), [replace(rule, enabled=False), replace(rule, cluster="other")]) == {}
    assert evaluate_rules(stranded(1), [replace(rule, cluster="default")])


def test_fleet_rules_count_the_fleet() -> None:
    """Excess, drift and the rate of loss have the fleet as their cause."""
    found = evaluate_rules(
        replace(sound(), excess_count=200, drifted_agent_count=200, recently_lost_count=200), DEFAULT_RULES
    )
    assert set(found) == {"fleet/excess", "fleet/drift", "fleet/rate"}
    assert found["fleet/rate"].affected == 200


def test_label_of_a_rule_counts_agents_at_risk_too() -> None:
    """Not all that are at risk."""
    rule = Rule("r", RuleKind.AT_RISK, Severity.WARNING, label="critical")
    group = AffectedGroup(PROXY, at_risk_count=50, at_risk_by_label={"critical": 2})
    (found,) = evaluate_rules(replace(sound(), groups=(group,)), [rule]).values()
    assert [signal.sentence for signal in found.signals] == ["2 critical agents at risk."]
    assert found.labels == {"critical"}
    assert not evaluate_rules(replace(sound(), groups=(replace(group, at_risk_by_label={}),)), [rule])


def test_instances_off_their_wanted_policies_are_drift() -> None:
    """By name; however few, and without counting agents."""
    rule = next(rule for rule in DEFAULT_RULES if rule.kind is RuleKind.DRIFT)
    found = evaluate_rules(
        replace(sound(), drifted_instances=("auth-1", "proxy-2")), [replace(rule, min_share=0.0)]
    )
    assert {key: one.affected for key, one in found.items()} == {"fleet/policies": 0}
    said = found["fleet/policies"].signals[0].sentence
    assert said == "2 instances do not match the desired policies: auth-1, proxy-2."


def test_finding_counts_in_words_what_it_counts_in_figures() -> None:
    """Stranded agents and those at risk, by every rule that is not about a label, and in the past for later."""
    group = AffectedGroup(PROXY, stranded_count=60, at_risk_count=55, stranded_by_label={"critical": 1})
    found = evaluate_rules(replace(sound(), groups=(group,)), DEFAULT_RULES)[PROXY.key]
    sentences = {signal.sentence for signal in found.signals}
    assert sentences == {"60 agents stranded and 55 at risk.", "1 critical agent stranded."}
    assert (found.affected, found.harm) == (115, "60 agents were stranded and 55 at risk.")
    assert describe_harm([AffectedGroup(PROXY, stranded_count=1)], past=True) == "1 agent was stranded."
    assert describe_harm([AffectedGroup(PROXY, at_risk_count=2)]) == "2 agents at risk."
    assert describe_harm([]) == ""


def test_finding_says_when_its_cause_fell_sick() -> None:
    """Of a group when the second of its proxies did: one alone is no group."""
    names = ("a", "b", "c")
    causes = [Cause(CauseKind.PROXY, name, name) for name in names]
    group = Cause(CauseKind.GROUP, "eu", "proxy group eu")
    facts = replace(
        sound(),
        sick=tuple(SickInstance(cause, f"{cause.name} is silent.", 0) for cause in causes[:2]),
        members_by_cause={group: tuple(cause.key for cause in causes)},
        sick_since={causes[0].key: 10.0, causes[1].key: 70.0},
    )
    found = evaluate_rules(facts, DEFAULT_RULES)
    began = {key: one.began_at for key, one in found.items()}
    assert began == {causes[0].key: 10.0, causes[1].key: 70.0, group.key: 70.0}
