"""The networking config that a local fleet begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.nodes.auth import cluster_config
from fleet.nodes.local import networking
from fleet.nodes.local.plan import FleetPlan
from fleet.protocol.networking.config import NetworkingConfigError
from fleet.transport import networking_config


@pytest.mark.parametrize(
    ("plan", "strategy", "count"),
    [
        (FleetPlan(), "proxy_peering", 1),
        (FleetPlan(connections=3), "proxy_peering", 3),
        (FleetPlan(connections=0), "agent_mesh", 0),
        (FleetPlan(networking=(("agent_connection_count", "2"),)), "proxy_peering", 2),
    ],
)
def test_strategy(plan: FleetPlan, strategy: str, count: int) -> None:
    """As many tunnels as the plan says; 0 is agent mesh; what is said by name comes last."""
    config = networking.config(plan)
    assert (config.tunnel_strategy, config.agent_connection_count) == (strategy, count)


def test_file_is_what_an_auth_takes(tmp_path: Path) -> None:
    """Written, it reads as the config it was made of."""
    plan = FleetPlan(keep_alive_interval="7s", networking=(("graceful_tunnel_closing", "true"),))
    beginning = cluster_config.read_initial_config(None, networking.write(plan, tmp_path))
    assert beginning is not None
    config = networking_config.read(beginning.message).config
    assert (config.keep_alive_interval, config.graceful_tunnel_closing) == (7.0, True)
    assert config.agent_connection_count == 1


def test_what_is_out_of_range_is_named() -> None:
    """Before anything is started."""
    with pytest.raises(NetworkingConfigError, match="tunnel_closing_wait_min"):
        networking.config(FleetPlan(networking=(("tunnel_closing_wait_min", "1ms"),)))
