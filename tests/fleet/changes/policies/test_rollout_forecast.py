"""Restarts one after the other, several at a time, in agent mesh, and beside instances that cannot be used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.changes.policies.rollout_forecast import (
    RolloutForecast,
    RolloutInstance,
    RolloutRisk,
    describe_forecast,
    describe_risk,
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


def test_peak_of_agents_at_risk_is_that_of_the_last_restart() -> None:
    """Agents with one tunnel move to proxies that restart later; the third proxy has 27 before its restart."""
    proxies = [replace(proxy, sole_agent_count=15) for proxy in PROXIES]
    risk = forecast_rollout(proxies, ["p1", "p2", "p3"], 1, agent_count=60).risk
    assert risk == RolloutRisk(proxy_agent_count=round(15 + 15 / 3 + 20 / 3))
    assert forecast_rollout(AUTHS, ["a1", "a2", "a3"], 1, agent_count=60).risk == RolloutRisk(
        auth_agent_count=45
    )


def test_agents_with_several_tunnels_are_at_risk_only_if_all_restart() -> None:
    """Two proxies at a time end both tunnels of some agents."""
    shared_agent_counts = {frozenset({"p1", "p2"}): 7, frozenset({"p2", "p3"}): 5}
    for concurrency, agents in ((1, 0), (2, 7)):
        forecast = forecast_rollout(PROXIES, ["p1", "p2"], concurrency, 30, shared_agent_counts)
        assert forecast.risk == RolloutRisk(proxy_agent_count=agents)


def test_agents_without_another_proxy_are_unreachable() -> None:
    """No peer takes their tunnels, and none their auth connections."""
    proxy = replace(PROXIES[0], sole_agent_count=15)
    sick_proxy = replace(PROXIES[1], is_usable=False)
    assert forecast_rollout([proxy, sick_proxy], ["p1"], 1, agent_count=15).risk == RolloutRisk(
        proxy_agent_count=15, unreachable_count=15
    )
    assert forecast_rollout([AUTHS[0]], ["a1"], 1, agent_count=20).risk == RolloutRisk(
        auth_agent_count=20, unregistered_count=20
    )


def test_sentences_state_risk_and_user_connections() -> None:
    """User connections are named only if proxies restart."""
    auths, proxies = [InstanceKind.AUTH], [InstanceKind.PROXY]
    assert describe_risk(RolloutRisk(), 2, auths) == []
    (auth_sentence,) = describe_risk(RolloutRisk(auth_agent_count=1, unregistered_count=1), 2, auths)
    assert auth_sentence.startswith(
        "At most about 1 agent is connected to auths that restart at the same time"
    )
    assert "No other auth accepts connections" in auth_sentence
    no_risk, user_connections = describe_risk(RolloutRisk(), 2, proxies)
    assert no_risk.startswith("No agent loses its last tunnel")
    assert "open for up to 2 s after it advised its agents" in user_connections
    assert "its own drain time" in describe_risk(RolloutRisk(), 0, proxies)[1]
    assert "None loses its last tunnel" in describe_risk(RolloutRisk(proxy_agent_count=9), 2, proxies)[0]
    assert "9 become unreachable during the restart" in describe_risk(RolloutRisk(9, 0, 9), 2, proxies)[0]


@pytest.mark.parametrize("proxy_agent_count", [0, 9])
def test_sentence_about_proxies_agrees_with_that_about_auths(proxy_agent_count: int) -> None:
    """Restarts of auths put agents at risk, and can make them unreachable, although their tunnels stay."""
    kinds = [InstanceKind.AUTH, InstanceKind.PROXY]
    risk = RolloutRisk(proxy_agent_count, auth_agent_count=150, unregistered_count=150)
    proxy_sentence, auth_sentence, _ = describe_risk(risk, 2, kinds)
    assert "at risk" in auth_sentence
    assert "become unreachable" in auth_sentence
    assert "No agent is at risk" not in proxy_sentence
    assert "None becomes unreachable" not in proxy_sentence
    assert "last tunnel" in proxy_sentence
