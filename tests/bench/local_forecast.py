"""Forecast of config and policy changes against what happens on the demo's fleet: agents, tunnels, finishing time.

Each agent opens three more tunnels, one at a time, and closes them again, three times over: an opening takes as long as
the proxies' next read of the config, which is chance. All auths and all proxies restart twice, and the second time
counts. What happened is read from the connections of the agents, not from the result that the change
states.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.protocol.recovery import announce
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from tests.bench._demo import ROOT, start_demo
from tests.bench._local_changes import LocalChanges, Observation
from tests.bench.forecast import MAX_ERROR_PERCENT, error_percent
from tests.bench.measure import BenchError, Figure, Outcome, Target

_CASES = ("config", "rollouts")
#: How often all tunnels open, and the closing waits in between: short ones, then those that are measured.
_OPENING_CYCLES = 3
_SHORT_CLOSING_WAITS = {"tunnel_closing_wait_min": "5s", "tunnel_closing_wait_max": "10s"}
_MEASURED_CLOSING_WAITS = {"tunnel_closing_wait_min": "30s", "tunnel_closing_wait_max": "1m"}


@dataclass(frozen=True, slots=True)
class _Size:
    """The demo, and what changes in it."""

    agents: int
    auths: int
    proxies: int
    cycles: int
    #: Numbers of tunnels per agent to open, one change after the other.
    counts: Sequence[str]
    closing_waits: Mapping[str, str]
    #: Announce TTLs, one rollout of each role after the other.
    ttls: Sequence[str]


_WHOLE = _Size(60, 3, 4, _OPENING_CYCLES, ("2", "3", "4"), _MEASURED_CLOSING_WAITS, ("20s", "30s"))
_QUICK = _Size(
    10, 2, 2, 1, ("2",), {"tunnel_closing_wait_min": "1s", "tunnel_closing_wait_max": "2s"}, ("30s",)
)


def run(*, quick: bool, case: str | None = None) -> Outcome:
    """Measure two config changes and two rollouts over 60 agents; `--quick` over 10; `--case` only one of the two.

    Raises BenchError.
    """
    if case not in (None, *_CASES):
        raise BenchError(f"there is no case {case!r}: there are {', '.join(_CASES)}")
    size = _QUICK if quick else _WHOLE
    figures: dict[str, Figure] = {}
    flags = ("--agents", str(size.agents), "--auths", str(size.auths), "--proxies", str(size.proxies))
    with start_demo(ROOT, *flags) as (_process, demo):
        local = LocalChanges(demo)
        local.await_healthy(size.agents)
        if case != "rollouts":
            figures |= _measure_config_changes(local, size)
        if case != "config":
            figures |= _measure_rollouts(local, size)
    targets = [Target(name, at_most=MAX_ERROR_PERCENT) for name in figures if name.endswith("_error_percent")]
    return Outcome(figures, () if quick else targets)


def _measure_config_changes(local: LocalChanges, size: _Size) -> dict[str, Figure]:
    """Open and close tunnels of each agent of a demo."""
    openings = []
    for cycle in range(size.cycles):
        for count in size.counts:
            # The changes begin at moments unrelated to the proxies' reads.
            time.sleep(random.random() * announce.CHECK_PERIOD)
            change = local.plan_config({"agent_connection_count": count})
            openings.append((change["plan"]["closing"], local.run(change)))
            local.await_healthy(size.agents)
        waits = size.closing_waits if cycle == size.cycles - 1 else _SHORT_CLOSING_WAITS
        change = local.plan_config({"agent_connection_count": "1", **waits})
        closing = change["plan"]["closing"], local.run(change)
        local.await_healthy(size.agents)
    return _compare_openings(openings) | _compare_closings(*closing)


def _measure_rollouts(local: LocalChanges, size: _Size) -> dict[str, Figure]:
    """Restart the auths and the proxies of a demo, each role once before it counts: the forecast learns from that."""
    figures: dict[str, Figure] = {}
    for ttl in size.ttls:
        for name, desired_values in (
            ("policy_auth", {"auth": {AUTH_TTL_VARIABLE: ttl}}),
            ("policy_proxy", {"proxy": {PROXY_TTL_VARIABLE: ttl}}),
        ):
            change = local.plan_policies(desired_values)
            rollout_figures = _compare_rollout(name, change["plan"], local.run(change))
            local.await_healthy(size.agents)
            figures |= rollout_figures if ttl == size.ttls[-1] else {}
    return figures


def _compare_openings(openings: Sequence[tuple[Mapping[str, Any], Observation]]) -> dict[str, Figure]:
    """Return forecasts and results of config changes that open tunnels: sums, and the mean of the seconds."""
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
            statistics.fmean(closing["opening_seconds"] for closing, _ in openings),
            statistics.fmean(observation.move_seconds for _, observation in openings),
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
