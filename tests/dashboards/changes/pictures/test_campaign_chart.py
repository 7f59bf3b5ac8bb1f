"""The waves of a campaign."""

from __future__ import annotations

import pytest

from dashboards.changes.pictures.campaign_chart import campaign_chart_of
from fleet.vocabulary.campaigns import CampaignSettings

SETTINGS = CampaignSettings(canary_size=5, soak_seconds=10, jitter_seconds=2)


def test_planned_chart_shows_canaries_soak_time_and_the_rest() -> None:
    """The bounds of the soak time are where the curve is flat."""
    chart = campaign_chart_of(100, SETTINGS, 40.0)
    assert chart is not None
    assert (chart.actual, chart.now_x, chart.failures) == ("", None, ())
    assert chart.canary_end_x == pytest.approx(100 * 5 / 60, abs=0.1)
    assert chart.soak_width == pytest.approx(100 * 10 / 60, abs=0.1)
    assert chart.expected.split()[1].endswith(",95")
    assert chart.expected.split()[2].endswith(",95")


def test_few_agents_are_one_wave() -> None:
    """All of them are canaries."""
    chart = campaign_chart_of(4, SETTINGS, 10.0)
    assert chart is not None
    assert (chart.canary_end_x, chart.soak_end_x) == (None, None)


def test_results_are_added_up_and_failures_are_marked() -> None:
    """Skipped agents do not count: they do not move."""
    results = [(5.0, "succeeded", 4), (5.0, "failed", 1), (20.0, "skipped", 50), (25.0, "succeeded", 45)]
    chart = campaign_chart_of(100, SETTINGS, 40.0, results, 30.0, is_running=True)
    assert chart is not None
    assert chart.actual.endswith(",50")
    assert [(failure.count, failure.x) for failure in chart.failures] == [
        (1, pytest.approx(100 * 5 / 60, abs=0.1))
    ]
    assert chart.now_x == pytest.approx(100 * 30 / 60, abs=0.1)
    ended_chart = campaign_chart_of(100, SETTINGS, 40.0, results, 90.0)
    assert ended_chart is not None
    assert ended_chart.now_x is None


def test_campaign_without_agents_has_no_chart() -> None:
    """All were skipped."""
    assert campaign_chart_of(0, SETTINGS, 0.0) is None
