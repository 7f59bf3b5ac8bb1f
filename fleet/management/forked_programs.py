"""Start the programs of the console as forks of one process, which has loaded their common modules.

Six processes that each load Django, Celery and gRPC take 140 MB each; a fork takes only the memory that it writes to.
docs/decisions/0008-copies-of-one-process.md
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from django.conf import settings
from django.db import connections

from fleet.processes import children, forks
from fleet.processes.supervisor import Spawn

#: Modules that several programs use. A module that only one program uses is loaded by that program.
_SHARED_MODULES = (
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.beat",
    "celery.bin.celery",
    "celery.bin.worker",
    "celery.concurrency.solo",
    "celery.worker.strategy",
    "channels_redis.pubsub",
    "fleet.management.commands.alerts",
    "fleet.tasks",
    "kombu.transport.redis",
)


def can_fork(argv: Sequence[str]) -> bool:
    """Return whether a program can run as a fork of this process."""
    return forks.is_possible(argv)


def import_shared_modules() -> None:
    """Import the common modules. Call it before the first fork."""
    for name in _SHARED_MODULES:
        importlib.import_module(name)
    # Garbage would be copied into every fork.
    gc.collect()


def create_spawner(name: str) -> Spawn:
    """Return a function that starts a program as a fork of this process, or executes it where a fork is not safe."""

    def spawn(
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        log: IO[bytes],
        on_parent_death: signal.Signals,
    ) -> children.ChildProcess:
        assert env is not None, "a fork needs its own environment"
        if threading.active_count() > 1:
            return children.spawn(argv, env=env, log=log, on_parent_death=on_parent_death)
        # A fork must not use a database connection of this process.
        connections.close_all()
        return forks.spawn(
            name, argv, log=log, on_parent_death=on_parent_death, begin=lambda: replace_environment(env)
        )

    return spawn


def replace_environment(env: Mapping[str, str]) -> None:
    """Replace the environment of this process, and load Django's settings again from it."""
    # Set every variable again, even unchanged ones: `titles.show_command_line` overwrites the memory of the original
    # environment.
    os.environ.clear()
    os.environ.update(env)
    module = importlib.reload(importlib.import_module(settings.SETTINGS_MODULE))
    for name in dir(module):
        if name.isupper():
            setattr(settings, name, getattr(module, name))
