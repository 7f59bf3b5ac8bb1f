"""The grpc.aio channel to auths through proxies: every connection of the balancer has its own forwarder."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import grpc.aio
from typing_extensions import override

from fleet.protocol.recovery.pick_healthy import DEFAULTS, BalancerSettings
from fleet.transport import channels
from fleet.transport.channels import KeepaliveSettings
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.channel_factory import Addresses
from fleet.transport.pick_healthy.events import OnRetire
from fleet.transport.tls import TLSFiles, channel_credentials
from fleet.transport.tunnel_forwarder import TunnelForwarder

#: Timeout of a handshake through a tunnel, milliseconds; the forwarder itself gives up earlier.
_CONNECT_WITHIN_MS = 10_000


class TunnelledChannel(PickHealthyChannel):
    """Like the direct channel; `addresses` are proxies or their load balancer, and the proxy chooses the auth."""

    def __init__(
        self,
        addresses: Addresses,
        tls: TLSFiles | None = None,
        keepalive: KeepaliveSettings | None = None,
        settings: BalancerSettings = DEFAULTS,
        *,
        name: str = "channel",
        on_change: Callable[[], None] = lambda: None,
        on_retire: OnRetire = lambda reason: None,
        on_unreadable_policy: Callable[[], None] = lambda: None,
        interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
    ) -> None:
        """Create the channel. Raises TLSError, and ValueError without addresses."""
        super().__init__(
            self._open_tunnelled_connection,
            settings,
            name=name,
            on_change=on_change,
            on_retire=on_retire,
            on_unreadable_policy=on_unreadable_policy,
        )
        self._proxy_addresses = list(addresses)
        self._tls = tls
        self._keepalive = keepalive
        self._interceptors = interceptors
        self._forwarders: dict[grpc.aio.Channel, TunnelForwarder] = {}
        for address in self._proxy_addresses:
            channels.target_of([address])
        if tls is not None and tls.enabled:
            channel_credentials(tls)  # report unusable files now, not at a later attempt

    @property
    @override
    def proxy_id(self) -> str:
        """Id of the proxy that new RPCs go through; empty until known."""
        forwarder = None if self.picked_channel is None else self._forwarders.get(self.picked_channel)
        return "" if forwarder is None else forwarder.proxy_id

    @override
    async def close_channel(self, channel: grpc.aio.Channel) -> None:
        await super().close_channel(channel)
        await self._forwarders.pop(channel).close()

    def _open_tunnelled_connection(self, shuffle: bool) -> grpc.aio.Channel:
        del shuffle  # each connection uses a random proxy, and the proxy chooses the auth
        forwarder = TunnelForwarder(self._open_proxy_channel)
        extra_options: list[tuple[str, int | str]] = [("grpc.min_reconnect_backoff_ms", _CONNECT_WITHIN_MS)]
        tls = None if self._tls is None else self._tls.for_role("auth")
        target = channels.target_of([forwarder.address])
        channel = channels.open_channel(
            target, tls, self._keepalive, extra_options=extra_options, interceptors=self._interceptors
        )
        self._forwarders[channel] = forwarder
        return channel

    def _open_proxy_channel(self) -> grpc.aio.Channel:
        shuffled_addresses = random.sample(self._proxy_addresses, len(self._proxy_addresses))
        try:
            target = channels.target_of(shuffled_addresses)  # gRPC skips an address that refuses at once
        except ValueError:
            target = channels.target_of(shuffled_addresses[:1])  # a host name cannot be combined with others
        tls = None if self._tls is None else self._tls.for_role("proxy")
        return channels.open_channel(target, tls, self._keepalive)
