"""Which agents a campaign moves so that the loads become even."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.changes import NoEvidenceError
from fleet.changes.campaigns.forecast import TargetAgents, forecast_campaign
from fleet.changes.campaigns.spread import select_agents_to_spread
from fleet.vocabulary.campaigns import ConnectionKind
from tests.fakes.campaign_fleet import CampaignFleet

TUNNEL, AUTH = ConnectionKind.TUNNEL, ConnectionKind.AUTH


def _loads_after(fleet: CampaignFleet, connection: ConnectionKind) -> tuple[int, dict[str, int]]:
    """Return how many agents move, and the loads that the campaign is expected to end with."""
    table = fleet.table(1.0)
    indices = select_agents_to_spread(table, connection)
    forecast = forecast_campaign(table, TargetAgents(indices, "spread", (), connection))
    assert forecast.reconnect_count == len(indices)
    return len(indices), {load.name: load.after for load in forecast.loads}


def _fleet_with(*counts: int, **fields: object) -> CampaignFleet:
    agents = {f"p{proxy}-{n}": {proxy} for proxy, count in enumerate(counts) for n in range(count)}
    return CampaignFleet(agents, len(counts), **fields)  # type: ignore[arg-type] # fields by name


@pytest.mark.parametrize("counts", [(0, 40, 40), (0, 60), (10, 20, 60), (0, 0, 90), (5, 50, 50, 51)])
def test_loads_become_even(counts: tuple[int, ...]) -> None:
    """Within one agent of the mean, which all agents of the other proxies would miss by far."""
    moved_count, loads = _loads_after(_fleet_with(*counts), TUNNEL)
    mean = sum(counts) / len(counts)
    assert all(abs(load - mean) <= 1 for load in loads.values()), loads
    assert 0 < moved_count < sum(counts) - counts[0] or counts == (0, 60)


def test_agents_with_two_tunnels() -> None:
    """They can only move to a proxy to which they have no tunnel."""
    agents = {f"a{n}": {1 + n % 3, 1 + (n + 1) % 3} for n in range(60)}
    _, loads = _loads_after(CampaignFleet(agents, 4, desired_count=2), TUNNEL)
    assert all(abs(load - 30) <= 2 for load in loads.values()), loads


def test_auth_connections() -> None:
    """Agents of the auth with too many."""
    _, loads = _loads_after(CampaignFleet.on_auths(40, auths=2), AUTH)
    assert loads == {"auth-0": 20, "auth-1": 20}


def test_even_loads_need_no_campaign() -> None:
    """Nor does a fleet with one proxy, or one of which the others are unusable."""
    for fleet in (_fleet_with(20, 20, 20), _fleet_with(20), _fleet_with(0, 20, sick_proxies={0})):
        assert not len(select_agents_to_spread(fleet.table(1.0), TUNNEL))


def test_agents_of_an_unusable_proxy_are_left_out() -> None:
    """Spreading is no drain: they are another campaign's."""
    fleet = _fleet_with(0, 40, 30, drained_proxies={2})
    indices = select_agents_to_spread(fleet.table(1.0), TUNNEL)
    assert {fleet.table(1.0).names[index][:2] for index in indices.tolist()} == {"p1"}
    assert len(indices) == 20


def test_a_large_fleet_is_spread_in_a_bounded_number_of_steps() -> None:
    """Loads that differ by a step are even enough."""
    _, loads = _loads_after(_fleet_with(0, 4000, 4000), TUNNEL)
    assert np.ptp(list(loads.values())) <= 8


def test_old_data_is_refused() -> None:
    """A selection from it would be a guess."""
    with pytest.raises(NoEvidenceError):
        select_agents_to_spread(_fleet_with(0, 10, stale=True).table(1.0), TUNNEL)
