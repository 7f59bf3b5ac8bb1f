"""Forecast of config and policy changes against what happens on the demo's fleet: agents, tunnels, finishing time.

Each agent opens three more tunnels, one at a time, and closes them again. All auths and all proxies restart twice, and
the second time counts. What happened is read from the connections of the agents, not from the result that the change
states.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from tests.bench._demo import ROOT, start_demo
from tests.bench._local_changes import LocalChanges, Observation
from tests.bench.forecast import MAX_ERROR_PERCENT, error_percent
from tests.bench.measure import Figure, Outcome, Target

_AGENTS = 60


def run(*, quick: bool) -> Outcome:
    """Measure two config changes and two rollouts over 60 agents; `--quick` over 20."""
    figures = _measure_changes(agents=_AGENTS // (3 if quick else 1))
    targets = [Target(name, at_most=MAX_ERROR_PERCENT) for name in figures if name.endswith("_error_percent")]
    return Outcome(figures, () if quick else targets)


def _measure_changes(agents: int) -> dict[str, Figure]:
    """Open and close a tunnel of each agent of a demo, then restart its auths and its proxies."""
    figures: dict[str, Figure] = {}
    with start_demo(ROOT, "--agents", str(agents)) as (_process, demo):
        local = LocalChanges(demo)
        local.await_healthy(agents)
        openings = []
        for count in ("2", "3", "4"):
            change = local.plan_config({"agent_connection_count": count})
            openings.append((change["plan"]["closing"], local.run(change)))
            local.await_healthy(agents)
        figures |= _compare_openings(openings)
        change = local.plan_config({"agent_connection_count": "1"})
        figures |= _compare_closings(change["plan"]["closing"], local.run(change))
        local.await_healthy(agents)
        # Each role restarts once before it counts: the forecast learns from earlier restarts of the role.
        for ttl in ("20s", "30s"):
            for name, desired_values in (
                ("policy_auth", {"auth": {AUTH_TTL_VARIABLE: ttl}}),
                ("policy_proxy", {"proxy": {PROXY_TTL_VARIABLE: ttl}}),
            ):
                change = local.plan_policies(desired_values)
                rollout_figures = _compare_rollout(name, change["plan"], local.run(change))
                local.await_healthy(agents)
                figures |= rollout_figures if ttl == "30s" else {}
    return figures


def _compare_openings(openings: Sequence[tuple[Mapping[str, Any], Observation]]) -> dict[str, Figure]:
    """Return forecasts and results of config changes that open tunnels: sums, and the median of the seconds."""
    return {
        **_compare(
            "config_open_agents",
            sum(closing["opening_agent_count"] for closing, _ in openings),
            sum(len(observation.agents) for _, observation in openings),
        ),
        **_compare(
            "config_open_opened_tunnels",
            sum(closing["opening_count"] for closing, _ in openings),
            sum(observation.opened_count for _, observation in openings),
        ),
        **_compare(
            "config_open_seconds",
            statistics.median(closing["reaction_seconds"] for closing, _ in openings),
            statistics.median(observation.move_seconds for _, observation in openings),
        ),
    }


def _compare_closings(closing: Mapping[str, Any], observation: Observation) -> dict[str, Figure]:
    """Return forecast and result of a config change that closes tunnels."""
    seconds = max(step["latest_seconds"] for step in closing["steps"])
    return {
        **_compare("config_close_agents", closing["agent_count"][1], len(observation.agents)),
        **_compare("config_close_closed_tunnels", closing["closing_count"][1], observation.closed_count),
        **_compare("config_close_seconds", seconds, observation.move_seconds),
    }


def _compare_rollout(name: str, plan: Mapping[str, Any], observation: Observation) -> dict[str, Figure]:
    """Return forecast and result of a rollout that restarts all auths or all proxies."""
    load_errors = [abs(load["after"] - observation.loads[load["name"]]) for load in plan["loads"]]
    is_auth = plan["loads"][0]["kind"] == "auth"
    return {
        **_compare(f"{name}_agents", sum(load["before"] for load in plan["loads"]), len(observation.agents)),
        **_compare(
            f"{name}_{'reconnects' if is_auth else 'closed_tunnels'}",
            plan["reconnect_count"],
            observation.auth_move_count if is_auth else observation.closed_count,
        ),
        **_compare(f"{name}_seconds", plan["duration_seconds"], observation.change_seconds),
        f"{name}_largest_load_error_agents": max(load_errors),
    }


def _compare(name: str, forecast: float, actual: float) -> dict[str, Figure]:
    return {
        f"{name}_forecast": round(forecast, 1),
        name: round(actual, 1),
        f"{name}_error_percent": error_percent(forecast, actual),
    }
