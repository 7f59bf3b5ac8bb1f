"""Celery messages of the queues: which task, and when and by whom it was enqueued. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

#: Seconds after which the scheduler's task `tend` expires.
_TEND_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task that waits in a queue."""

    name: str
    #: Seconds since the epoch.
    enqueued_at: float
    #: The process that enqueued it: `gen4711@host`.
    origin: str
    #: The scheduler enqueued it; otherwise a worker.
    is_of_scheduler: bool


def read_task(message: bytes, round_interval: float) -> QueuedTask | None:
    """Return the task of a message; None if its message does not tell when it was enqueued.

    `round_interval`: seconds after which tasks of rounds expire.
    """
    try:
        headers = json.loads(message)["headers"]
        name, expires_at = str(headers["task"]), datetime.fromisoformat(headers["expires"]).timestamp()
        origin = str(headers.get("origin") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    lifetimes = {
        "fleet.tasks.start_round": round_interval,
        "fleet.tasks.poll_shard": round_interval,
        "fleet.tasks.tend": _TEND_SECONDS,
    }
    if name not in lifetimes:
        return None
    return QueuedTask(name, expires_at - lifetimes[name], origin, name != "fleet.tasks.poll_shard")
