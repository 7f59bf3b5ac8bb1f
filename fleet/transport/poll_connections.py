"""Connections to instances, kept between polls: one gRPC channel per address, one HTTP session for all.

Only ever made in the process and the event loop that use them (docs/flow.md, "Connections").
"""

from __future__ import annotations

import aiohttp
import grpc.aio

from fleet.protocol.retry.policy import RetryPolicy
from fleet.transport.channels import open_channel, fixed_window_options, target_of
from fleet.transport.retry.aio import RetryInterceptor
from fleet.transport.retry.read_retries import DEFAULT, policy_by_method
from fleet.transport.retry.retried_call import SharedBudget
from fleet.transport.tls import TLSFiles

#: A list of agents in a mesh names every tunnel of each: 4 MB, gRPC's default, is 500 agents with 200 proxies.
LARGEST_RESPONSE = 64 * 1024 * 1024

#: gRPC need not keep what was sent to send it again by itself: a probe is made once, and `Retrying` sees to the reads.
_NO_GRPC_RETRIES = ("grpc.enable_retries", 0)


class Connections:
    """Channels by address and role, and the HTTP session."""

    def __init__(self, tls: TLSFiles | None = None, retries: RetryPolicy = DEFAULT) -> None:
        """Know none yet; reads over a `reader` are retried by `retries`."""
        self._tls = tls
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        #: Of their own: an interceptor costs every call, and a probe must be made once.
        self._readers: dict[tuple[str, str], grpc.aio.Channel] = {}
        self._retry_interceptor = RetryInterceptor(policy_by_method(retries), budget=SharedBudget())
        self._session: aiohttp.ClientSession | None = None

    def channel(self, address: str, role: str) -> grpc.aio.Channel:
        """Return the channel to a server of a role at host:port. Raises ValueError for no address, TLSError."""
        key = (address, role)
        if key not in self._channels:
            self._channels[key] = self._open(address, role)
        return self._channels[key]

    def reader(self, address: str, role: str) -> grpc.aio.Channel:
        """Return the channel over which lists are read, again if need be. Raises ValueError, TLSError."""
        key = (address, role)
        if key not in self._readers:
            self._readers[key] = self._open(address, role, self._retry_interceptor)
        return self._readers[key]

    def _open(self, address: str, role: str, *interceptors: RetryInterceptor) -> grpc.aio.Channel:
        options = [*fixed_window_options(), _NO_GRPC_RETRIES, ("grpc.max_receive_message_length", LARGEST_RESPONSE)]
        tls = None if self._tls is None else self._tls.for_role(role)
        return open_channel(_target(address), tls, extra_options=options, interceptors=interceptors)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The HTTP session."""
        if self._session is None or self._session.closed:
            # Instances are many and each is asked once a round: no limit over all, and names are looked up again.
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=2, keepalive_timeout=60)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    async def discard(self, address: str) -> None:
        """Close the channels to an address: the next ones are made anew, without waiting out gRPC's back-off."""
        for channels in (self._channels, self._readers):
            for key in [key for key in channels if key[0] == address]:
                await channels.pop(key).close()

    async def keep_only(self, addresses: set[str]) -> None:
        """Close the channels to everybody else."""
        for address in {open_address for open_address, _ in (*self._channels, *self._readers)} - addresses:
            await self.discard(address)

    async def close(self) -> None:
        """Close everything."""
        await self.keep_only(set())
        if self._session is not None:
            await self._session.close()


def _target(address: str) -> str:
    host, _, port = address.rpartition(":")
    return target_of([(host.strip("[]"), int(port))])
