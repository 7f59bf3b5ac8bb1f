"""Django app of the engine."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from typing_extensions import override


class FleetConfig(AppConfig):
    """App config of models, tasks and commands."""

    name = "fleet"
    default_auto_field = "django.db.models.BigAutoField"

    @override
    def ready(self) -> None:
        """Register the system checks; complete roles and alert rules after every migration."""
        from fleet import checks  # noqa: F401 - registers them
        from fleet.alerts.defaults import (
            ensure_alert_defaults,
        )  # models load only when the app registry is ready
        from fleet.models.access import create_roles  # models load only when the app registry is ready

        # django.contrib.auth is earlier in INSTALLED_APPS, so its handler has created the permissions by then.
        post_migrate.connect(create_roles, sender=self, dispatch_uid="fleet.create_roles")
        post_migrate.connect(ensure_alert_defaults, sender=self, dispatch_uid="fleet.ensure_alert_defaults")
