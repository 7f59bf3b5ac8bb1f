"""The console's command lines: what deploy/ runs too."""

from __future__ import annotations

import sys
from pathlib import Path

from fleet.management import programs


def test_console_has_every_program_once() -> None:
    """A web server, a worker for each queue, one beat; each by its own name."""
    names = [program.name for program in programs.console(Path("home"), "127.0.0.1", 8123)]

    assert names == ["web", "worker-polls", "worker-actions", "beat", "alerts"]


def test_programs_run_with_our_python() -> None:
    """No PATH is searched: the environment we run in is the one they run in."""
    assert {program.argv[:2] for program in programs.console(Path("home"), "::1", 1)} == {
        (sys.executable, "-m")
    }


def test_workers_serve_one_queue_each() -> None:
    """Nobody waits behind a round."""
    served = [
        program.argv[program.argv.index("--queues") + 1]
        for program in programs.console(Path("home"), "x", 1)[1:3]
    ]

    assert served == ["polls", "actions"]


def test_web_listens_where_told() -> None:
    """Host and port are uvicorn's."""
    argv = programs.web("0.0.0.0", 8123).argv

    assert argv[argv.index("--host") + 1] == "0.0.0.0"
    assert argv[argv.index("--port") + 1] == "8123"
