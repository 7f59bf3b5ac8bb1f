"""The routes of a local fleet's gateway: unary calls of operators and consoles to auths. docs/reference/local-fleet.md

Agents use the balancer: `teleport_pick_healthy` works on connections, and a gateway would hide their auth.
"""

from __future__ import annotations

from pathlib import Path

from fleet.protocol.retry import grpc_route_yaml
from fleet.protocol.retry.gep_duration import GepDuration
from fleet.protocol.retry.grpc_route import BackendRef, GRPCRoute, GRPCRouteRule, Match, Retry, Timeouts
from fleet.protocol.retry.policy import RetryReason

#: Name and port of the auths in the routes.
AUTHS_BACKEND = "auths"
AUTHS_PORT = 3025
_ROUTES_FILE_NAME = "routes.yaml"
_CLUSTER_CONFIG_SERVICE = "teleport.clusterconfig.v1.ClusterConfigService"
_READ_METHOD = "GetClusterNetworkingConfig"


def make_routes() -> tuple[GRPCRoute, ...]:
    """Return the routes: reads are retried, on another auth if possible. Writes are not retried."""
    backends = (BackendRef(AUTHS_BACKEND, AUTHS_PORT),)
    timeouts = Timeouts(GepDuration.read("4s"), GepDuration.read("1500ms"))
    retry = Retry((RetryReason.UNAVAILABLE, RetryReason.DEADLINE_EXCEEDED), 2, GepDuration.read("50ms"))
    read_rule = GRPCRouteRule((Match(_CLUSTER_CONFIG_SERVICE, _READ_METHOD),), retry, timeouts, backends)
    write_rule = GRPCRouteRule((Match(_CLUSTER_CONFIG_SERVICE),), None, Timeouts(timeouts.request), backends)
    return (GRPCRoute("operators", rules=(read_rule, write_rule)),)


def write_routes(folder: Path) -> Path:
    """Write the routes to a file for `gateway --routes`, and return its path. Raises OSError."""
    path = folder / _ROUTES_FILE_NAME
    path.write_text(grpc_route_yaml.to_yaml(make_routes()), encoding="utf-8")
    return path
