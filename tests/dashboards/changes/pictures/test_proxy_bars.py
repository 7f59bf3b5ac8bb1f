"""Bars of tunnels before and after."""

from __future__ import annotations

from dashboards.changes.pictures.proxy_bars import proxy_bars_of


def test_bars_have_one_scale_and_natural_order() -> None:
    """The uncertain part follows the certain one."""
    proxies = [
        {"name": "proxy-10", "tunnels_before": 20, "tunnels_after": [10, 15], "opening_count": [0, 0]},
        {"name": "proxy-2", "tunnels_before": 10, "tunnels_after": [40, 40], "opening_count": [30, 30]},
    ]
    first_bar, second_bar = proxy_bars_of(proxies, ["proxy-10"])
    assert (first_bar.name, first_bar.before_percent, first_bar.low_percent, first_bar.opening_count) == (
        "proxy-2",
        25.0,
        100.0,
        30,
    )
    assert (second_bar.low_percent, second_bar.uncertain_percent, second_bar.is_uncertain) == (
        25.0,
        12.5,
        True,
    )
