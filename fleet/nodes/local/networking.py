"""The networking config that a local fleet begins with: a file, which its auths store before anything else is."""

from __future__ import annotations

from pathlib import Path

from fleet.nodes.local.plan import FleetPlan
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfig, Resource, Strategy

_FILE = "networking.yaml"


def config(plan: FleetPlan) -> NetworkingConfig:
    """What a plan says of tunnels. Raises NetworkingConfigError."""
    mesh = plan.connections == 0
    wanted = {"tunnel_strategy.type": str(Strategy.AGENT_MESH if mesh else Strategy.PROXY_PEERING)}
    if not mesh:
        wanted["agent_connection_count"] = str(plan.connections)
    if plan.keep_alive_interval:
        wanted["keep_alive_interval"] = plan.keep_alive_interval
    made = rules.changed(NetworkingConfig(), {**wanted, **dict(plan.networking)})
    rules.check(rules.with_defaults(made))
    return made


def write(plan: FleetPlan, folder: Path) -> Path:
    """Write it as a file for `auth --bootstrap`. Raises NetworkingConfigError, OSError."""
    path = folder / _FILE
    path.write_text(config_yaml.to_yaml(Resource(config(plan), {})), encoding="utf-8")
    return path
