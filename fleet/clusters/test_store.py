"""Connection tests in Redis: the newest one of each cluster, for an hour. Pages request and read, a worker writes."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from typing import cast

from celery import current_app
from kombu.exceptions import OperationalError
from redis import Redis

from fleet.clusters.test_report import ConnectionTestReport, StepName, pack_report, unpack_report
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.connect import connect, map_redis_errors
from fleet.monitoring.state.keys import Keys
from fleet.source_plugins.registry import require_source

TASK = "fleet.tasks.test_connection"
_TTL_SECONDS = 3600
#: Seconds until a task that no worker has taken is dropped.
_TASK_EXPIRES_SECONDS = 30.0


class ConnectionTestStore:
    """Connection tests of every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def create(
        self, cluster: str, now: float, step_names: Sequence[StepName] = tuple(StepName)
    ) -> ConnectionTestReport:
        """Store a new test as the newest of a cluster and return it. Raises StateUnavailableError."""
        report = ConnectionTestReport(secrets.token_hex(8), cluster, now, step_names=tuple(step_names))
        keys = Keys(self._prefix, cluster)
        with map_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.set(keys.connection_test(report.test_id), json.dumps(pack_report(report)), ex=_TTL_SECONDS)
            pipe.set(keys.newest_connection_test, report.test_id, ex=_TTL_SECONDS)
            pipe.execute()
        return report

    def write(self, report: ConnectionTestReport) -> bool:
        """Store the progress of a test; return whether it is still the newest. Raises StateUnavailableError."""
        keys = Keys(self._prefix, report.cluster)
        with map_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            # Only if it is there: the keys of a removed cluster must not come back.
            pipe.set(
                keys.connection_test(report.test_id),
                json.dumps(pack_report(report)),
                ex=_TTL_SECONDS,
                xx=True,
            )
            pipe.get(keys.newest_connection_test)
            _, newest_id = pipe.execute()
        return bool(newest_id == report.test_id.encode())

    def read(self, cluster: str, test_id: str = "") -> ConnectionTestReport | None:
        """Return a test, by default the newest of a cluster; None without one. Raises StateUnavailableError."""
        keys = Keys(self._prefix, cluster)
        with map_redis_errors():
            newest_id = test_id or cast("bytes", self._redis.get(keys.newest_connection_test) or b"").decode()
            blob = cast("bytes | None", self._redis.get(keys.connection_test(newest_id)))
        return None if blob is None else unpack_report(json.loads(blob))

    def delete(self, cluster: str) -> None:
        """Delete the newest test of a removed cluster. Raises StateUnavailableError."""
        keys = Keys(self._prefix, cluster)
        with map_redis_errors():
            newest_id = cast("bytes", self._redis.get(keys.newest_connection_test) or b"").decode()
            self._redis.delete(keys.newest_connection_test, keys.connection_test(newest_id))


def open_test_store(url: str, prefix: str) -> ConnectionTestStore:
    """Return a store with its own connections."""
    return ConnectionTestStore(connect(url), prefix)


def request_test(store: ConnectionTestStore, cluster_id: str, source: str) -> str:
    """Have a worker test the connection to a cluster of a source; return the test's id.

    Raises StateUnavailableError, SourceNotInstalledError.
    """
    report = store.create(cluster_id, time.time(), tuple(require_source(source).test_steps))
    try:
        current_app.send_task(TASK, args=(cluster_id, report.test_id), expires=_TASK_EXPIRES_SECONDS)
    except OperationalError as error:
        raise StateUnavailableError(f"the broker is unavailable: {error}") from error
    return report.test_id
