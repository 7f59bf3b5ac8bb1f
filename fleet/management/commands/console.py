"""`manage.py console`: all programs of the console under one command."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import connection
from django.utils import timezone
from typing_extensions import override

from fleet import first_run
from fleet.management import demo_account, startup_checks, teleport_start
from fleet.management.base_command import ConsoleCommand
from fleet.management.console_processes import ConsoleRun, exit_on_error, make_timestamped_writer
from fleet.management.doctor.installation import read_tls_files
from fleet.protocol.durations import format_readable


class Command(ConsoleCommand):
    """Run the console: migrations, web server, workers, scheduler, alerting, and Valkey unless REDIS_URL is set."""

    help = "Run the console: migrations, web server, workers, scheduler, alerting, and Valkey unless REDIS_URL is set."
    requires_migrations_checks = False

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        add_console_arguments(parser)
        parser.add_argument(
            "--teleport",
            metavar="HOST:PORT",
            help="watch the Teleport cluster of this auth (default port: 3025) as the cluster teleport",
        )
        parser.add_argument(
            "--identity",
            metavar="FILE",
            help="identity file for --teleport: the output of tctl auth sign --format=file, or of tbot",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        write_line = make_timestamped_writer(sys.stdout)
        with contextlib.ExitStack() as exit_stack:
            exit_stack.enter_context(exit_on_error())
            teleport = teleport_start.read_teleport_options(options, timezone.now())
            run = exit_stack.enter_context(console_run_of(options, write_line))
            for finding in startup_checks.find_start_warnings(run.redis_url, read_tls_files(), time.time):
                write_line(f"warning: {finding.sentence}")
            write_line("starting: database, web server, workers, scheduler, alerting")
            startup_checks.prepare_database()
            cluster = None if teleport is None else teleport_start.store_cluster(teleport)
            if teleport is not None:
                teleport_start.report_connection(teleport, write_line)
            needs_administrator = first_run.needs_administrator()
            has_demo_user = demo_account.is_active(run.home)
            connection.close()  # this process runs long and does not use the database again
            run.start({})
            run.await_web()
            write_line(f"serving {run.url} (Ctrl-C stops everything; logs: {run.supervisor.logs})")
            if cluster is not None:
                write_line(f"the cluster {cluster.name} is at {run.url}c/{cluster.pk}/")
            if needs_administrator:
                write_line(_describe_setup_link(settings.REFLOAT_PUBLIC_URL or run.url))
            if has_demo_user:
                write_line(_describe_demo_user(run.home))
            run.watch()
            write_line("stopping")


def _describe_setup_link(url: str) -> str:
    link = f"{url.rstrip('/')}/setup/{first_run.create_setup_token()}/"
    lifetime = format_readable(first_run.LINK_LIFETIME.total_seconds())
    return f"there are no users yet: create the first administrator within {lifetime} at {link}"


def _describe_demo_user(home: Path) -> str:
    return (
        f"`refloat demo` ran with REFLOAT_HOME={home}: the administrator is {demo_account.USERNAME}, with the password "
        f"in {demo_account.account_path(home)}. For real use, stop and set REFLOAT_HOME to a new folder; or "
        f"`refloat user create NAME --role admin`, then `refloat user disable {demo_account.USERNAME}`"
    )


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
