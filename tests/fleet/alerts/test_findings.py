from __future__ import annotations

from dataclasses import replace

from fleet.alerts.facts import AffectedGroup, SickInstance
from fleet.alerts.findings import describe_affected_agents, evaluate_rules
from fleet.alerts.instance_causes import backend_cause_of
from fleet.alerts.rules import DEFAULT_RULES, Rule, RuleKind
from fleet.alerts.wording.failure_clauses import FailureClause
from fleet.vocabulary.incidents import Cause, CauseKind, Severity
from tests.fakes.alerting import PROXY, healthy_facts, stale_facts, stranded_facts


def _rule_names(findings: object) -> set[str]:
    return {signal.rule_name for finding in findings.values() for signal in finding.signals}  # type: ignore[attr-defined]


def test_default_rules_cover_every_kind() -> None:
    """Rule names are unique."""
    assert {rule.kind for rule in DEFAULT_RULES} == set(RuleKind)
    assert len({rule.name for rule in DEFAULT_RULES}) == len(DEFAULT_RULES)


def test_healthy_fleet_has_no_findings_and_stale_facts_have_one() -> None:
    assert evaluate_rules(healthy_facts(), DEFAULT_RULES) == {}
    assert list(evaluate_rules(stale_facts(), DEFAULT_RULES)) == ["console/default"]


def test_rules_of_one_cause_make_one_finding() -> None:
    """The proxy and its agents have one cause."""
    findings = evaluate_rules(stranded_facts(207, critical=2), DEFAULT_RULES)
    assert list(findings) == [PROXY.key, "fleet/rate"]
    assert findings[PROXY.key].affected_count == 207
    agent_set_signals = [signal for signal in findings[PROXY.key].signals if signal.is_agent_set_scoped]
    assert [(signal.count, signal.summary) for signal in agent_set_signals] == [
        (2, "2 critical agents stranded.")
    ]


def test_disabled_rules_and_rules_of_another_cluster_find_nothing() -> None:
    rule = Rule("r", RuleKind.STRANDED, Severity.WARNING)
    assert (
        evaluate_rules(stranded_facts(1), [replace(rule, enabled=False), replace(rule, cluster="other")])
        == {}
    )
    assert evaluate_rules(stranded_facts(1), [replace(rule, cluster="default")])


def test_fleet_rules_count_the_fleet() -> None:
    """Excess, drift and loss rate have the fleet as their cause."""
    findings = evaluate_rules(
        replace(healthy_facts(), excess_agent_count=200, drifted_agent_count=200, recently_lost_count=200),
        DEFAULT_RULES,
    )
    assert set(findings) == {"fleet/excess", "fleet/drift", "fleet/rate"}
    assert findings["fleet/rate"].affected_count == 200


def test_agent_set_rule_counts_agents_at_risk() -> None:
    """Not all agents at risk."""
    rule = Rule("r", RuleKind.AT_RISK, Severity.WARNING, agent_set="critical")
    group = AffectedGroup(PROXY, at_risk_count=50, at_risk_by_agent_set={"critical": 2})
    (finding,) = evaluate_rules(replace(healthy_facts(), affected_groups=(group,)), [rule]).values()
    assert [signal.summary for signal in finding.signals] == ["2 critical agents at risk."]
    assert finding.agent_sets == {"critical"}
    assert not evaluate_rules(
        replace(healthy_facts(), affected_groups=(replace(group, at_risk_by_agent_set={}),)), [rule]
    )


def test_instances_that_do_not_match_desired_policies_are_drift() -> None:
    """The sentence lists the instances; agents are not counted."""
    rule = next(rule for rule in DEFAULT_RULES if rule.kind is RuleKind.DRIFT)
    findings = evaluate_rules(
        replace(healthy_facts(), drifted_instances=("auth-1", "proxy-2")), [replace(rule, min_share=0.0)]
    )
    assert {key: finding.affected_count for key, finding in findings.items()} == {"fleet/policies": 0}
    sentence = findings["fleet/policies"].signals[0].summary
    assert sentence == "2 instances do not match the desired policies: auth-1, proxy-2."


