"""Restarts one after the other, several at a time, in agent mesh, and beside instances that cannot be used."""

from __future__ import annotations

import pytest

from fleet.changes.policies.rollout_forecast import (
    RolloutForecast,
    RolloutInstance,
    describe_forecast,
    forecast_rollout,
)
from fleet.vocabulary.instances import InstanceKind

AUTHS = tuple(RolloutInstance(f"a{n}", f"auth-{n}", InstanceKind.AUTH, 20) for n in (1, 2, 3))
PROXIES = tuple(RolloutInstance(f"p{n}", f"proxy-{n}", InstanceKind.PROXY, 15) for n in (1, 2, 3, 4))


def _loads_after(forecast: RolloutForecast) -> list[int]:
    return [load.after for load in forecast.loads]


def test_agents_move_to_instances_that_restart_later() -> None:
    """20, then 20 + 10, then 30 + 15 agents reconnect; the last auth has none."""
    forecast = forecast_rollout(AUTHS, ["a1", "a2", "a3"], concurrency=1, agent_count=60)
    assert forecast.reconnect_count == 20 + 30 + 45
    assert sorted(_loads_after(forecast)) == [0, 22, 38]
    assert _loads_after(forecast)[2] == 0
    assert [load.before for load in forecast.loads] == [20, 20, 20]


def test_tunnels_move_to_proxies_that_restart_later() -> None:
    """Only the loads of the kind that restarts are in the forecast."""
    forecast = forecast_rollout((*AUTHS, *PROXIES), ["p1", "p2", "p3", "p4"], 1, agent_count=60)
    assert forecast.reconnect_count == round(15 + 20 + 80 / 3 + 320 / 9)
    assert [load.name for load in forecast.loads] == [proxy.name for proxy in PROXIES]
    assert sum(_loads_after(forecast)) == 60
    assert _loads_after(forecast)[3] == 0


def test_agents_never_move_to_an_instance_of_the_same_group() -> None:
    """Two restart at the same time, so the third gets all."""
    forecast = forecast_rollout(AUTHS, ["a1", "a2"], concurrency=2, agent_count=60)
    assert forecast.reconnect_count == 40
    assert _loads_after(forecast) == [0, 0, 60]


def test_agent_mesh_opens_the_same_tunnels_again() -> None:
    """Each agent has a tunnel to every proxy: there is no other one to move to."""
    mesh = tuple(RolloutInstance(f"p{n}", f"proxy-{n}", InstanceKind.PROXY, 60) for n in (1, 2))
    forecast = forecast_rollout(mesh, ["p1", "p2"], concurrency=1, agent_count=60)
    assert forecast.reconnect_count == 120
    assert _loads_after(forecast) == [60, 60]


def test_agents_avoid_instances_that_cannot_be_used() -> None:
    """Without any peer, agents come back to the same instance."""
    sick_auth = RolloutInstance("a4", "auth-4", InstanceKind.AUTH, 0, is_usable=False)
    forecast = forecast_rollout((AUTHS[0], sick_auth), ["a1"], concurrency=1, agent_count=20)
    assert (forecast.reconnect_count, _loads_after(forecast)) == (20, [20, 0])


@pytest.mark.parametrize(
    ("restart_order", "sentence"),
    [
        ([], ""),
        (["a1"], "Agents reconnect about 20 times."),
        (
            ["a1", "a2", "a3"],
            "Agents reconnect about 95 times, because an agent can move to an instance that restarts later.",
        ),
    ],
)
def test_sentence_explains_repeated_reconnects(restart_order: list[str], sentence: str) -> None:
    """More reconnects than agents need a reason."""
    assert describe_forecast(forecast_rollout(AUTHS, restart_order, 1, agent_count=60)) == sentence
