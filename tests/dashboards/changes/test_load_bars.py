"""Bars of loads before and after a campaign."""

from __future__ import annotations

from django.template.loader import render_to_string

from dashboards.changes.load_bars import describe_difference, load_bars_of
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


def test_actual_loads_are_compared_with_the_forecast() -> None:
    """The sentence names the instance that differs most."""
    loads = [
        InstanceLoadForecast("auth-1", InstanceKind.AUTH, 8, 0, is_leaving=True),
        InstanceLoadForecast("auth-2", InstanceKind.AUTH, 8, 16, is_leaving=False),
    ]
    bars = load_bars_of(loads, {"auth-1": 1, "auth-2": 20})
    assert [(bar.actual, bar.actual_percent) for bar in bars] == [(1, 5.0), (20, 100.0)]
    assert describe_difference(bars) == "Largest difference from the forecast: auth-2 has 4 agents more."
    assert describe_difference(load_bars_of(loads, {"auth-1": 0})) == "As forecast."
    one_less = load_bars_of(loads, {"auth-2": 15})
    assert describe_difference(one_less) == "Largest difference from the forecast: auth-2 has 1 agent fewer."
    assert describe_difference(load_bars_of(loads)) == ""


def test_empty_fleet_has_no_scale() -> None:
    """No division by zero."""
    (bar,) = load_bars_of([InstanceLoadForecast("auth-1", InstanceKind.AUTH, 0, 0, is_leaving=True)])
    assert (bar.before_percent, bar.unit) == (0.0, "agents")


def test_agents_and_tunnels_have_a_table_each() -> None:
    """A rollout restarts auths and proxies: the column must say what its numbers count."""
    loads = [
        InstanceLoadForecast("proxy-1", InstanceKind.PROXY, 30, 40),
        InstanceLoadForecast("auth-1", InstanceKind.AUTH, 8, 16),
        InstanceLoadForecast("proxy-2", InstanceKind.PROXY, 30, 20),
    ]
    bars = load_bars_of(loads)
    assert [bar.name for bar in bars] == ["auth-1", "proxy-1", "proxy-2"]
    html = render_to_string("dashboards/_load_forecast.html", {"load_bars": bars})
    auth_table, proxy_table = html.split("</table>")[:2]
    assert "Agents, before → after" in auth_table
    assert "proxy-1" not in auth_table
    assert "Tunnels, before → after" in proxy_table
    assert ">Proxy<" in proxy_table
    assert "auth-1" not in proxy_table
