"""What a campaign would do."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.changes import ChangeRefusedError, NoEvidenceError
from fleet.changes.campaigns.forecast import (
    CampaignForecast,
    TargetAgents,
    forecast_campaign,
    require_moves,
)
from fleet.vocabulary.campaigns import ConnectionKind
from tests.fakes.campaign_fleet import CampaignFleet


def _forecast(fleet: CampaignFleet, *leave: str, auth: bool = False) -> CampaignForecast:
    connection = ConnectionKind.AUTH if auth else ConnectionKind.TUNNEL
    indices = np.arange(len(fleet.agents))
    return forecast_campaign(fleet.table(1.0), TargetAgents(indices, "all", leave, connection))


def _loads_of(forecast: CampaignForecast) -> dict[str, tuple[int, int, bool]]:
    return {load.name: (load.before, load.after, load.is_leaving) for load in forecast.loads}


def test_agents_of_a_proxy_spread_over_the_others() -> None:
    """Tunnels are not lost: the loads have the same sum before and after."""
    forecast = _forecast(CampaignFleet({f"a{n}": {0} for n in range(7)}, proxies=3), "proxy-0")
    assert (forecast.target_count, forecast.reconnect_count) == (7, 7)
    assert _loads_of(forecast) == {
        "proxy-0": (7, 0, True),
        "proxy-1": (0, 4, False),
        "proxy-2": (0, 3, False),
    }
    assert forecast.destinations == {"proxy-1": 0, "proxy-2": 0}


def test_unusable_instances_are_no_destinations() -> None:
    """Sick, drained, of an older generation; and auths alike."""
    fleet = CampaignFleet({"a": {0}}, proxies=5, sick_proxies={1}, drained_proxies={2}, old_proxies={3})
    assert _loads_of(_forecast(fleet, "proxy-0")) == {
        "proxy-0": (1, 0, True),
        "proxy-4": (0, 1, False),
    }
    auths = CampaignFleet.on_auths(4, auths=4, sick_auths={1}, drained_auths={2})
    assert _loads_of(_forecast(auths, "auth-0", auth=True)) == {
        "auth-0": (4, 0, True),
        "auth-3": (0, 4, False),
    }


def test_skipped_agents_are_counted_by_reason_and_danger() -> None:
    """An agent with a tunnel elsewhere is safe; one without another connection is not."""
    fleet = CampaignFleet({"safe": {0, 1}, "alone": {0}}, proxies=2, sick_proxies={1})
    forecast = _forecast(fleet, "proxy-0")
    assert (forecast.reconnect_count, forecast.skipped_count, forecast.cut_off_count) == (0, 2, 1)
    assert "every healthy proxy" in forecast.main_skip_reason


def test_agents_without_a_proxy_to_leave_may_move_anywhere() -> None:
    """No instance is left for good: none is marked as leaving."""
    forecast = _forecast(CampaignFleet.of(6))
    assert [load.is_leaving for load in forecast.loads] == [False] * 3
    assert sum(load.after for load in forecast.loads) == 6


def test_old_data_is_refused() -> None:
    """A forecast from it would be a guess."""
    with pytest.raises(NoEvidenceError):
        _forecast(CampaignFleet.of(3, stale=True))


@pytest.mark.parametrize(
    ("forecast", "sentence"),
    [
        (CampaignForecast(0), "there are no agents of proxy-1"),
        (
            CampaignForecast(2, 0, {"the agent is retired": 2}),
            "none of the target agents can reconnect: the agent",
        ),
    ],
)
def test_forecast_without_moves_is_refused(forecast: CampaignForecast, sentence: str) -> None:
    """With the reason."""
    with pytest.raises(ChangeRefusedError, match=sentence):
        require_moves(forecast, "of proxy-1")
    require_moves(CampaignForecast(2, 1), "of proxy-1")


def test_last_known_tunnels_of_a_silent_proxy_are_no_load() -> None:
    """Agents that are connected elsewhere do not move again; the others cannot be reached through it."""
    fleet = CampaignFleet({"left": {0, 1}, "stuck": {0}, "other": {2}}, proxies=3, silent_proxies={0})
    forecast = _forecast(fleet, "proxy-0")
    assert (forecast.reconnect_count, forecast.cut_off_count) == (0, 1)
    assert set(forecast.skipped_by_reason) == {
        "the agent is already connected to another proxy",
        "the agent has no tunnel to a reachable proxy, so Refloat cannot reach it",
    }
    assert _loads_of(forecast) == {"proxy-0": (1, 1, True)}


def test_silent_proxy_is_neither_destination_nor_relay() -> None:
    """Agents of another proxy move to those that respond, and an agent leaves a proxy that can ask it."""
    fleet = CampaignFleet({"a": {0}, "b": {0, 1}}, proxies=3, silent_proxies={1})
    forecast = _forecast(fleet, "proxy-0")
    assert _loads_of(forecast) == {"proxy-0": (2, 0, True), "proxy-2": (0, 2, False)}
    assert _forecast(fleet).agents_by_instance == {"proxy-0": 2}
    fleet.desired_count = 2
    assert "only 1 of its 2 tunnels" in _forecast(fleet, "proxy-0").skipped_by_reason.__repr__()
