from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.backtest import (
    UNSUPPORTED_REASONS,
    AgentStateChange,
    InstanceStateChange,
    run_backtest,
    summary_of,
)
from fleet.alerts.rules import Rule, RuleKind
from fleet.vocabulary.incidents import Severity

_RULE = Rule("r", RuleKind.STRANDED, Severity.CRITICAL, min_count=3, recover_seconds=60.0)


def _outage(at: float, seconds: float, agents: int, cause: str = "proxy-1") -> list[AgentStateChange]:
    return [
        *(AgentStateChange(at, f"a{n}", "healthy", "stranded", cause) for n in range(agents)),
        *(AgentStateChange(at + seconds, f"a{n}", "stranded", "healthy") for n in range(agents)),
    ]


def test_each_large_outage_fires_once() -> None:
    """The summary names the longest outage; a small outage does not fire."""
    changes = [*_outage(0, 100, 3), *_outage(1000, 720, 9), *_outage(5000, 30, 2), *_outage(9000, 50, 4)]
    firings = run_backtest(_RULE, changes, 100, 20_000.0)
    assert [(firing.duration_seconds, firing.peak_count) for firing in firings] == [
        (100, 3),
        (720, 9),
        (50, 4),
    ]
    assert summary_of(firings, 7) == "Would have fired 3 times in the last 7 days, longest 12 min."
    assert summary_of([], 1) == "Would not have fired in the last 1 day."
    assert summary_of([], 0.25) == "Would not have fired in the last 6 h."


def test_short_gap_continues_a_firing_and_short_outage_stays_pending() -> None:
    """As in the live evaluation."""
    changes = [*_outage(0, 100, 3), *_outage(130, 100, 3), *_outage(9000, 50, 4)]
    assert [firing.duration_seconds for firing in run_backtest(_RULE, changes, 100, 20_000.0)] == [230, 50]
    assert len(run_backtest(replace(_RULE, pending_seconds=60.0), changes, 100, 20_000.0)) == 1
    # Two short outages do not add up to a long one.
    assert run_backtest(replace(_RULE, pending_seconds=150.0), changes, 100, 20_000.0) == []
    # An open firing continues, however short the next outage is.
    recurring_outage = [*_outage(0, 100, 3), *_outage(130, 5, 3)]
    assert [
        firing.duration_seconds
        for firing in run_backtest(replace(_RULE, pending_seconds=60.0), recurring_outage, 100, 500.0)
    ] == [135]


def test_condition_of_a_single_round_does_not_fire() -> None:
    """Two consecutive rounds are required; rounds whose numbers restart are not counted."""
    rounds = {0.0: 10, 100.0: 11}
    single_round = [replace(change, round=rounds[change.at]) for change in _outage(0, 100, 3)]
    assert run_backtest(_RULE, single_round, 100, 500.0) == []
    assert len(run_backtest(replace(_RULE, pending_rounds=1), single_round, 100, 500.0)) == 1
    restarted_rounds = [replace(change, round=rounds[100.0 - change.at]) for change in single_round]
    assert len(run_backtest(_RULE, restarted_rounds, 100, 500.0)) == 1


def test_ongoing_outage_ends_now_and_causes_are_separate() -> None:
    """Agents of different causes are not added up."""
    changes = [*_outage(0, 1e9, 3)[:3]]
    assert [firing.ended_at for firing in run_backtest(_RULE, changes, 100, 500.0)] == [500.0]
    distinct_causes = [replace(change, cause=f"proxy-{n}") for n, change in enumerate(changes)]
    assert run_backtest(_RULE, distinct_causes, 100, 500.0) == []


def test_agent_set_and_rate_rules_are_supported() -> None:
    """A rule about an agent set counts agents of the set; a rate rule counts losses within a minute."""
    changes = _outage(0, 100, 3)
    agent_set_rule = replace(_RULE, agent_set="critical", min_count=1)
    assert len(run_backtest(agent_set_rule, changes, 100, 500.0, {"a1"})) == 1
    assert run_backtest(agent_set_rule, changes, 100, 500.0, set()) == []
    rate = Rule("rate", RuleKind.RATE, Severity.CRITICAL, min_count=3)
    assert [firing.peak_count for firing in run_backtest(rate, changes, 100, 500.0)] == [3]
    slow_losses = [replace(change, at=n * 50.0) for n, change in enumerate(changes[:3])]
    assert run_backtest(rate, slow_losses, 100, 500.0) == []


_SICK = Rule("sick", RuleKind.INSTANCE, Severity.WARNING, pending_seconds=60.0, recover_seconds=300.0)
_INSTANCE_CHANGES = [
    InstanceStateChange(0, "proxy-1", "ok", 1),
    InstanceStateChange(0, "backend/default", "ok", 1),
    InstanceStateChange(0, "cluster/default", "ok", 1),
    InstanceStateChange(1000, "proxy-1", "silent", 1000),
    InstanceStateChange(1020, "proxy-1", "expired", 1020),
    InstanceStateChange(1090, "proxy-1", "ok", 1090),
    InstanceStateChange(1100, "proxy-1", "unhealthy", 1100),
    InstanceStateChange(1110, "proxy-1", "ok", 1110),
    InstanceStateChange(3000, "proxy-2", "silent", 3000),
    InstanceStateChange(3010, "proxy-2", "gone", 3010),
    InstanceStateChange(5000, "auth-1", "unhealthy", 5000),
]


def test_instance_rule_counts_affected_agents() -> None:
    """Silent, expired and a short recovery make one firing; a deregistered instance is not sick."""
    changes = [*_outage(1000, 60, 7), *_outage(1500, 10, 9), *_outage(5000, 100, 4, "auth-1")]
    firings = run_backtest(_SICK, changes, 100, 6000.0, instance_changes=_INSTANCE_CHANGES)
    assert [(firing.cause, firing.began_at, firing.ended_at, firing.peak_count) for firing in firings] == [
        ("proxy-1", 1000, 1110, 7),
        ("auth-1", 5000, 6000, 4),
    ]


@pytest.mark.parametrize(
    ("kind", "prefix", "peak"), [(RuleKind.BACKEND, "backend/", 3), (RuleKind.UNREACHABLE, "cluster/", 100)]
)
def test_backend_and_cluster_rules_ignore_instances(kind: RuleKind, prefix: str, peak: int) -> None:
    """Instances do not fire backend and cluster rules, and vice versa."""
    name = f"{prefix}default"
    instance_changes = [
        *_INSTANCE_CHANGES,
        InstanceStateChange(5100, name, "silent", 5100),
        InstanceStateChange(5200, name, "ok", 5200),
    ]
    changes = _outage(5100, 50, 3, name)
    rule = Rule("whole", kind, Severity.CRITICAL)
    assert [
        (firing.cause, firing.peak_count)
        for firing in run_backtest(rule, changes, 100, 6000.0, instance_changes=instance_changes)
    ] == [(name, peak)]
    assert name not in {
        firing.cause
        for firing in run_backtest(_SICK, changes, 100, 6000.0, instance_changes=instance_changes)
    }


def test_every_rule_kind_is_supported_or_listed_as_unsupported() -> None:
    """Also a kind that is added later."""
    for kind in RuleKind:
        assert kind in UNSUPPORTED_REASONS or run_backtest(replace(_RULE, kind=kind), [], 100, 6000.0) == []
