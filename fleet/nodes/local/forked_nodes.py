"""Start nodes of a local fleet as forks of `refloat fleet up`, which has loaded their common modules.

Each program that is executed loads gRPC, aiohttp and redis first: 0.6 s of CPU, which a fleet of eight pays eight
times. docs/decisions/0008-copies-of-one-process.md
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from fleet.processes import children, forks
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
    for name in _SHARED_MODULES:
        importlib.import_module(name)
    # Garbage would be copied into every fork.
    gc.collect()


def create_spawner(name: str) -> Spawn:
    """Return a function that starts a node as a fork of this process, or executes it where a fork is not safe."""

    def spawn(
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        log: IO[bytes],
        on_parent_death: signal.Signals,
    ) -> children.ChildProcess:
        assert env is not None, "a fork needs its own environment"
        if threading.active_count() > 1 or not forks.is_possible(argv):
            return children.spawn(argv, env=env, log=log, on_parent_death=on_parent_death)
        return forks.spawn(
            name, argv, log=log, on_parent_death=on_parent_death, begin=lambda: _replace_environment(env)
        )

    return spawn


def _replace_environment(env: Mapping[str, str]) -> None:
    """Set every variable again: `titles.show_command_line` overwrites the memory of the original environment."""
    os.environ.clear()
    os.environ.update(env)
