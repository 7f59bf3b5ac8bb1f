"""The command lines of the console's programs; deploy/ runs the same programs as services."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

#: Queues by the name of the worker process that serves them. Actions never wait for a poll of the fleet.
QUEUES_BY_WORKER = {"polls": "polls", "actions": "actions"}
#: Programs that a first page with live data needs. A Celery process takes seconds of CPU to start, so others wait.
FIRST_PROGRAMS = {"web", "worker-polls", "beat"}


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the console."""

    name: str
    argv: tuple[str, ...]


def create_web_program(host: str, port: int) -> Program:
    """Return the web server: pages, API and WebSockets."""
    return Program(
        "web",
        (
            *(sys.executable, "-m", "uvicorn", "dashboards.config.asgi:application"),
            *("--host", host, "--port", str(port), "--log-level", "warning", "--no-access-log"),
            # Measured: compression makes a delta of 85 agents 300 instead of 1,350 bytes, and takes 29 µs per socket;
            # the whole delivery by a bare hub takes 22 µs.
            *("--ws-per-message-deflate", "false", "--timeout-graceful-shutdown", "3", "--no-server-header"),
            # Limits for unauthenticated clients: size and time of a request, size of a frame.
            *("--http", "fleet.transport.bounded_http:BoundedProtocol", "--ws-max-size", "4096"),
            *("--ws", "fleet.transport.bounded_websocket:BoundedWebSocketProtocol"),
            # Trusted proxies are those of REFLOAT_TRUSTED_PROXIES, not every client on this machine.
            "--no-proxy-headers",
        ),
    )


def create_worker_program(name: str, queues: str) -> Program:
    """Return a Celery worker: one process (solo pool) with one event loop and its own gRPC channels to instances."""
    return Program(
        f"worker-{name}",
        (
            *(sys.executable, "-m", "celery", "--quiet", "-A", "dashboards.config.celery", "worker"),
            *("--pool", "solo", "--queues", queues, "--hostname", f"{name}@%h", "--loglevel", "WARNING"),
            # Nothing reads the worker events; sending them every two seconds costs as much as a task.
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ),
    )


def create_beat_program(schedule: Path) -> Program:
    """Return the scheduler, which starts the polls of the fleet. Exactly one runs."""
    return Program(
        "beat",
        (
            *(sys.executable, "-m", "celery", "--quiet", "-A", "dashboards.config.beat", "beat"),
            *("--schedule", str(schedule), "--pidfile", "", "--loglevel", "WARNING"),
        ),
    )


def create_alerts_program() -> Program:
    """Return the alerting process. It runs without Celery, so that it works when Celery or Redis is down."""
    return Program(
        "alerts", (sys.executable, "-m", "django", "alerts", "--settings", "dashboards.config.settings")
    )


def create_console_programs(home: Path, host: str, port: int) -> tuple[Program, ...]:
    """Return all programs of a console whose state is in `home`."""
    workers = (create_worker_program(name, queues) for name, queues in QUEUES_BY_WORKER.items())
    return (
        create_web_program(host, port),
        *workers,
        create_beat_program(home / "beat-schedule"),
        create_alerts_program(),
    )
