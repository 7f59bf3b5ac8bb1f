from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.backtest import (
    UNSUPPORTED_KINDS,
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


def test_three_outages_fire_three_times() -> None:
    """With the longest one named; a small one does not count."""
    changes = [*_outage(0, 100, 3), *_outage(1000, 720, 9), *_outage(5000, 30, 2), *_outage(9000, 50, 4)]
    spells = run_backtest(_RULE, changes, 100, 20_000.0)
    assert [(spell.seconds, spell.peak) for spell in spells] == [(100, 3), (720, 9), (50, 4)]
    assert summary_of(spells, 7) == "Would have fired 3 times in 7 days, longest 12 min."
    assert summary_of([], 1) == "Would not have fired in 1 day."
    assert summary_of([], 0.25) == "Would not have fired in 6 h."


def test_short_gaps_are_one_incident_and_pending_leaves_out_short_ones() -> None:
    """As live."""
    changes = [*_outage(0, 100, 3), *_outage(130, 100, 3), *_outage(9000, 50, 4)]
    assert [spell.seconds for spell in run_backtest(_RULE, changes, 100, 20_000.0)] == [230, 50]
    assert len(run_backtest(replace(_RULE, pending_seconds=60.0), changes, 100, 20_000.0)) == 1
    # Two that are each too short do not make one that is long enough.
    assert run_backtest(replace(_RULE, pending_seconds=150.0), changes, 100, 20_000.0) == []
    # What is open stays open, however short what comes back.
    returning = [*_outage(0, 100, 3), *_outage(130, 5, 3)]
    assert [
        spell.seconds for spell in run_backtest(replace(_RULE, pending_seconds=60.0), returning, 100, 500.0)
    ] == [135]


def test_what_held_in_one_round_only_does_not_fire() -> None:
    """Two in a row are wanted, as live; rounds whose numbers begin anew are not counted."""
    rounds = {0.0: 10, 100.0: 11}
    once = [replace(change, round=rounds[change.at]) for change in _outage(0, 100, 3)]
    assert run_backtest(_RULE, once, 100, 500.0) == []
    assert len(run_backtest(replace(_RULE, pending_rounds=1), once, 100, 500.0)) == 1
    anew = [replace(change, round=rounds[100.0 - change.at]) for change in once]
    assert len(run_backtest(_RULE, anew, 100, 500.0)) == 1


def test_outage_that_lasts_ends_now_and_causes_are_told_apart() -> None:
    """Three of two causes are not three of one."""
    changes = [*_outage(0, 1e9, 3)[:3]]
    assert [spell.ended_at for spell in run_backtest(_RULE, changes, 100, 500.0)] == [500.0]
    mixed = [replace(change, cause=f"proxy-{n}") for n, change in enumerate(changes)]
    assert run_backtest(_RULE, mixed, 100, 500.0) == []


def test_label_and_rate_are_played_too() -> None:
    """Only agents that have it; losses within a minute."""
    changes = _outage(0, 100, 3)
    labelled = replace(_RULE, label="critical", min_count=1)
    assert len(run_backtest(labelled, changes, 100, 500.0, {"a1"})) == 1
    assert run_backtest(labelled, changes, 100, 500.0, set()) == []
    rate = Rule("rate", RuleKind.RATE, Severity.CRITICAL, min_count=3)
    assert [spell.peak for spell in run_backtest(rate, changes, 100, 500.0)] == [3]
    slow = [replace(change, at=n * 50.0) for n, change in enumerate(changes[:3])]
    assert run_backtest(rate, slow, 100, 500.0) == []


_SICK = Rule("sick", RuleKind.INSTANCE, Severity.WARNING, pending_seconds=60.0, recover_seconds=300.0)
_TURNS = [
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


def test_instances_are_played_with_the_agents_they_harmed() -> None:
    """One that turns from silent to expired is one, as is what comes back at once; a deregistered one is not sick."""
    changes = [*_outage(1000, 60, 7), *_outage(1500, 10, 9), *_outage(5000, 100, 4, "auth-1")]
    spells = run_backtest(_SICK, changes, 100, 6000.0, instance_changes=_TURNS)
    assert [(spell.cause, spell.began_at, spell.ended_at, spell.peak) for spell in spells] == [
        ("proxy-1", 1000, 1110, 7),
        ("auth-1", 5000, 6000, 4),
    ]


@pytest.mark.parametrize(
    ("kind", "whole", "peak"), [(RuleKind.BACKEND, "backend/", 3), (RuleKind.UNREACHABLE, "cluster/", 100)]
)
def test_backend_and_cluster_are_played_by_themselves(kind: RuleKind, whole: str, peak: int) -> None:
    """No instance fires their rules, and they fire none of its."""
    name = f"{whole}default"
    turns = [
        *_TURNS,
        InstanceStateChange(5100, name, "silent", 5100),
        InstanceStateChange(5200, name, "ok", 5200),
    ]
    changes = _outage(5100, 50, 3, name)
    rule = Rule("whole", kind, Severity.CRITICAL)
    assert [
        (spell.cause, spell.peak)
        for spell in run_backtest(rule, changes, 100, 6000.0, instance_changes=turns)
    ] == [(name, peak)]
    assert name not in {
        spell.cause for spell in run_backtest(_SICK, changes, 100, 6000.0, instance_changes=turns)
    }


def test_every_kind_is_played_or_says_why_not() -> None:
    """A kind that is new has to choose."""
    for kind in RuleKind:
        assert kind in UNSUPPORTED_KINDS or run_backtest(replace(_RULE, kind=kind), [], 100, 6000.0) == []
