"""`manage.py console`: everything of the console under one command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import connection
from typing_extensions import override

from fleet.management import startup_checks
from fleet.management.console_processes import ConsoleRun, one_line, stamped


class Command(BaseCommand):
    """Run the console: Redis unless REDIS_URL is set, migrations, web server, workers and beat."""

    help = (
        "Run the console: embedded Valkey unless REDIS_URL is set, migrations, web server, workers and beat."
    )
    requires_system_checks = ()  # run by ConsoleRun, so that what is wrong fits one line
    requires_migrations_checks = False

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        add_console_arguments(parser)

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        say = stamped(sys.stdout)
        with one_line(), console_of(options, say) as run:
            startup_checks.database()
            connection.close()  # we live long and do not ask again
            run.start({})
            run.await_web()
            say(f"serving {run.url} (Ctrl-C ends everything; logs: {run.supervisor.logs})")
            run.watch()
            say("ending")


def console_of(options: dict[str, Any], say: Callable[[str], None]) -> ConsoleRun:
    """Return the console that the settings and these options describe."""
    return ConsoleRun(
        settings.REFLOAT_HOME,
        options["host"],
        options["port"],
        redis_url=settings.REDIS_URL_GIVEN,
        say=say,
    )


def add_console_arguments(parser: CommandParser) -> None:
    """What console and demo have in common."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")
