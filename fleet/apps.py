"""The engine as a Django app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from typing_extensions import override


class FleetConfig(AppConfig):
    """Models, tasks and commands of the engine."""

    name = "fleet"
    default_auto_field = "django.db.models.BigAutoField"

    @override
    def ready(self) -> None:
        """Register the checks, and keep the roles and the alert rules complete after every migration."""
        from fleet import checks  # noqa: F401 - registers them
        from fleet.alerts.store import ensure_defaults  # models load only when the app registry is ready
        from fleet.models.access import create_roles  # models load only when the app registry is ready

        # django.contrib.auth stands earlier in INSTALLED_APPS: its handler has made the permissions by then.
        post_migrate.connect(create_roles, sender=self, dispatch_uid="fleet.create_roles")
        post_migrate.connect(ensure_defaults, sender=self, dispatch_uid="fleet.ensure_alert_defaults")
