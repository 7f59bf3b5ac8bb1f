"""The networking config as a proxy has it: read from the backend, followed, and hinted at to agents."""

from __future__ import annotations

import logging

from fleet.nodes.proxy.tunnels import TunnelTable
from fleet.nodes.shared.instance import Instance
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import NetworkingConfigError
from fleet.protocol.recovery import tunnel_settings
from fleet.protocol.recovery.tunnel_settings import Overrides
from fleet.transport import networking_config
from fleet.transport.backend import UnreadableResourceError
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)

#: Agents hinted at a new config ask their auths within this, seconds, and so much more for each tunnel here: an auth
#: takes about a thousand heartbeats a second.
_SPREAD = 1.0
_SPREAD_PER_TUNNEL = 0.001


class ProxyNetworking:
    """Looks for another revision now and then. What it cannot use it refuses, and goes on with what it has."""

    def __init__(self, instance: Instance, overrides: Overrides, table: TunnelTable) -> None:
        self._backend = instance.backend
        self._refusals = instance.refusals
        self._overrides = overrides
        self._table = table
        #: The last one seen.
        self.revision = ""

    async def refresh(self) -> None:
        """Follow what is stored, if it is new. Raises BackendUnavailable."""
        revision = await self._backend.networking_revision()
        if revision == self.revision:
            return
        try:
            message = await self._backend.networking_config()
        except UnreadableResourceError as error:
            # Auths cannot read it either, so there is nothing at which agents could be hinted.
            self.revision = revision
            self._refuse(str(error))
            return
        if message is None:
            return
        self.revision = message.metadata.revision
        try:
            config = rules.with_defaults(networking_config.read(message).config)
            rules.check(config)
        except NetworkingConfigError as error:
            self._refuse(str(error))  # agents judge it themselves
        else:
            log.info("networking-config.changed: revision %s", self.revision)
            self._table.keep_alive = tunnel_settings.settings(self._overrides, config).keep_alive
        spread = _SPREAD + _SPREAD_PER_TUNNEL * len(self._table)
        networking_news = fleet_pb2.NetworkingNews(revision=self.revision, spread_ms=int(spread * 1000))
        self._table.send_all(lambda _: fleet_pb2.ProxyFrame(networking_news=networking_news))

    def _refuse(self, reason: str) -> None:
        self._refusals.refuse("networking-config", self.revision, f"revision {self.revision}", reason)
