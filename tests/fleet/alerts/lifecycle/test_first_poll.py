from __future__ import annotations

from fleet.alerts.facts import ClusterFacts, make_blind_facts, make_paused_facts
from fleet.alerts.lifecycle.first_poll import FIRST_ROUND_SECONDS, FirstPollGrace

_NOW = 1_000_000.0


def _blind_facts(after: float, as_of: float | None = None) -> ClusterFacts:
    return make_blind_facts("default", _NOW + after, as_of, "No data.")


def test_start_lasts_until_the_grace_or_the_first_poll_is_over() -> None:
    grace = FirstPollGrace(15.0)
    assert grace.apply(_blind_facts(0, _NOW - 100), (), 0.0).is_starting
    assert grace.apply(_blind_facts(14, _NOW - 100), (), 0.0).is_starting
    assert not grace.apply(_blind_facts(15, _NOW - 100), (), 0.0).is_starting

    grace = FirstPollGrace(15.0)
    fresh_facts = ClusterFacts("default", _NOW, _NOW, is_fresh=True)
    assert grace.apply(fresh_facts, (), 0.0) is fresh_facts
    assert not grace.apply(_blind_facts(1, _NOW), (), 0.0).is_starting


def test_fleet_state_that_cannot_be_read_waits_for_no_poll() -> None:
    facts = make_blind_facts("default", _NOW, None, "Redis is down.", can_read=False)
    assert FirstPollGrace(15.0).apply(facts, (), created_at=_NOW) is facts


def test_cluster_that_was_added_or_resumed_has_time_for_a_round() -> None:
    """Only without data if it was added; also with old data if it was paused."""
    grace = FirstPollGrace()
    assert grace.apply(_blind_facts(0), (), created_at=_NOW - 1).is_paused
    assert not grace.apply(_blind_facts(FIRST_ROUND_SECONDS), (), created_at=_NOW - 1).is_paused
    assert not grace.apply(_blind_facts(0, as_of=_NOW - 100), (), created_at=_NOW - 1).is_paused

    grace.apply(make_paused_facts("default", _NOW), (), 0.0)
    assert grace.apply(_blind_facts(1, as_of=_NOW - 1000), (), 0.0).is_paused
    assert not grace.apply(_blind_facts(FIRST_ROUND_SECONDS, as_of=_NOW - 1000), (), 0.0).is_paused
