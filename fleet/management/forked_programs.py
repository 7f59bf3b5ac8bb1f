"""Start the programs of the console as forks of one process, which has loaded their common modules.

Six processes that each load Django, Celery and gRPC take 140 MB each; a fork takes only the memory that it writes to.
docs/decisions/0008-copies-of-one-process.md
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence

from django.conf import settings
from django.db import connections

from fleet.processes import forks
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
    forks.import_modules(_SHARED_MODULES)


def create_spawner(name: str) -> Spawn:
    """Return a function that starts a program as a fork of this process, or executes it where a fork is not safe."""
    # A fork must not use a database connection of this process.
    return forks.create_spawner(name, prepare=connections.close_all, begin=replace_environment)


def replace_environment(env: Mapping[str, str]) -> None:
    """Replace the environment of this process, and load Django's settings again from it."""
    os.environ.clear()
    os.environ.update(env)
    module = importlib.reload(importlib.import_module(settings.SETTINGS_MODULE))
    for name in dir(module):
        if name.isupper():
            setattr(settings, name, getattr(module, name))
