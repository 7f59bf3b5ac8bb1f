"""The initial networking config of a local fleet: a file that its auths store when they start first."""

from __future__ import annotations

from pathlib import Path

from fleet.nodes.local.plan import FleetPlan
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfig, NetworkingResource, Strategy

_FILE = "networking.yaml"


def make_config(plan: FleetPlan) -> NetworkingConfig:
    """Return the networking config for a fleet plan. Raises NetworkingConfigError."""
    is_mesh = plan.connections == 0
    fields = {"tunnel_strategy.type": str(Strategy.AGENT_MESH if is_mesh else Strategy.PROXY_PEERING)}
    if not is_mesh:
        fields["agent_connection_count"] = str(plan.connections)
    if plan.keep_alive_interval:
        fields["keep_alive_interval"] = plan.keep_alive_interval
    networking_config = rules.set_fields(NetworkingConfig(), {**fields, **dict(plan.networking)})
    rules.check(rules.with_defaults(networking_config))
    return networking_config


def write_config(plan: FleetPlan, folder: Path) -> Path:
    """Write the config to a file for `auth --bootstrap`; return its path. Raises NetworkingConfigError, OSError."""
    path = folder / _FILE
    path.write_text(config_yaml.to_yaml(NetworkingResource(make_config(plan), {})), encoding="utf-8")
    return path
