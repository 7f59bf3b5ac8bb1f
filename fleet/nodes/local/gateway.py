"""The routes of a local fleet's gateway: unary calls of operators and consoles to auths. docs/fleet-up.md

Agents keep to the balancer: `teleport_pick_healthy` reasons of connections, and a gateway would hide which auth one is.
"""

from __future__ import annotations

from pathlib import Path

from fleet.protocol.retry import grpc_route_yaml
from fleet.protocol.retry.gep_duration import GepDuration
from fleet.protocol.retry.grpc_route import Backend, GRPCRoute, Match, Retry, Rule, Timeouts
from fleet.protocol.retry.policy import Reason

#: What the routes call the auths.
AUTHS = "auths"
PORT = 3025
_FILE = "routes.yaml"
_CONFIG = "teleport.clusterconfig.v1.ClusterConfigService"
_READ = "GetClusterNetworkingConfig"


def routes() -> tuple[GRPCRoute, ...]:
    """Reading is retried, elsewhere if it can be; writing is not: whoever wrote must learn what came of it."""
    to = (Backend(AUTHS, PORT),)
    limits = Timeouts(GepDuration.read("4s"), GepDuration.read("1500ms"))
    again = Retry((Reason.UNAVAILABLE, Reason.DEADLINE_EXCEEDED), 2, GepDuration.read("50ms"))
    reading = Rule((Match(_CONFIG, _READ),), again, limits, to)
    writing = Rule((Match(_CONFIG),), None, Timeouts(limits.request), to)
    return (GRPCRoute("operators", rules=(reading, writing)),)


def write(folder: Path) -> Path:
    """Write them as a file for `gateway --routes`. Raises OSError."""
    path = folder / _FILE
    path.write_text(grpc_route_yaml.to_yaml(routes()), encoding="utf-8")
    return path
