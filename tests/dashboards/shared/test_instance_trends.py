from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dashboards.shared.instance_trends import TREND_SECONDS, instance_trends_of
from fleet.monitoring.history.minutes import GROUP_KEY_COUNT
from fleet.monitoring.state.codec import Rows
from fleet.monitoring.state.outbox import GroupKind
from fleet.vocabulary.verdicts import State

INSTANCES = {11: "proxy-1-id", 12: "proxy-2-id"}


def _rows(*counts: tuple[State, int, int]) -> Rows:
    """Rows of (state, key of the proxy, agents)."""
    rows: Sequence[tuple[int, ...]] = [(GroupKind.PROXY, *count) for count in counts]
    return np.array(rows, GROUP_KEY_COUNT)


def test_trend_has_all_and_affected_agents() -> None:
    """Stranded and at-risk agents are affected, others are not."""
    minutes = [
        (0.0, 60, _rows((State.HEALTHY, 11, 20), (State.HEALTHY, 12, 1))),
        (60.0, 60, _rows((State.STRANDED, 11, 4), (State.AT_RISK, 11, 1), (State.OFFLINE, 11, 20))),
    ]
    trends = instance_trends_of(minutes, INSTANCES, 0, TREND_SECONDS)

    assert trends["proxy-1-id"].sentence == "20 to 25 agents, 5 affected at most"
    assert trends["proxy-1-id"].lines == ("0,4.3 1,4.3 1,0.5 2,0.5",)
    assert trends["proxy-1-id"].areas == ("1,20 1,15.7 2,15.7 2,20",)
    # Without agents in the second minute.
    assert trends["proxy-2-id"].sentence == "0 to 1 agents, none affected"
    assert trends["proxy-2-id"].areas == ()


def test_trend_breaks_where_minutes_are_missing() -> None:
    """An old row covers more than a minute."""
    rows = _rows((State.HEALTHY, 12, 1))
    trends = instance_trends_of([(0.0, 600, rows), (1200.0, 600, rows)], INSTANCES, 0, TREND_SECONDS)

    assert trends["proxy-2-id"].lines == ("0,0.5 10,0.5", "20,0.5 30,0.5")
    assert trends["proxy-2-id"].sentence == "1 agent, none affected"


def test_instances_without_a_row_have_no_trend() -> None:
    """Key 0 is no instance; without minutes there is nothing to draw."""
    assert instance_trends_of([(0.0, 60, _rows((State.HEALTHY, 0, 5)))], INSTANCES, 0, TREND_SECONDS) == {}
    assert instance_trends_of([], INSTANCES, 0, TREND_SECONDS) == {}
