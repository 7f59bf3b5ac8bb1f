"""Bars of loads before and after a campaign."""

from __future__ import annotations

from dashboards.changes.load_bars import load_bars_of
from fleet.changes.load_forecast import InstanceLoadForecast
from fleet.vocabulary.instances import InstanceKind


def test_bars_have_one_scale() -> None:
    """The largest load of any instance, before or after, is the full width."""
    first_bar, second_bar = load_bars_of(
        [
            InstanceLoadForecast("proxy-1", InstanceKind.PROXY, 10, 0, is_leaving=True),
            InstanceLoadForecast("proxy-2", InstanceKind.PROXY, 30, 40, is_leaving=False),
        ]
    )
    assert (first_bar.before_percent, first_bar.after_percent) == (25.0, 0.0)
    assert (second_bar.before_percent, second_bar.after_percent, second_bar.unit) == (75.0, 100.0, "tunnels")


def test_empty_fleet_has_no_scale() -> None:
    """No division by zero."""
    (bar,) = load_bars_of([InstanceLoadForecast("auth-1", InstanceKind.AUTH, 0, 0, is_leaving=True)])
    assert (bar.before_percent, bar.unit) == (0.0, "agents")
