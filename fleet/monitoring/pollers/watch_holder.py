"""The thread of a worker that holds a cluster's watch: it renews the lease and hands changes to the rounds."""

from __future__ import annotations

import logging
import threading

from fleet.monitoring.pollers.watch_changes import pack_changes
from fleet.monitoring.pollers.watch_steps import lease_seconds, renewal_seconds, response_seconds
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.presence import ListedAgent
from fleet.monitoring.sources.watch import AgentWatch
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.watch_leases import WatchLeases

logger = logging.getLogger(__name__)

#: Changes that may wait for rounds: without rounds the cluster was paused or removed, and the watch ends.
_MAX_WAITING = 64


class WatchHolder:
    """An open watch whose list was recorded."""

    def __init__(
        self,
        leases: WatchLeases,
        cluster: str,
        token: str,
        watch: AgentWatch,
        address: str,
        round_interval: float,
    ) -> None:
        """`address`: of the watched instance. `round_interval` in seconds."""
        self._leases = leases
        self._cluster = cluster
        self._token = token
        self._watch = watch
        self._address = address
        self._round_interval = round_interval
        self._revision = 0
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{cluster}", daemon=True)

    def start(self) -> None:
        """Mark the lease as ready, and begin. Raises StateUnavailableError."""
        try:
            is_held = self._renew({})
        except BaseException:
            self._watch.close()
            raise
        if is_held:
            self._thread.start()
        else:
            self._watch.close()

    def stop(self) -> None:
        """Close the watch, so that any worker may open the next one."""
        self._stop_event.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop_event.wait(renewal_seconds(self._round_interval)):
                if not self._renew(self._watch.take_changes(response_seconds(self._round_interval))):
                    return
        except SourceError as error:
            logger.info(
                "cluster %s: the watch ended: %s; the next round reads the list", self._cluster, error
            )
        except StateUnavailableError as error:
            logger.warning("cluster %s: the watch ended: %s", self._cluster, error)
        except Exception:  # of a plug-in: without a lease the next round opens another watch
            logger.exception("cluster %s: the watch failed", self._cluster)
        finally:
            self._end()

    def _renew(self, changes: dict[str, ListedAgent | None]) -> bool:
        """Renew the lease with changes; return whether the watch goes on."""
        blob = pack_changes(changes)
        self._revision += bool(blob)
        waiting_count = self._leases.renew(
            self._cluster,
            self._token,
            self._address,
            lease_seconds(self._round_interval),
            self._watch.missing_capabilities,
            self._revision,
            blob,
        )
        return waiting_count is not None and waiting_count <= _MAX_WAITING

    def _end(self) -> None:
        self._watch.close()
        try:
            self._leases.release(self._cluster, self._token)
        except StateUnavailableError:
            logger.debug("cluster %s: the lease of the watch expires", self._cluster, exc_info=True)
