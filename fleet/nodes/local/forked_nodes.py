"""Start nodes of a local fleet as forks of `refloat fleet up`, which has loaded their common modules.

Each program that is executed loads gRPC, aiohttp and redis first: 0.6 s of CPU, which a fleet of eight pays eight
times. docs/decisions/0008-copies-of-one-process.md
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from fleet.processes import forks
from fleet.processes.supervisor import Spawn

#: Roles that run as forks. Agents are executed: they load less than these, and the forwarder starts first.
FORKED_ROLES = frozenset({"auth", "balancer", "gateway", "proxy"})
_SHARED_MODULES = (
    "fleet.nodes.auth.server",
    "fleet.nodes.balancer.server",
    "fleet.nodes.gateway.server",
    "fleet.nodes.proxy.server",
)


def import_shared_modules() -> None:
    """Import the common modules. Call it before the first fork."""
    # As `fleet.nodes` does, before gRPC is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    forks.import_modules(_SHARED_MODULES)


def create_spawner(name: str) -> Spawn:
    """Return a function that starts a node as a fork of this process, or executes it where a fork is not safe."""
    return forks.create_spawner(name, begin=_replace_environment)


def _replace_environment(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
