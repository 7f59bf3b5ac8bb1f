from __future__ import annotations

import numpy as np
import pytest

from dashboards.fleet.timeline.history_rows import read_day_chart, read_history, read_worst_moment
from dashboards.fleet.timeline.time_range import TimeRange
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.history import FleetMinute
from fleet.models.incidents import Incident
from fleet.monitoring.history.minute_columns import PresentCounts
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import create_agent_change, create_instance_change, instance_key

pytestmark = pytest.mark.django_db

#: 2023-11-15T00:00:00Z.
NOW = 1_700_006_400.0
HOUR, DAY = 3600.0, 86_400.0
RANGE = TimeRange(NOW - 6 * HOUR, NOW)


@pytest.fixture(autouse=True)
def _cluster() -> None:
    ensure_default_cluster()


def _save_minute(
    at: float, stranded_count: int = 0, *groups: tuple[int, int, int, int], cluster: str = "default"
) -> None:
    FleetMinute.objects.create(
        cluster_id=cluster, at=at, state_counts=b"", stranded_peak=stranded_count, at_risk_peak=0,
        groups=pack_groups(np.array([*groups], GROUP_COUNT), np.arange(1000)),
    )  # fmt: skip


def test_charts_of_a_range() -> None:
    """Counts, proxies and auths with their states, of this cluster."""
    for name in ("proxy-10", "proxy-2", "auth-1"):
        instance_key(f"{name}-id")
    proxy = instance_key("proxy-2-id")
    _save_minute(NOW - HOUR, 5, (GroupKind.PROXY, State.STRANDED, proxy, 4))
    create_instance_change("proxy-2-id", NOW - DAY, "ok", "silent")
    create_instance_change("proxy-2-id", NOW - HOUR, "silent", "ok", 2)
    history = read_history("default", RANGE, NOW)

    assert (history.chart.peak, history.chart.has_data, history.recorded) == (
        5,
        True,
        (NOW - HOUR, NOW - HOUR + 60),
    )
    assert [(row.name, row.peak, row.states) for row in history.proxies.rows] == [
        ("proxy-2", 4, "not responding (1)"),
        ("proxy-10", 0, ""),
    ]
    assert [row.name for row in history.auths.rows] == ["auth-1"]
    assert history.proxies.data["spans"][0] == [[NOW - DAY, NOW - HOUR, "not responding"]]


def test_other_clusters_are_left_out() -> None:
    """Their counts and instances."""
    Cluster.objects.create(id="eu", name="eu")
    _save_minute(NOW - HOUR, 5, cluster="eu")
    instance_key("proxy-1-id", "eu")
    history = read_history("default", RANGE, NOW)
    assert (history.chart.has_data, history.recorded, history.proxies.rows) == (False, None, ())


def test_instances_that_were_gone_all_the_time_have_no_row() -> None:
    """An instance that was gone for a part of the range has a row."""
    for name in ("proxy-1-id", "proxy-2-id"):
        instance_key(name)
    create_instance_change("proxy-1-id", NOW - DAY, "ok", "gone")
    create_instance_change("proxy-2-id", NOW - HOUR, "ok", "gone", 2)
    rows = read_history("default", RANGE, NOW).proxies.rows
    assert [(row.name, row.states) for row in rows] == [("proxy-2", "deregistered (1)")]


def test_worst_moment() -> None:
    """The moment of its peak, when the agents had not recovered yet; none while no agent was stranded."""
    assert read_worst_moment("default", NOW - DAY, NOW) is None
    _save_minute(NOW - HOUR)
    assert read_worst_moment("default", NOW - DAY, NOW) is None
    for minute, count in enumerate((3, 7, 7)):
        _save_minute(NOW - 600 + 60 * minute, count)
    create_agent_change("agent-1", NOW - 530, State.HEALTHY, State.STRANDED)
    create_agent_change("agent-1", NOW - 510, State.STRANDED, State.HEALTHY)
    assert read_worst_moment("default", NOW - DAY, NOW) == NOW - 530


def test_chart_of_a_day() -> None:
    """The minutes of its cluster and of the 24 h only; at a past moment, as it was then."""
    _save_minute(NOW - DAY - HOUR, 9)
    _save_minute(NOW - HOUR, 3)
    Incident.objects.create(
        cluster_id="default", key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1", generation=1,
        state="resolved", severity=2, opened_at=NOW - HOUR, resolved_at=NOW - 600, summary="proxy-1 is not responding.",
    )  # fmt: skip
    chart = read_day_chart("default", NOW, is_past=False)
    past_chart = read_day_chart("default", NOW - 1200, is_past=True)

    assert (chart.peak, len(chart.peaks.stranded_counts), chart.height) == (3, 1440, 120)
    assert [bar.tone for bar in chart.incidents] == ["resolved"]
    assert [bar.tone for bar in past_chart.incidents] == ["critical"]
    assert "in the 24 h before 2023-11-14 23:40 UTC" in past_chart.summary
    assert not read_day_chart("other", NOW, is_past=False).has_data


def test_chart_of_a_day_ends_with_the_newest_round() -> None:
    """The minute of a failure has no row yet: its agents are in the drawing, the sentence and the points."""
    for minute in range(2, 10):
        _save_minute(NOW - 60 * minute)
    present = PresentCounts(NOW - 2, 67, 0)
    chart = read_day_chart("default", NOW, is_past=False, present=present)

    assert chart.peak == 67
    assert chart.peaks.stranded_counts[-3:].tolist() == [0, 0, 67]
    assert "67 agents stranded (first at 23:59 UTC)" in chart.summary
    assert [(point.state, point.x, point.title) for point in chart.present_points] == [
        ("stranded", 100.0, "67 stranded at 23:59 UTC")
    ]
    # Most of the 24 h has no data; the minute without a row does not count as another gap.
    assert len(chart.gaps) == 1
    assert read_day_chart("default", NOW, is_past=False).peak == 0


def test_chart_after_a_pause_of_polling_keeps_its_gap() -> None:
    """The counts of now say nothing about the time without data."""
    _save_minute(NOW - HOUR, 5)
    chart = read_day_chart("default", NOW, is_past=False, present=PresentCounts(NOW - 2, 7, 0))
    assert chart.gaps[-1].title == "No data from 2023-11-14 23:01 to 23:59 UTC"
    assert chart.peaks.stranded_counts[-59:-1].max() == -1


def test_chart_without_rows_has_no_data() -> None:
    """In the first minute after the first poll."""
    assert not read_day_chart("default", NOW, is_past=False, present=PresentCounts(NOW - 2, 7, 0)).has_data
