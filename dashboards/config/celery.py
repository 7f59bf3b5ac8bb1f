"""The Celery app: `celery -A dashboards.config.celery worker`. Its settings are the CELERY_ ones of `settings`."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, signals
from django.db import close_old_connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")
# A worker would run Django's checks, which import every page (a second of a core), and drop what they found.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("refloat")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["fleet"])
# Of every thread: views, which enqueue tasks by name, run in others than the one that imported this.
app.set_default()


@signals.setup_logging.connect
def _keep_logging(**_: Any) -> None:
    """Leave logging as the settings have it: Celery would replace the handlers that keep lines whole."""


@signals.task_failure.connect
def _close_broken_connections(**_: Any) -> None:
    """Let go of a connection to the database that is broken; the next query makes another."""
    close_old_connections()
