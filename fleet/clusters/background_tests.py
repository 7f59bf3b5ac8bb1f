"""Connection tests beside the tasks of a worker process, each in a thread with an event loop of its own.

A test of a cluster that does not respond takes many seconds; changes of other clusters must not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fleet.clusters.connection_test.run import run_connection_test
from fleet.clusters.test_report import ConnectionTestReport
from fleet.clusters.test_store import ConnectionTestStore
from fleet.monitoring.state import StateError
from fleet.source_plugins.registry import DEFAULT_SOURCE, SourceLoadError, SourceNotInstalledError
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.clusters import AddressKind

logger = logging.getLogger(__name__)

#: Tests at the same time in one process; more of them wait, and count as lost when they wait too long.
_CONCURRENCY = 4


class BackgroundTests:
    """The connection tests of one process. Use it only in the process that created it."""

    def __init__(self, store: ConnectionTestStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._slots = threading.BoundedSemaphore(_CONCURRENCY)

    def start(
        self,
        cluster: str,
        test_id: str,
        kind: AddressKind,
        entries: Sequence[str],
        tls: TLSFiles | None,
        source: str = DEFAULT_SOURCE,
        diag_addresses: Mapping[str, str] = MappingProxyType({}),
    ) -> threading.Thread | None:
        """Start a requested test and return its thread; None if it was started before, or its request is gone.

        Raises StateUnavailableError.
        """
        report = self._store.read(cluster, test_id)
        if report is None or report.started_at is not None:
            return None
        report = replace(report, started_at=self._clock())
        if not self._store.write(report):
            return None
        # A daemon: the process may end while a server does not respond. The report then counts as lost.
        thread = threading.Thread(
            target=self._run,
            args=(report, kind, tuple(entries), tls, source, diag_addresses),
            name=f"connection-test-{cluster}",
            daemon=True,
        )
        thread.start()
        return thread

    def _run(
        self,
        report: ConnectionTestReport,
        kind: AddressKind,
        entries: Sequence[str],
        tls: TLSFiles | None,
        source: str,
        diag_addresses: Mapping[str, str],
    ) -> None:
        try:
            with self._slots:
                asyncio.run(self._test(report, kind, entries, tls, source, diag_addresses))
        except (StateError, SourceNotInstalledError, SourceLoadError) as error:
            logger.warning("cluster %s: the connection test ended: %s", report.cluster, error)
        except Exception:
            logger.exception("cluster %s: the connection test ended", report.cluster)

    async def _test(
        self,
        report: ConnectionTestReport,
        kind: AddressKind,
        entries: Sequence[str],
        tls: TLSFiles | None,
        source: str,
        diag_addresses: Mapping[str, str],
    ) -> None:
        """Run the steps and store each. A newer test of the cluster, or its removal, ends this one."""
        async for step in run_connection_test(kind, entries, tls, source, diag_addresses):
            report = replace(report, steps=(*report.steps, step))
            if not self._store.write(report):
                break
        self._store.write(replace(report, ended_at=self._clock()))
