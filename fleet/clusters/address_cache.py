"""Addresses of clusters' first auths for the rounds of one process: resolved beside the rounds, which hardly wait."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from fleet.clusters.addresses import AddressMemory, ResolvedAddresses, resolve
from fleet.vocabulary.clusters import AddressKind

logger = logging.getLogger(__name__)

#: Seconds until the entries are resolved again. Prometheus asks DNS every 30 s too; a file that has not changed costs
#: one `fstat`.
_REFRESH_SECONDS = {AddressKind.DNS: 30.0, AddressKind.SRV: 30.0, AddressKind.FILE_SD: 3.0}
#: The same while there are problems.
_RETRY_SECONDS = 5.0


@dataclass(slots=True)
class _CachedCluster:
    kind: AddressKind
    entries: tuple[str, ...]
    memory: AddressMemory = field(default_factory=AddressMemory)
    last_result: ResolvedAddresses = field(default_factory=ResolvedAddresses)
    #: Monotonic seconds; None before the first result.
    resolved_at: float | None = None
    #: Set unless a thread is resolving the entries.
    is_idle: threading.Event = field(default_factory=threading.Event)

    def is_due(self, now: float) -> bool:
        """Return whether to resolve the entries again."""
        if self.resolved_at is None:
            return True
        refresh_seconds = _RETRY_SECONDS if self.last_result.problem_details else _REFRESH_SECONDS[self.kind]
        return now - self.resolved_at >= refresh_seconds


class AddressCache:
    """The last resolved addresses by cluster. Use it from one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._clusters: dict[str, _CachedCluster] = {}

    def addresses_of(
        self, cluster: str, kind: AddressKind, entries: Sequence[str], *, wait_seconds: float
    ) -> ResolvedAddresses:
        """Return the last result, and resolve again when it is old; wait at most `wait_seconds` for the first result.

        DNS servers and file systems that hang delay nothing else: each cluster has its own thread.
        """
        if kind is AddressKind.STATIC:
            self._clusters.pop(cluster, None)
            return ResolvedAddresses(tuple(dict.fromkeys(entries)))
        cached = self._clusters.get(cluster)
        if cached is None or (cached.kind, cached.entries) != (kind, tuple(entries)):
            cached = self._clusters[cluster] = _CachedCluster(kind, tuple(entries))
            cached.is_idle.set()
        if cached.is_idle.is_set() and cached.is_due(self._clock()):
            cached.is_idle.clear()
            # A daemon: the process may end while a DNS server does not respond.
            threading.Thread(
                target=self._refresh, args=(cluster, cached), name=f"addresses-{cluster}", daemon=True
            ).start()
            if cached.resolved_at is None:
                # Once: where the first result takes long, later calls return at once until it is there.
                cached.is_idle.wait(wait_seconds)
        return cached.last_result

    def keep_only(self, clusters: Collection[str]) -> None:
        """Drop all other clusters: they were removed or paused."""
        for cluster in self._clusters.keys() - set(clusters):
            del self._clusters[cluster]

    def _refresh(self, cluster: str, cached: _CachedCluster) -> None:
        try:
            resolved_addresses = asyncio.run(resolve(cached.kind, cached.entries, cached.memory))
        except Exception:
            logger.exception("cluster %s: the addresses were not resolved", cluster)
        else:
            # Said once, not at each attempt.
            for problem in set(resolved_addresses.problems) - set(cached.last_result.problems):
                logger.warning("cluster %s: %s", cluster, problem)
            cached.last_result = resolved_addresses
        finally:
            cached.resolved_at = self._clock()
            cached.is_idle.set()
