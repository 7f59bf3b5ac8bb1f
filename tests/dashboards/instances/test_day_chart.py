from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dashboards.instances.day_chart import DAY, AgentCounts, count_agents, draw_day, lane_rows_of
from fleet.monitoring.history.minute_columns import group_columns_of
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.verdicts import State

UNTIL = 1_700_092_800.0
NONE = AgentCounts((), (), ())


@dataclass
class _Change:
    """A change of an instance."""

    at: float
    new: str
    health: str = "healthy"
    is_draining: bool | None = False


def _bars(changes: Sequence[_Change], lane: int = 0) -> list[tuple[str, float, float]]:
    chart = draw_day(changes, NONE, UNTIL, load_noun="agents")
    return [(period.label, period.bar.x, period.bar.width) for period in chart.lanes[lane].periods]


def test_lanes_cover_the_day() -> None:
    """From the state before it to now; a drain has a lane only if there was one."""
    changes = [
        _Change(UNTIL - 2 * DAY, "ok"),
        _Change(UNTIL - DAY / 2, "silent", "unhealthy"),
        _Change(UNTIL - DAY / 4, "ok", "healthy", is_draining=True),
    ]
    assert _bars(changes) == [("OK", 0.0, 50.0), ("not responding", 50.0, 25.0), ("OK", 75.0, 25.0)]
    assert _bars(changes, 1)[1] == ("unhealthy", 50.0, 25.0)
    assert _bars(changes, 2) == [("draining", 75.0, 25.0)]
    chart = draw_day(changes, NONE, UNTIL, load_noun="agents")
    assert chart.summary == "Not responding for 6 h."
    assert [(lane, period.label) for lane, period in lane_rows_of(chart)] == [
        ("Drain", "draining"),
        ("State", "not responding"),
        ("Health", "unhealthy"),
    ]
    assert len(draw_day(changes[:2], NONE, UNTIL, load_noun="agents").lanes) == 2


def test_young_history_fills_the_chart() -> None:
    """A history of minutes has a chart of an hour; the time until the first poll is no problem."""
    changes = [_Change(UNTIL - 1801, "unknown", ""), _Change(UNTIL - 1800, "ok")]
    chart = draw_day(changes, NONE, UNTIL, load_noun="agents")
    assert (chart.range_text, chart.summary) == ("1 h", "OK the whole time.")
    assert draw_day([_Change(UNTIL - 7200, "ok")], NONE, UNTIL, load_noun="agents").range_text == "6 h"


def test_nothing_was_recorded() -> None:
    """There is nothing to draw, and a sentence says so."""
    chart = draw_day([], NONE, UNTIL, load_noun="agents")
    assert not chart.has_data
    assert chart.summary == "No state was recorded."


def test_counts_are_those_of_the_instance() -> None:
    """Of its kind and key, by minute; stranded and at-risk agents are the affected ones."""
    groups = [
        (GroupKind.PROXY, State.HEALTHY, 7, 10),
        (GroupKind.PROXY, State.STRANDED, 7, 2),
        (GroupKind.PROXY, State.AT_RISK, 7, 1),
        (GroupKind.PROXY, State.HEALTHY, 8, 50),
        (GroupKind.AUTH, State.HEALTHY, 7, 60),
    ]
    packed_groups = pack_groups(np.array(groups, GROUP_COUNT), np.arange(100))
    empty = pack_groups(np.array([], GROUP_COUNT), np.arange(100))
    columns = group_columns_of([(UNTIL - 120, 60, packed_groups), (UNTIL - 60, 60, empty)])
    counts = count_agents(columns, GroupKind.PROXY, 7)
    assert (counts.totals, counts.affected) == ((13, 0), (3, 0))
    chart = draw_day([_Change(UNTIL - 300, "ok")], counts, UNTIL, load_noun="agents")
    assert chart.summary == "OK the whole time; 0 to 13 agents; up to 3 stranded or at risk."
    assert chart.peak == 13
    assert [round(gap.width) for gap in chart.gaps] == [97]
