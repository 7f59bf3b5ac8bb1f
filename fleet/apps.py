"""The engine as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class FleetConfig(AppConfig):
    """Models, tasks and commands of the engine."""

    name = "fleet"
    default_auto_field = "django.db.models.BigAutoField"
