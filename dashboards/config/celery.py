"""The Celery app: `celery -A dashboards.config.celery worker`. Its settings are the CELERY_ ones in `settings`."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, signals
from django.db import close_old_connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")
# A worker would run Django's checks, which import every page (1 s of CPU), and ignore their results.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("refloat")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["fleet"])
# For all threads: views, which enqueue tasks by name, do not run in the thread that imported this.
app.set_default()


@signals.setup_logging.connect
def _keep_logging(**_: Any) -> None:
    """Keep the logging settings: Celery would replace the handlers that write one line per message."""


@signals.task_failure.connect
def _close_broken_connections(**_: Any) -> None:
    """Close a broken database connection; the next query opens another."""
    close_old_connections()
