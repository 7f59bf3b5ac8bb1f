"""The routes of a local fleet's gateway: unary calls of operators and consoles to auths. docs/fleet-up.md

Agents keep to the balancer: `teleport_pick_healthy` reasons of connections, and a gateway would hide which auth one is.
"""

from __future__ import annotations

from pathlib import Path

from fleet.protocol.retry import grpc_route_yaml
from fleet.protocol.retry.gep_duration import GepDuration
from fleet.protocol.retry.grpc_route import BackendRef, GRPCRoute, Match, Retry, GRPCRouteRule, Timeouts
from fleet.protocol.retry.policy import RetryReason

#: What the routes call the auths.
AUTHS = "auths"
PORT = 3025
_FILE = "routes.yaml"
_CONFIG = "teleport.clusterconfig.v1.ClusterConfigService"
_READ = "GetClusterNetworkingConfig"


def routes() -> tuple[GRPCRoute, ...]:
    """Reading is retried, elsewhere if it can be; writing is not: whoever wrote must learn what came of it."""
    backends = (BackendRef(AUTHS, PORT),)
    limits = Timeouts(GepDuration.read("4s"), GepDuration.read("1500ms"))
    retry = Retry((RetryReason.UNAVAILABLE, RetryReason.DEADLINE_EXCEEDED), 2, GepDuration.read("50ms"))
    read_rule = GRPCRouteRule((Match(_CONFIG, _READ),), retry, limits, backends)
    write_rule = GRPCRouteRule((Match(_CONFIG),), None, Timeouts(limits.request), backends)
    return (GRPCRoute("operators", rules=(read_rule, write_rule)),)


def write(folder: Path) -> Path:
    """Write them as a file for `gateway --routes`. Raises OSError."""
    path = folder / _FILE
    path.write_text(grpc_route_yaml.to_yaml(routes()), encoding="utf-8")
    return path
