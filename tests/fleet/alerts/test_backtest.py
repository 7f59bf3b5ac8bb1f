from __future__ import annotations

from dataclasses import replace

from fleet.alerts.backtest import Change, play, sentence
from fleet.alerts.rules import Rule, RuleKind
from fleet.alerts.values import Severity

_RULE = Rule("r", RuleKind.STRANDED, Severity.CRITICAL, min_count=3, recover_seconds=60.0)


def _outage(at: float, seconds: float, agents: int, cause: str = "proxy-1") -> list[Change]:
    return [
        *(Change(at, f"a{n}", "healthy", "stranded", cause) for n in range(agents)),
        *(Change(at + seconds, f"a{n}", "stranded", "healthy") for n in range(agents)),
    ]


def test_three_outages_fire_three_times() -> None:
    """With the longest one named; a small one does not count."""
    changes = [*_outage(0, 100, 3), *_outage(1000, 720, 9), *_outage(5000, 30, 2), *_outage(9000, 50, 4)]
    spells = play(_RULE, changes, 100, 20_000.0)
    assert [(spell.seconds, spell.peak) for spell in spells] == [(100, 3), (720, 9), (50, 4)]
    assert sentence(spells, 7) == "Would have fired 3 times in 7 days, longest 12 min."
    assert sentence([], 1) == "Would not have fired in 1 day."


def test_short_gaps_are_one_incident_and_pending_leaves_out_short_ones() -> None:
    """As live."""
    changes = [*_outage(0, 100, 3), *_outage(130, 100, 3), *_outage(9000, 50, 4)]
    assert [spell.seconds for spell in play(_RULE, changes, 100, 20_000.0)] == [230, 50]
    assert len(play(replace(_RULE, pending_seconds=60.0), changes, 100, 20_000.0)) == 1


def test_outage_that_lasts_ends_now_and_causes_are_told_apart() -> None:
    """Three of two causes are not three of one."""
    changes = [*_outage(0, 1e9, 3)[:3]]
    assert [spell.ended_at for spell in play(_RULE, changes, 100, 500.0)] == [500.0]
    mixed = [replace(change, cause=f"proxy-{n}") for n, change in enumerate(changes)]
    assert play(_RULE, mixed, 100, 500.0) == []


def test_label_and_rate_are_played_too() -> None:
    """Only agents that have it; losses within a minute."""
    changes = _outage(0, 100, 3)
    labelled = replace(_RULE, label="critical", min_count=1)
    assert len(play(labelled, changes, 100, 500.0, {"a1"})) == 1
    assert play(labelled, changes, 100, 500.0, set()) == []
    rate = Rule("rate", RuleKind.RATE, Severity.CRITICAL, min_count=3)
    assert [spell.peak for spell in play(rate, changes, 100, 500.0)] == [3]
    slow = [replace(change, at=n * 50.0) for n, change in enumerate(changes[:3])]
    assert play(rate, slow, 100, 500.0) == []
