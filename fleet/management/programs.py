"""The programs the console consists of, as command lines; deploy/ runs the same ones as services."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

#: Worker processes by name, and the queues each serves. Actions never wait behind a round.
WORKERS = {"polls": "polls", "actions": "actions"}
#: What a first page with live data needs. Each Celery process costs seconds of a core to start, so others wait.
FIRST_PROGRAMS = {"web", "worker-polls", "beat"}


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the console."""

    name: str
    argv: tuple[str, ...]


def web(host: str, port: int) -> Program:
    """The pages, the API and the sockets."""
    return Program(
        "web",
        (
            *(sys.executable, "-m", "uvicorn", "dashboards.config.asgi:application"),
            *("--host", host, "--port", str(port), "--log-level", "warning", "--no-access-log"),
            # Byte vectors hardly shrink, and compressing them costs more than sending (measured).
            *("--ws-per-message-deflate", "false", "--timeout-graceful-shutdown", "3", "--no-server-header"),
            # What a stranger may cost: the size and time of a request, and the size of a frame.
            *("--http", "fleet.transport.bounded_http:BoundedProtocol", "--ws-max-size", "4096"),
            # Whose word counts is a setting (REFLOAT_TRUSTED_PROXIES), not whoever connects from this machine.
            "--no-proxy-headers",
        ),
    )


def worker(name: str, queues: str) -> Program:
    """A Celery worker: the solo pool, one process with one long-lived loop and its own channels to the nodes."""
    return Program(
        f"worker-{name}",
        (
            *(sys.executable, "-m", "celery", "--quiet", "-A", "dashboards.config.celery", "worker"),
            *("--pool", "solo", "--queues", queues, "--hostname", f"{name}@%h", "--loglevel", "WARNING"),
            # Nobody listens to workers: what they would say of themselves every two seconds costs as much as a task.
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ),
    )


def beat(schedule: Path) -> Program:
    """What asks for rounds; exactly one."""
    return Program(
        "beat",
        (
            *(sys.executable, "-m", "celery", "--quiet", "-A", "dashboards.config.beat", "beat"),
            *("--schedule", str(schedule), "--pidfile", "", "--loglevel", "WARNING"),
        ),
    )


def alerts() -> Program:
    """What looks for incidents and sends messages: no Celery, so that it notices when Celery or Redis is dead."""
    return Program(
        "alerts", (sys.executable, "-m", "django", "alerts", "--settings", "dashboards.config.settings")
    )


def console(home: Path, host: str, port: int) -> tuple[Program, ...]:
    """Every program of a console with its state in `home`."""
    workers = (worker(name, queues) for name, queues in WORKERS.items())
    return (web(host, port), *workers, beat(home / "beat-schedule"), alerts())
