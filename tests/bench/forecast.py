"""Forecast of campaigns against what happens, over 10,000 simulated agents: moved agents, tunnels and finishing time.

The plan, the steps and their database are the real ones; the clock is simulated. Each agent needs 0.3 to 3 s to move.
The bench `local_forecast` does the same for changes of config and policies.
"""

from __future__ import annotations

import statistics
import tempfile
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tests.bench import _evaluations
from tests.bench._moving_fleet import MovingFleet
from tests.bench.measure import BenchError, Figure, Outcome, Target

_AGENTS, _PROXIES, _AUTHS = 10_000, 20, 3
_STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)
#: A campaign that has not ended after these steps of a second each does not end.
_MAX_STEPS = 20_000
#: Difference between forecast and actual value, percent.
MAX_ERROR_PERCENT = 10.0


def run(*, quick: bool) -> Outcome:
    """Measure two campaigns off a proxy, one off an auth and one of the whole fleet; `--quick` a fiftieth of it."""
    agents, proxies = (_AGENTS // 50, _PROXIES // 2) if quick else (_AGENTS, _PROXIES)
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        _evaluations.set_up_django(folder)
        from fleet.vocabulary.campaigns import ConnectionKind

        for name, preset, leave in (
            ("proxy_careful", "careful", ("proxy-0",)),
            ("proxy_standard", "standard", ("proxy-0",)),
            ("fleet_fast", "fast", ()),
        ):
            fleet = MovingFleet.of(agents, proxies)
            figures |= _measure(name, fleet, preset, leave, ConnectionKind.TUNNEL)
        fleet = MovingFleet.of(agents, proxies, auths=_AUTHS)
        fleet.auth_of = {agent: number % _AUTHS for number, agent in enumerate(fleet.agents)}
        figures |= _measure("auth_fast", fleet, "fast", ("auth-0",), ConnectionKind.AUTH)
    targets = [Target(name, at_most=MAX_ERROR_PERCENT) for name in figures if name.endswith("_error_percent")]
    return Outcome(figures, () if quick else targets)


def _measure(
    name: str, fleet: MovingFleet, preset: str, leave: tuple[str, ...], connection: Any
) -> dict[str, Figure]:
    """Plan and run one campaign; return its forecast, what happened, and the differences."""
    from fleet.changes import engine
    from fleet.changes.campaigns import campaigns
    from fleet.changes.campaigns.forecast import TargetAgents, forecast_campaign
    from fleet.models.clusters import Cluster
    from fleet.vocabulary.campaign_presets import PRESETS_BY_SLUG
    from fleet.vocabulary.campaigns import ConnectionKind

    Cluster.objects.all().delete()
    cluster = Cluster.objects.create(id="default", name="Default")
    fleet.now = _STARTED_AT.timestamp()
    table = fleet.table(fleet.now)
    targets = TargetAgents(_find_rows(fleet, leave, connection), "bench", leave, connection)
    forecast = forecast_campaign(table, targets)
    settings = PRESETS_BY_SLUG[preset].settings
    change = campaigns.plan_campaign(
        cluster.pk, table, targets, settings, _actor(), _STARTED_AT, fleet.random.shuffle
    )
    change = engine.confirm(change, _actor(), reason="to measure it", typed_name=cluster.pk, now=_STARTED_AT)
    change = _run_until_ended(change, fleet)
    counts = campaigns.counts_of(change)
    loads = {view.facts.name: view.agent_count for view in fleet.table(fleet.now).instances.values()}
    closed_figures: dict[str, Figure] = {}
    if connection is ConnectionKind.TUNNEL:
        # Each agent that moves closes the tunnel to the proxy that it leaves.
        closed_figures[f"{name}_closed_tunnels"] = fleet.closed_count
        closed_figures[f"{name}_closed_tunnels_error_percent"] = error_percent(
            sum(forecast.agents_by_instance.values()), fleet.closed_count
        )
    forecast_seconds = float(change.plan["duration_seconds"])
    seconds = fleet.now - _STARTED_AT.timestamp()
    return {
        f"{name}_agents_forecast": forecast.reconnect_count,
        f"{name}_agents": counts.succeeded_count,
        f"{name}_agents_error_percent": error_percent(forecast.reconnect_count, counts.succeeded_count),
        **_compare_loads(name, forecast.loads, loads),
        **closed_figures,
        f"{name}_seconds_forecast": round(forecast_seconds, 1),
        f"{name}_seconds": round(seconds, 1),
        f"{name}_seconds_error_percent": error_percent(forecast_seconds, seconds),
    }


def _run_until_ended(change: Any, fleet: MovingFleet) -> Any:
    """Make a step each second, as a worker does. Raises BenchError."""
    from fleet.changes.campaigns.run import CampaignRunner
    from fleet.vocabulary.changes import ChangeState
    from tests.fakes.step_contexts import InMemoryReader, create_step_context

    context = create_step_context(
        lambda: fleet.now, reader=InMemoryReader(fleet.table), writer=fleet, dialer=fleet
    )
    for _ in range(_MAX_STEPS):
        fleet.now += 1.0
        CampaignRunner().step(change, context)
        fleet.move()
        change.refresh_from_db()
        if change.state not in (ChangeState.CONFIRMED.value, ChangeState.RUNNING.value):
            break
    if change.state != ChangeState.VERIFIED.value:
        raise BenchError(f"the campaign did not end as it should: it is {change.state}, {change.detail}")
    return change


def _find_rows(fleet: MovingFleet, leave: tuple[str, ...], connection: Any) -> Any:
    """Return the rows of the agents to move: those connected to the instances to leave, or all."""
    from fleet.vocabulary.campaigns import ConnectionKind

    numbers = {int(instance.partition("-")[2]) for instance in leave}
    is_target = [
        not leave
        or (fleet.auth_of[agent] in numbers if connection is ConnectionKind.AUTH else bool(proxies & numbers))
        for agent, proxies in fleet.agents.items()
    ]
    return np.flatnonzero(is_target)


def _compare_loads(name: str, loads_forecast: Any, loads: dict[str, int]) -> dict[str, Figure]:
    """Return the differences of the loads. Agents choose at random, so the largest one is partly chance: no target."""
    errors = [error_percent(load.after, loads[load.name]) for load in loads_forecast]
    return {
        f"{name}_load_error_percent": round(statistics.mean(errors), 1),
        f"{name}_largest_load_error": max(errors),
    }


def error_percent(forecast: float, actual: float) -> float:
    """Return the difference as a percentage of the actual value."""
    if not actual:
        return 0.0 if not forecast else 100.0
    return round(abs(forecast - actual) * 100 / actual, 1)


def _actor() -> Any:
    from fleet.audit import RequestActor
    from fleet.vocabulary.changes import Actor, ActorKind

    return RequestActor(Actor(ActorKind.PERSON, "bench", None), "bench", "")
