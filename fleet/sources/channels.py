"""Connections to instances, kept between polls: one gRPC channel per address, one HTTP session for all.

Only ever made in the process and the event loop that use them (docs/flow.md, "Connections").
"""

from __future__ import annotations

import aiohttp
import grpc.aio

from fleet.protocol.retry import Policy
from fleet.transport.channels import TLSFiles, open_channel, still_options, target_of
from fleet.transport.retrying.aio import Retrying
from fleet.transport.retrying.calling import SharedBudget
from fleet.transport.retrying.reads import DEFAULT, reads

#: A list of agents in a mesh names every tunnel of each: 4 MB, gRPC's default, is 500 agents with 200 proxies.
LARGEST_ANSWER = 64 * 1024 * 1024

#: gRPC need not keep what was sent to send it again by itself: a probe is made once, and `Retrying` sees to the reads.
_MADE_ONCE = ("grpc.enable_retries", 0)


class Connections:
    """Channels by address, and the HTTP session."""

    def __init__(self, tls: TLSFiles | None = None, retries: Policy = DEFAULT) -> None:
        """Know none yet; reads over a `reader` are retried by `retries`."""
        self._tls = tls
        self._channels: dict[str, grpc.aio.Channel] = {}
        #: Of their own: an interceptor costs every call, and a probe must be made once.
        self._readers: dict[str, grpc.aio.Channel] = {}
        self._retrying = Retrying(reads(retries), budget=SharedBudget())
        self._session: aiohttp.ClientSession | None = None

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel to host:port. Raises ValueError for an address that is none, TLSError."""
        found = self._channels.get(address)
        if found is None:
            found = self._channels[address] = self._open(address)
        return found

    def reader(self, address: str) -> grpc.aio.Channel:
        """The channel to host:port over which lists are read, again if need be. Raises ValueError, TLSError."""
        found = self._readers.get(address)
        if found is None:
            found = self._readers[address] = self._open(address, self._retrying)
        return found

    def _open(self, address: str, *interceptors: Retrying) -> grpc.aio.Channel:
        options = [*still_options(), _MADE_ONCE, ("grpc.max_receive_message_length", LARGEST_ANSWER)]
        return open_channel(_target(address), self._tls, more=options, interceptors=interceptors)

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
            channel = channels.pop(address, None)
            if channel is not None:
                await channel.close()

    async def keep_only(self, addresses: set[str]) -> None:
        """Close the channels to everybody else."""
        for address in {*self._channels, *self._readers} - addresses:
            await self.discard(address)

    async def close(self) -> None:
        """Close everything."""
        await self.keep_only(set())
        if self._session is not None:
            await self._session.close()


def _target(address: str) -> str:
    host, _, port = address.rpartition(":")
    return target_of([(host.strip("[]"), int(port))])
