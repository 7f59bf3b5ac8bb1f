"""Making the connections of a channel: all alike, each with a TCP connection of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import grpc
import grpc.aio

from fleet.protocol.recovery.address_order import Address, AddressOrder
from fleet.protocol.recovery.pick_healthy import DEFAULTS, Settings
from fleet.transport import channels
from fleet.transport.channels import DeadPeer, Options
from fleet.transport.pick_healthy.blocking import BlockingPickHealthyChannel
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.events import Left
from fleet.transport.tls import TLSFiles, channel_credentials

Addresses = Sequence[Address]

#: One name may stand for several addresses: gRPC itself shuffles those (gRFC A62).
_SHUFFLE = '{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}'


class _Opener:
    """What the connections of one channel have in common. Files are read once, so that a later attempt cannot fail."""

    def __init__(
        self,
        addresses: Addresses,
        tls: TLSFiles | None,
        dead_peer: DeadPeer | None,
        order: AddressOrder | None = None,
    ) -> None:
        channels.target_of(addresses)
        self._order = AddressOrder(addresses) if order is None else order
        self._options = [*channels.channel_options(dead_peer), *channels.still_options()]
        self.credentials: grpc.ChannelCredentials | None = None
        if tls is not None and tls.enabled:
            self.credentials = channel_credentials(tls)
            if tls.server_name:
                self._options.append(("grpc.ssl_target_name_override", tls.server_name))

    def target(self, shuffled: bool) -> tuple[str, Options]:
        """The target and the options of the next connection."""
        if not shuffled and not self._order.is_begun:
            return channels.target_of(self._order.first()), self._options
        target = channels.target_of(addresses := self._order.following(random.shuffle))
        if len(addresses) == 1:
            return target, [*self._options, ("grpc.service_config", _SHUFFLE)]
        return target, self._options


def open_channel(
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
    order: AddressOrder | None = None,
) -> PickHealthyChannel:
    """A channel for grpc.aio to host:port pairs, each connection with the `interceptors`.

    Channels that share an `order` go on where the others are: the first connection of the next one goes elsewhere.

    Raises ValueError for addresses that do not go together, TLSError.
    """
    opener = _Opener(addresses, tls, dead_peer, order)

    def open_connection(shuffled: bool) -> grpc.aio.Channel:
        target, options = opener.target(shuffled)
        if opener.credentials is None:
            return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
        return grpc.aio.secure_channel(target, opener.credentials, options=options, interceptors=interceptors)

    return PickHealthyChannel(
        open_connection, settings, name=name, changed=changed, left=left, refused=refused
    )


def open_blocking_channel(
    addresses: Addresses,
    tls: TLSFiles | None = None,
    dead_peer: DeadPeer | None = None,
    settings: Settings = DEFAULTS,
    *,
    name: str = "channel",
    left: Left = lambda why: None,
    refused: Callable[[], None] = lambda: None,
) -> BlockingPickHealthyChannel:
    """The same for grpc's blocking API."""
    opener = _Opener(addresses, tls, dead_peer)

    def open_connection(shuffled: bool) -> grpc.Channel:
        target, options = opener.target(shuffled)
        if opener.credentials is None:
            return grpc.insecure_channel(target, options=options)
        return grpc.secure_channel(target, opener.credentials, options=options)

    return BlockingPickHealthyChannel(open_connection, settings, name=name, left=left, refused=refused)
