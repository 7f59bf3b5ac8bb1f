"""Connections to instances, kept between polls: one gRPC channel per address, one HTTP session for all.

Only ever made in the process and the event loop that use them (docs/flow.md, "Connections").
"""

from __future__ import annotations

import aiohttp
import grpc.aio

from fleet.transport.channels import TLSFiles, open_channel, target_of

#: A list of agents in a mesh names every tunnel of each: 4 MB, gRPC's default, is 500 agents with 200 proxies.
LARGEST_ANSWER = 64 * 1024 * 1024


class Connections:
    """Channels by address, and the HTTP session."""

    def __init__(self, tls: TLSFiles | None = None) -> None:
        self._tls = tls
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._session: aiohttp.ClientSession | None = None

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel to host:port. Raises ValueError for an address that is none, TLSError."""
        found = self._channels.get(address)
        if found is None:
            host, _, port = address.rpartition(":")
            found = self._channels[address] = open_channel(
                target_of([(host.strip("[]"), int(port))]), self._tls
            )
        return found

    @property
    def session(self) -> aiohttp.ClientSession:
        """The HTTP session."""
        if self._session is None or self._session.closed:
            # Instances are many and each is asked once a round: no limit over all, and names are looked up again.
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=2, keepalive_timeout=60)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    async def discard(self, address: str) -> None:
        """Close the channel to an address: the next one is made anew, without waiting out gRPC's back-off."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()

    async def keep_only(self, addresses: set[str]) -> None:
        """Close the channels to everybody else."""
        for address in set(self._channels) - addresses:
            await self.discard(address)

    async def close(self) -> None:
        """Close everything."""
        await self.keep_only(set())
        if self._session is not None:
            await self._session.close()
