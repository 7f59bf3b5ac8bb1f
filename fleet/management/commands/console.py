"""`manage.py console`: all programs of the console under one command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import connection
from typing_extensions import override

from fleet.management import startup_checks
from fleet.management.base_command import ConsoleCommand
from fleet.management.console_processes import ConsoleRun, exit_on_error, make_timestamped_writer


class Command(ConsoleCommand):
    """Run the console: migrations, web server, workers, scheduler, alerting, and Valkey unless REDIS_URL is set."""

    help = "Run the console: migrations, web server, workers, scheduler, alerting, and Valkey unless REDIS_URL is set."
    requires_system_checks = ()  # ConsoleRun runs the checks, and reports problems on one line
    requires_migrations_checks = False

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        add_console_arguments(parser)

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        write_line = make_timestamped_writer(sys.stdout)
        with exit_on_error(), console_run_of(options, write_line) as run:
            startup_checks.prepare_database()
            connection.close()  # this process runs long and does not use the database again
            run.start({})
            run.await_web()
            write_line(f"serving {run.url} (Ctrl-C stops everything; logs: {run.supervisor.logs})")
            run.watch()
            write_line("stopping")


def console_run_of(options: dict[str, Any], write_line: Callable[[str], None]) -> ConsoleRun:
    """Return the console that the settings and these options describe."""
    return ConsoleRun(
        settings.REFLOAT_HOME,
        options["host"],
        options["port"],
        redis_url=settings.CONFIGURED_REDIS_URL,
        write_line=write_line,
    )


def add_console_arguments(parser: CommandParser) -> None:
    """Add the arguments that console and demo share."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")
