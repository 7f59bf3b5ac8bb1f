"""The console's one door to the record: a Reader per process. Everything shown comes through it, age applied."""

from __future__ import annotations

import functools
import time

from django.conf import settings

from fleet.changes.base_kind import RecordSnapshot
from fleet.monitoring.state.policy_book import PolicyReportStore, open_policy_report_store
from fleet.monitoring.state.reader import Reader, open_reader


@functools.cache
def reader() -> Reader:
    """The process's reader; safe in threads."""
    return open_reader(settings.REDIS_URL, settings.REFLOAT_PREFIX)


@functools.cache
def policy_book() -> PolicyReportStore:
    """What instances said of their policies; safe in threads."""
    return open_policy_report_store(settings.REDIS_URL, settings.REFLOAT_PREFIX)


def record() -> RecordSnapshot:
    """The record as it is now, for plans."""
    return RecordSnapshot(reader(), policy_book(), current_time())


def current_time() -> float:
    """Seconds since the epoch: the `now` of one request or one tick, taken once."""
    return time.time()
