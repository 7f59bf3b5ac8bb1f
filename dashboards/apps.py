"""The Django app of the console."""

from __future__ import annotations

from django.apps import AppConfig
from typing_extensions import override


class DashboardsConfig(AppConfig):
    """Pages, API and sockets of the console."""

    name = "dashboards"

    @override
    def ready(self) -> None:
        """Register the system checks. They import models, which are not loaded before."""
        from dashboards import checks  # noqa: F401 - registers the system checks
