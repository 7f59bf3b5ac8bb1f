"""The networking config of one agent: received in responses to heartbeats, checked and applied."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from fleet.nodes.agent.metrics import AgentMetrics
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import NetworkingConfigError
from fleet.protocol.recovery import config_notice, tunnel_settings
from fleet.protocol.recovery.tunnel_settings import Overrides, TunnelSettings
from fleet.transport import networking_config
from fleet.transport.networking_config import Message

log = logging.getLogger(__name__)


class AgentNetworking:
    """The networking config of one agent. The agent refuses a config that it cannot use, and keeps its current one."""

    def __init__(
        self,
        name: str,
        overrides: Overrides,
        metrics: AgentMetrics,
        on_settings_change: Callable[[TunnelSettings], None],
        request_config: Callable[[], None],
    ) -> None:
        """Start with the flags' settings.

        `on_settings_change` receives new ones; `request_config` makes the agent fetch the config soon.
        """
        self._name = name
        self._overrides = overrides
        self._metrics = metrics
        self._on_settings_change = on_settings_change
        self._request_config = request_config
        self._refused_auth_ids: set[str] = set()
        #: Revision of the current config; empty before the first usable one.
        self.revision = ""
        self.settings = tunnel_settings.resolve(overrides, None)

    def apply(self, message: Message, auth_id: str) -> None:
        """Apply a config that this auth sent."""
        try:
            config = rules.with_defaults(networking_config.read(message).config)
            rules.check(config)
        except NetworkingConfigError as error:
            self._metrics.refused_messages.labels("networking-config").inc()
            if auth_id not in self._refused_auth_ids:
                self._refused_auth_ids.add(auth_id)
                log.warning(
                    "networking-config.refused: %s: config of auth %s, revision %s: %s",
                    self._name,
                    auth_id,
                    message.metadata.revision,
                    error,
                )
            return
        self.revision = message.metadata.revision
        settings = tunnel_settings.resolve(self._overrides, config)
        if settings != self.settings:
            self.settings = settings
            log.info("networking-config.changed: %s: revision %s", self._name, self.revision)
            self._on_settings_change(settings)

    def on_config_notice(self, revision: str, spread: float) -> None:
        """Fetch the config within `spread` seconds if a proxy names another revision; the delay is random."""
        if revision and revision != self.revision:
            delay = random.random() * min(spread, config_notice.LONGEST_SPREAD_SECONDS)
            asyncio.get_running_loop().call_later(delay, self._request_config)
