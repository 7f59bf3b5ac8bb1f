"""The scheduler: what it logs when a task cannot be sent."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from typing_extensions import override

from dashboards.config.beat import ExactScheduler
from fleet.processes import valkey


class _FaultyScheduler(ExactScheduler):
    @override
    def send_task(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a fault of the program")


def _apply_entry(scheduler_class: type[ExactScheduler]) -> None:
    app = Celery(
        "test", broker=f"redis://127.0.0.1:{valkey.find_free_port()}/0", fixups=[], set_as_current=False
    )
    app.conf.task_publish_retry = False
    app.conf.broker_transport_options = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1}
    scheduler = scheduler_class(app=app, lazy=True)
    scheduler.apply_entry(ScheduleEntry(name="tend", task="a task that no module has", schedule=1.0, app=app))


def test_lost_broker_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds are due every few seconds: with stacks, an hour without Redis would fill the log."""
    with caplog.at_level(logging.ERROR):
        _apply_entry(ExactScheduler)
    (record,) = caplog.records
    assert record.getMessage().startswith("Couldn't apply scheduled task tend")
    assert record.exc_info is None


def test_other_errors_have_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of the program is not hidden, and does not end the scheduler."""
    with caplog.at_level(logging.ERROR):
        _apply_entry(_FaultyScheduler)
    (record,) = caplog.records
    assert record.exc_info is not None
