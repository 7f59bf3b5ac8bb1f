"""The grpc.aio channel to auths through proxies: every connection of the balancer has a passage of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import grpc.aio
from typing_extensions import override

from fleet.protocol.recovery.pick_healthy import DEFAULTS, Settings
from fleet.transport import channels
from fleet.transport.channels import DeadPeer
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.channel_factory import Addresses
from fleet.transport.pick_healthy.events import Left
from fleet.transport.tls import TLSFiles, channel_credentials
from fleet.transport.tunnel_forwarder import Passage

#: A handshake through a tunnel may take this long, milliseconds: the passage itself gives up before.
_CONNECT_WITHIN_MS = 10_000


class TunnelledChannel(PickHealthyChannel):
    """As the direct one; `addresses` are proxies, or their load balancer, and which auth it is the proxy says."""

    def __init__(
        self,
        addresses: Addresses,
        tls: TLSFiles | None = None,
        dead_peer: DeadPeer | None = None,
        settings: Settings = DEFAULTS,
        *,
        name: str = "channel",
        changed: Callable[[], None] = lambda: None,
        left: Left = lambda why: None,
        refused: Callable[[], None] = lambda: None,
        interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
    ) -> None:
        """Make it. Raises TLSError, ValueError for no addresses."""
        super().__init__(
            self._open_tunnelled, settings, name=name, changed=changed, left=left, refused=refused
        )
        self._proxies = list(addresses)
        self._tls = tls
        self._dead_peer = dead_peer
        self._interceptors = interceptors
        self._passages: dict[grpc.aio.Channel, Passage] = {}
        for address in self._proxies:
            channels.target_of([address])
        if tls is not None and tls.enabled:
            channel_credentials(tls)  # a later attempt cannot fail for what can be seen now

    @property
    @override
    def via(self) -> str:
        """Id of the proxy that new RPCs go through; empty when that is not known yet."""
        passage = None if self.carrier is None else self._passages.get(self.carrier)
        return "" if passage is None else passage.via

    @override
    async def close_connection(self, channel: grpc.aio.Channel) -> None:
        await super().close_connection(channel)
        await self._passages.pop(channel).close()

    def _open_tunnelled(self, shuffled: bool) -> grpc.aio.Channel:
        del shuffled  # each connection goes to a proxy at random, and the proxy chooses the auth
        passage = Passage(self._to_a_proxy)
        more: list[tuple[str, int | str]] = [("grpc.min_reconnect_backoff_ms", _CONNECT_WITHIN_MS)]
        tls = None if self._tls is None else self._tls.towards("auth")
        target = channels.target_of([passage.address])
        channel = channels.open_channel(
            target, tls, self._dead_peer, more=more, interceptors=self._interceptors
        )
        self._passages[channel] = passage
        return channel

    def _to_a_proxy(self) -> grpc.aio.Channel:
        mixed = random.sample(self._proxies, len(self._proxies))
        try:
            target = channels.target_of(mixed)  # one that refuses is passed over at once
        except ValueError:
            target = channels.target_of(mixed[:1])  # names stand alone
        tls = None if self._tls is None else self._tls.towards("proxy")
        return channels.open_channel(target, tls, self._dead_peer)
