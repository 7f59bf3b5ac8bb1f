"""The networking config of a proxy: read from the backend, applied, and announced to agents."""

from __future__ import annotations

import logging

from fleet.nodes.proxy.tunnels import TunnelTable
from fleet.nodes.shared.instance import Instance
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import NetworkingConfigError
from fleet.protocol.recovery import config_notice, tunnel_settings
from fleet.protocol.recovery.tunnel_settings import Overrides
from fleet.transport import networking_config
from fleet.transport.backend import UnreadableResourceError
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)


class ProxyNetworking:
    """Applies new revisions of the networking config. An unusable one is refused; the current settings stay."""

    def __init__(self, instance: Instance, overrides: Overrides, table: TunnelTable) -> None:
        self._backend = instance.backend
        self._refusals = instance.refusals
        self._overrides = overrides
        self._table = table
        #: Last revision seen.
        self.revision = ""

    async def apply_stored_config(self) -> None:
        """Apply the stored config if its revision is new. Raises BackendUnavailableError."""
        revision = await self._backend.get_networking_revision()
        if revision == self.revision:
            return
        try:
            message = await self._backend.get_networking_config()
        except UnreadableResourceError as error:
            if await self._backend.get_networking_revision() != revision:
                # The config was written after the revision was read. It would be refused under both revisions.
                await self.apply_stored_config()
                return
            # Auths cannot read it either, so announcing it to agents is pointless.
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
            self._refuse(str(error))  # agents check the config themselves
        else:
            log.info("networking-config.changed: revision %s", self.revision)
            self._table.keep_alive = tunnel_settings.resolve(self._overrides, config).keep_alive
        spread_seconds = config_notice.spread_seconds_of(len(self._table))
        networking_config_notice = fleet_pb2.NetworkingConfigNotice(
            revision=self.revision, spread_ms=int(spread_seconds * 1000)
        )
        self._table.send_all(
            lambda _: fleet_pb2.ProxyFrame(networking_config_notice=networking_config_notice)
        )

    def _refuse(self, reason: str) -> None:
        self._refusals.record("networking-config", self.revision, f"revision {self.revision}", reason)
