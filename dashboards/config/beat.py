"""The Celery app of the clock alone: `celery -A dashboards.config.beat beat`.

It asks for tasks by their names, so it loads neither them nor Django's apps: two seconds of a core at each start.
"""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")

app = Celery("refloat", fixups=[])
app.config_from_object("django.conf:settings", namespace="CELERY")
