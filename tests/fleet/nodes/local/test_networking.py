"""The initial networking config of a local fleet."""

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
def test_strategy_follows_the_connections_of_the_plan(plan: FleetPlan, strategy: str, count: int) -> None:
    """Zero connections mean agent mesh; a networking setting overrides the number of connections."""
    config = networking.make_config(plan)
    assert (config.tunnel_strategy, config.agent_connection_count) == (strategy, count)


def test_written_file_is_read_as_the_same_config(tmp_path: Path) -> None:
    """An auth reads the values that the plan has."""
    plan = FleetPlan(keep_alive_interval="7s", networking=(("graceful_tunnel_closing", "true"),))
    initial_config = cluster_config.read_initial_networking_config(
        None, networking.write_config(plan, tmp_path)
    )
    assert initial_config is not None
    config = networking_config.read(initial_config.message).config
    assert (config.keep_alive_interval, config.graceful_tunnel_closing) == (7.0, True)
    assert config.agent_connection_count == 1


def test_value_out_of_range_is_named() -> None:
    """The error comes before any process starts."""
    with pytest.raises(NetworkingConfigError, match="tunnel_closing_wait_min"):
        networking.make_config(FleetPlan(networking=(("tunnel_closing_wait_min", "1ms"),)))
