"""The networking config as a proxy has it: read from the backend, followed, and hinted at to agents."""

from __future__ import annotations

import logging

from fleet.nodes.proxy_metrics import ProxyMetrics
from fleet.nodes.tunnels import TunnelTable
from fleet.protocol import networking_config as rules
from fleet.protocol import tunnel_settings
from fleet.protocol.networking_config import NetworkingConfigError
from fleet.protocol.tunnel_settings import Overrides
from fleet.transport import networking_config
from fleet.transport.backend import Backend
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)

#: Agents hinted at a new config ask their auths within this, seconds, and so much more for each tunnel here: an auth
#: takes about a thousand heartbeats a second.
_SPREAD = 1.0
_SPREAD_EACH = 0.001


class ProxyNetworking:
    """Looks for another revision now and then. What it cannot use it refuses, and goes on with what it has."""

    def __init__(
        self, backend: Backend, overrides: Overrides, table: TunnelTable, metrics: ProxyMetrics
    ) -> None:
        self._backend = backend
        self._overrides = overrides
        self._table = table
        self._metrics = metrics
        #: The last one seen.
        self.revision = ""

    async def look(self) -> None:
        """Follow what is stored, if it is new. Raises BackendUnavailable."""
        revision = await self._backend.networking_revision()
        if revision == self.revision:
            return
        message = await self._backend.networking_config()
        if message is None:
            return
        self.revision = message.metadata.revision
        try:
            config = rules.with_defaults(networking_config.read(message).config)
            rules.check(config)
        except NetworkingConfigError as error:
            # Once a revision. Agents judge it themselves.
            self._metrics.refused.labels("networking-config").inc()
            log.warning("networking-config.refused: revision %s: %s", self.revision, error)
        else:
            log.info("networking-config.changed: revision %s", self.revision)
            self._table.keep_alive = tunnel_settings.settings(self._overrides, config).keep_alive
        spread = _SPREAD + _SPREAD_EACH * len(self._table)
        news = fleet_pb2.NetworkingNews(revision=self.revision, spread_ms=int(spread * 1000))
        self._table.send_all(lambda _: fleet_pb2.ProxyFrame(networking_news=news))
