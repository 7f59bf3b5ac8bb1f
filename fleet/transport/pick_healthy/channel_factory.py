"""Creates the connections of a channel: all alike, each with its own TCP connection."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import grpc
import grpc.aio

from fleet.protocol.recovery.address_order import Address, AddressOrder
from fleet.protocol.recovery.pick_healthy import DEFAULTS, BalancerSettings
from fleet.transport import channels
from fleet.transport.channels import GrpcOptions, KeepaliveSettings
from fleet.transport.pick_healthy.blocking import BlockingPickHealthyChannel
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.events import OnRetire
from fleet.transport.tls import TLSFiles, channel_credentials

Addresses = Sequence[Address]

#: One name may have several addresses: gRPC itself shuffles those (gRFC A62).
_SHUFFLE_CONFIG = '{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}'


class _ConnectionFactory:
    """Common settings of the connections of one channel. Files are read once, so that later attempts cannot fail."""

    def __init__(
        self,
        addresses: Addresses,
        tls: TLSFiles | None,
        keepalive: KeepaliveSettings | None,
        order: AddressOrder | None = None,
    ) -> None:
        channels.target_of(addresses)
        self._order = AddressOrder(addresses) if order is None else order
        self._options = [*channels.channel_options(keepalive), *channels.fixed_window_options()]
        self.credentials: grpc.ChannelCredentials | None = None
        if tls is not None and tls.enabled:
            self.credentials = channel_credentials(tls)
            if tls.server_name:
                self._options.append(("grpc.ssl_target_name_override", tls.server_name))

    def next_target(self, shuffle: bool) -> tuple[str, GrpcOptions]:
        """Return the target and the options of the next connection."""
        if not shuffle and not self._order.has_started:
            return channels.target_of(self._order.first_order()), self._options
        target = channels.target_of(addresses := self._order.next_order(random.shuffle))
        if len(addresses) == 1:
            return target, [*self._options, ("grpc.service_config", _SHUFFLE_CONFIG)]
        return target, self._options


def open_channel(
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
    order: AddressOrder | None = None,
) -> PickHealthyChannel:
    """Return a channel for grpc.aio to host:port pairs; each connection has the `interceptors`.

    Channels that share an `order` continue it: the first connection of the next channel goes to another address.

    Raises ValueError for addresses that cannot be combined, and TLSError.
    """
    factory = _ConnectionFactory(addresses, tls, keepalive, order)

    def open_connection(shuffle: bool) -> grpc.aio.Channel:
        target, options = factory.next_target(shuffle)
        if factory.credentials is None:
            return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
        return grpc.aio.secure_channel(
            target, factory.credentials, options=options, interceptors=interceptors
        )

    return PickHealthyChannel(
        open_connection,
        settings,
        name=name,
        on_change=on_change,
        on_retire=on_retire,
        on_unreadable_policy=on_unreadable_policy,
    )


def open_blocking_channel(
    addresses: Addresses,
    tls: TLSFiles | None = None,
    keepalive: KeepaliveSettings | None = None,
    settings: BalancerSettings = DEFAULTS,
    *,
    name: str = "channel",
    on_retire: OnRetire = lambda reason: None,
    on_unreadable_policy: Callable[[], None] = lambda: None,
) -> BlockingPickHealthyChannel:
    """Return the same channel for grpc's blocking API."""
    factory = _ConnectionFactory(addresses, tls, keepalive)

    def open_connection(shuffle: bool) -> grpc.Channel:
        target, options = factory.next_target(shuffle)
        if factory.credentials is None:
            return grpc.insecure_channel(target, options=options)
        return grpc.secure_channel(target, factory.credentials, options=options)

    return BlockingPickHealthyChannel(
        open_connection, settings, name=name, on_retire=on_retire, on_unreadable_policy=on_unreadable_policy
    )
