"""The pages as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardsConfig(AppConfig):
    """Pages, API and sockets of the console."""

    name = "dashboards"
