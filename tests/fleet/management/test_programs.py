"""The console's command lines, which deploy/ uses as well."""

from __future__ import annotations

import sys
from pathlib import Path

from fleet.management import programs


def test_console_has_each_program_once() -> None:
    """The programs are a web server, a worker for each queue, beat and alerts."""
    names = [program.name for program in programs.create_console_programs(Path("home"), "127.0.0.1", 8123)]

    assert names == ["web", "worker-polls", "worker-actions", "beat", "alerts"]


def test_programs_run_with_the_same_python() -> None:
    """The interpreter is not searched on PATH."""
    assert {program.argv[:2] for program in programs.create_console_programs(Path("home"), "::1", 1)} == {
        (sys.executable, "-m")
    }


def test_each_worker_serves_one_queue() -> None:
    """Actions do not wait for a round of polls."""
    queues = [
        program.argv[program.argv.index("--queues") + 1]
        for program in programs.create_console_programs(Path("home"), "x", 1)[1:3]
    ]

    assert queues == ["polls", "actions"]


def test_web_listens_on_the_given_address() -> None:
    """Host and port are passed to uvicorn."""
    argv = programs.create_web_program("0.0.0.0", 8123).argv

    assert argv[argv.index("--host") + 1] == "0.0.0.0"
    assert argv[argv.index("--port") + 1] == "8123"