def test_sentences_of_a_finding_match_its_counts() -> None:
    """Stranded agents and agents at risk, in the present and in the past tense."""
    group = AffectedGroup(
        PROXY, stranded_count=60, at_risk_count=55, stranded_by_agent_set={"critical": 1}, since=36_000.0
    )
    clause = FailureClause("proxy-1 is not responding", "proxy-1 was not responding")
    facts = replace(healthy_facts(36_600.0), affected_groups=(group,), clauses={PROXY.key: clause})
    finding = evaluate_rules(facts, DEFAULT_RULES)[PROXY.key]
    sentences = {signal.summary for signal in finding.signals}
    assert sentences == {
        "60 agents stranded since 10:00 UTC and 55 at risk because proxy-1 is not responding.",
        "1 critical agent stranded because proxy-1 is not responding.",
    }
    assert (finding.affected_count, finding.past_summary) == (
        115,
        "60 agents were stranded and 55 at risk because proxy-1 was not responding.",
    )
    (one_stranded,), two_at_risk = (
        [AffectedGroup(PROXY, stranded_count=1)],
        [AffectedGroup(PROXY, at_risk_count=2)],
    )
    assert describe_affected_agents([one_stranded], None, 0.0, is_past=True) == "1 agent was stranded."
    assert describe_affected_agents(two_at_risk, None, 0.0) == "2 agents at risk."
    assert describe_affected_agents([], clause, 0.0) == ""


def test_sentence_of_a_failing_instance_names_what_failed() -> None:
    """Without affected agents its start follows; with some, all rules say the same."""
    clause = FailureClause(
        "proxy-1 is not responding", "proxy-1 was not responding", "proxy-1 has not responded since"
    )
    facts = replace(
        healthy_facts(36_600.0),
        sick_instances=(SickInstance(PROXY, "", 0),),
        sick_since={PROXY.key: 36_000.0},
        clauses={PROXY.key: clause},
    )
    finding = evaluate_rules(facts, DEFAULT_RULES)[PROXY.key]
    assert [signal.summary for signal in finding.signals] == ["proxy-1 has not responded since 10:00 UTC."]
    assert finding.past_summary == "proxy-1 was not responding."


def test_sentence_of_an_unreachable_cluster_is_that_of_the_headline() -> None:
    """With the time at which the first agent became unknown."""
    facts = replace(healthy_facts(36_600.0), unreachable=True, unreachable_since=36_000.0)
    (finding,) = evaluate_rules(facts, DEFAULT_RULES).values()
    (signal,) = finding.signals
    assert signal.summary == (
        "Agent states are unknown since 10:00 UTC because no instance of the cluster responds."
    )


def test_sentence_of_the_backend_names_what_is_known() -> None:
    """The auths, and since when they fail."""
    clause = FailureClause("both auths lost their backend", "", "both auths lost their backend at")
    facts = replace(
        healthy_facts(36_600.0),
        backend_down=True,
        backend_down_since=36_000.0,
        clauses={backend_cause_of("default").key: clause},
    )
    (finding,) = evaluate_rules(facts, DEFAULT_RULES).values()
    assert [signal.summary for signal in finding.signals] == ["Both auths lost their backend at 10:00 UTC."]


def test_finding_contains_whether_its_cause_is_recovering() -> None:
    """As the instance reports it, and of this cause only."""
    facts = stranded_facts(20)
    (sick_instance,) = facts.sick_instances
    assert not evaluate_rules(facts, DEFAULT_RULES)[PROXY.key].is_cause_recovering
    recovering = replace(facts, sick_instances=(replace(sick_instance, is_recovering=True),))
    assert {
        key: finding.is_cause_recovering for key, finding in evaluate_rules(recovering, DEFAULT_RULES).items()
    } == {PROXY.key: True}


def test_finding_contains_when_its_cause_fell_sick() -> None:
    """A group falls sick with the second of its proxies."""
    names = ("a", "b", "c")
    causes = [Cause(CauseKind.PROXY, name, name) for name in names]
    group = Cause(CauseKind.GROUP, "eu", "proxy group eu")
    facts = replace(
        healthy_facts(),
        sick_instances=tuple(SickInstance(cause, f"{cause.name} is silent.", 0) for cause in causes[:2]),
        members_by_cause={group: tuple(cause.key for cause in causes)},
        sick_since={causes[0].key: 10.0, causes[1].key: 70.0},
    )
    findings = evaluate_rules(facts, DEFAULT_RULES)
    began_at_by_key = {key: finding.began_at for key, finding in findings.items()}
    assert began_at_by_key == {causes[0].key: 10.0, causes[1].key: 70.0, group.key: 70.0}
