"""The Celery app of the clock alone: `celery -A dashboards.config.beat beat`.

It asks for tasks by their names, so it loads neither them nor Django's apps: two seconds of a core at each start.
"""

from __future__ import annotations

import os

from celery import Celery
from celery.beat import Scheduler
from typing_extensions import override

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")

app = Celery("refloat", fixups=[])
app.config_from_object("django.conf:settings", namespace="CELERY")


class ExactScheduler(Scheduler):
    """Sleeps until a task is due. Celery's own wakes 10 ms early and asks in a loop until it is: half of its CPU."""

    @override
    def adjust(self, n: float, drift: float = 0.0) -> float:
        """Return the seconds to sleep, as they are."""
        return n
