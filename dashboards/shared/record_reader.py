"""Access of the console to the record (the current state of the fleet in Redis): one Reader per process."""

from __future__ import annotations

import functools
import time

from django.conf import settings

from fleet.changes.base_kind import RecordSnapshot
from fleet.clusters.record_removal import delete_keys_at
from fleet.clusters.test_store import ConnectionTestStore, open_test_store
from fleet.monitoring.state.edge_store import EdgeStore, open_edge_store
from fleet.monitoring.state.policy_report_store import PolicyReportStore, open_policy_report_store
from fleet.monitoring.state.reader import Reader, open_reader


@functools.cache
def reader() -> Reader:
    """Return the reader of this process; thread-safe."""
    return open_reader(settings.REDIS_URL, settings.REFLOAT_PREFIX)


@functools.cache
def policy_report_store() -> PolicyReportStore:
    """Return the policies that instances reported; thread-safe."""
    return open_policy_report_store(settings.REDIS_URL, settings.REFLOAT_PREFIX)


@functools.cache
def connection_test_store() -> ConnectionTestStore:
    """Return the connection tests of clusters; thread-safe."""
    return open_test_store(settings.REDIS_URL, settings.REFLOAT_PREFIX)


@functools.cache
def edge_store() -> EdgeStore:
    """Return the polls of gateways and tunnel servers; thread-safe."""
    return open_edge_store(settings.REDIS_URL, settings.REFLOAT_PREFIX)


def delete_cluster_keys(cluster: str) -> None:
    """Delete everything that Redis has of a removed cluster. Raises StateUnavailableError."""
    delete_keys_at(settings.REDIS_URL, settings.REFLOAT_PREFIX, cluster)


def take_record_snapshot() -> RecordSnapshot:
    """Return the record as of now, for plans."""
    return RecordSnapshot(reader(), policy_report_store(), current_time())


def current_time() -> float:
    """Return seconds since the epoch. Each request or tick calls this once, and uses the result as `now`."""
    return time.time()
