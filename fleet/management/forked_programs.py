"""The console's programs as copies of the command that starts them: what they have in common is loaded once.

Six processes that load Django, Celery and gRPC by themselves take 140 MB each; a copy takes what it writes to.
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

#: What several programs need. What one of them needs alone, as pages do, it loads by itself.
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
    """Whether a program can be a copy of us."""
    return forks.is_possible(argv)


def import_shared_modules() -> None:
    """Load what the programs have in common. Call it before the first copy is made."""
    for name in _SHARED_MODULES:
        importlib.import_module(name)
    # What nobody needs any more would be copied as well.
    gc.collect()


def spawner(name: str) -> Spawn:
    """Return what starts a program as a copy of us; where that is not safe, by executing it."""

    def spawn(
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        log: IO[bytes],
        on_parent_death: signal.Signals,
    ) -> children.ChildProcess:
        assert env is not None, "a copy has settings of its own"
        if threading.active_count() > 1:
            return children.spawn(argv, env=env, log=log, on_parent_death=on_parent_death)
        # A copy must not talk over a connection of ours.
        connections.close_all()
        return forks.spawn(name, argv, log=log, on_parent_death=on_parent_death, begin=lambda: replace_environment(env))

    return spawn


def replace_environment(env: Mapping[str, str]) -> None:
    """Have another environment, and Django's settings be those that it gives."""
    # Every variable is set anew, also one that stays: `titles.show` writes over where the first ones are.
    os.environ.clear()
    os.environ.update(env)
    module = importlib.reload(importlib.import_module(settings.SETTINGS_MODULE))
    for name in dir(module):
        if name.isupper():
            setattr(settings, name, getattr(module, name))
