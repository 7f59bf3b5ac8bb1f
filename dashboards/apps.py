"""The pages as a Django app."""

from __future__ import annotations

from django.apps import AppConfig
from typing_extensions import override


class DashboardsConfig(AppConfig):
    """Pages, API and sockets of the console."""

    name = "dashboards"

    @override
    def ready(self) -> None:
        """Register the checks; they import models, which load only now."""
        from dashboards import checks  # noqa: F401 - registers the system checks
