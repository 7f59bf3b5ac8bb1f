"""`manage.py prepare`: the steps before the services of a new release start. `manage.py console` runs them itself."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from fleet.management import startup_checks
from fleet.management.base_command import ConsoleCommand
from fleet.management.console_processes import exit_on_error


class Command(ConsoleCommand):
    """Check the settings, migrate the database, and create the default cluster."""

    help = "Check the settings, migrate the database, and create the default cluster."
    requires_migrations_checks = False

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        with exit_on_error():
            startup_checks.check_settings()
            startup_checks.prepare_database()
        self.stdout.write("ready to start")
