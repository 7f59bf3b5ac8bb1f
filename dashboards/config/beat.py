"""The Celery app of the scheduler: `celery -A dashboards.config.beat beat`.

It sends tasks by name and loads neither the tasks nor the apps of Django, which saves 2 s of CPU at each start.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from celery import Celery
from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from celery.schedules import crontab
from django.conf import settings
from kombu.exceptions import OperationalError
from typing_extensions import override

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")

logger = logging.getLogger(__name__)

# Not the current app: tasks of a process that imports this module too keep theirs.
app = Celery("refloat", fixups=[], set_as_current=False)
app.config_from_object("django.conf:settings", namespace="CELERY")
# Not in the settings, which every command reads: importing the schedules of Celery takes a tenth of a second.
app.conf.beat_schedule = {
    "start-round": {
        "task": "fleet.tasks.start_round",
        "schedule": settings.REFLOAT_ROUND_INTERVAL,
        # A round that was not started in time is skipped, so that rounds never pile up.
        "options": {"expires": settings.REFLOAT_ROUND_INTERVAL},
    },
    "tend": {
        # One task for all periodic work besides rounds: most of the cost of a task is overhead.
        "task": "fleet.tasks.tend",
        "schedule": 1.0,
        "options": {"expires": 1.0},
    },
    "prune-history": {
        "task": "fleet.tasks.prune_history",
        "schedule": crontab(minute="17"),
        "options": {"expires": 3000},
    },
}


class ExactScheduler(Scheduler):
    """Sleeps until a task is due. Celery's scheduler wakes 10 ms early and polls, which costs half of its CPU time."""

    @override
    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a due task. A broker that cannot be reached is one line: Celery logs two stacks for each task."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            is_broker_lost = isinstance(error.__context__, OperationalError)
            logger.error("%s", error, exc_info=None if is_broker_lost else error)

    @override
    def adjust(self, n: float, drift: float = 0.0) -> float:
        """Return the seconds to sleep, unchanged."""
        return n
