"""The base of Refloat's commands: help shows the options of the command, not those that every Django command has."""

from __future__ import annotations

from django.core.management.base import BaseCommand


class ConsoleCommand(BaseCommand):
    """A command of the console. Django's own options are accepted, but not shown."""

    #: `serve`, `prepare` and `doctor` check the settings and report each problem on one line. The checks of routes are
    #: about the code, and import every page.
    requires_system_checks = ()

    suppressed_base_arguments = {  # noqa: RUF012 - Django declares it of the instance
        *("--version", "--verbosity", "--settings", "--pythonpath", "--traceback"),
        *("--no-color", "--force-color", "--skip-checks"),
    }
