"""Connections to instances that are kept between polls: one gRPC channel per address, one HTTP session for all.

Created only in the process and the event loop that use them (docs/explanation/data-flow.md, "Connections").
"""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp
import grpc
import grpc.aio

from fleet.protocol.retry.policy import RetryPolicy
from fleet.transport.channels import fixed_window_options, open_channel, open_stream_channel, target_of
from fleet.transport.retry.aio import RetryInterceptor
from fleet.transport.retry.read_retries import DEFAULT_READ_RETRIES, policy_by_method
from fleet.transport.retry.retried_call import SharedBudget
from fleet.transport.tls import TLSError, TLSFiles, channel_credentials, client_context

#: Maximum bytes of a response: an agent list has every tunnel. gRPC's default, 4 MB, fits 500 agents with 200 proxies.
LARGEST_RESPONSE = 64 * 1024 * 1024

#: Disables gRPC's own retries: a probe is sent once, and `RetryInterceptor` repeats reads.
_NO_GRPC_RETRIES = ("grpc.enable_retries", 0)


class Connections:
    """gRPC channels by address and role, and the HTTP session."""

    def __init__(self, tls: TLSFiles | None = None, retries: RetryPolicy = DEFAULT_READ_RETRIES) -> None:
        """Start without connections; calls on a `read_channel` are retried by `retries`."""
        self._tls = tls
        #: Of the files when the first channel was opened: while they are replaced, certificate and key do not match.
        self._credentials: grpc.ChannelCredentials | None = None
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        #: Separate channels: an interceptor slows every call, and a probe must be sent once.
        self._read_channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        self._retry_interceptor = RetryInterceptor(policy_by_method(retries), budget=SharedBudget())
        self._session: aiohttp.ClientSession | None = None
        self._https_context: ssl.SSLContext | None = None

    def channel(self, address: str, role: str) -> grpc.aio.Channel:
        """Return the channel to an instance of a role at host:port. Raises ValueError, TLSError."""
        key = (address, role)
        if key not in self._channels:
            self._channels[key] = self._open(address, role)
        return self._channels[key]

    def read_channel(self, address: str, role: str) -> grpc.aio.Channel:
        """Return the channel for reading lists, with retries. Raises ValueError, TLSError."""
        key = (address, role)
        if key not in self._read_channels:
            self._read_channels[key] = self._open(address, role, self._retry_interceptor)
        return self._read_channels[key]

    def _open(self, address: str, role: str, *interceptors: RetryInterceptor) -> grpc.aio.Channel:
        options = [
            *fixed_window_options(),
            _NO_GRPC_RETRIES,
            ("grpc.max_receive_message_length", LARGEST_RESPONSE),
        ]
        tls = None if self._tls is None else self._tls.for_role(role)
        if tls is not None and tls.enabled and self._credentials is None:
            self._credentials = channel_credentials(tls)
        return open_channel(
            *(_target(address), tls),
            extra_options=options,
            interceptors=interceptors,
            credentials=self._credentials,
        )

    def open_stream_channel(self, address: str, role: str) -> grpc.Channel:
        """Open a channel for streams that threads read; the caller closes it. Raises ValueError, TLSError."""
        options = [
            *fixed_window_options(),
            _NO_GRPC_RETRIES,
            ("grpc.max_receive_message_length", LARGEST_RESPONSE),
        ]
        tls = None if self._tls is None else self._tls.for_role(role)
        return open_stream_channel(_target(address), tls, options)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The HTTP session, for all instances."""
        if self._session is None or self._session.closed:
            # Each of many instances is polled once a round: no overall limit, and names are resolved again.
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=2, keepalive_timeout=60)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    def https_options(self, role: str) -> dict[str, Any]:
        """Return the options of a request of `session` to an instance of a role by HTTPS. Raises TLSError."""
        if self._tls is None:
            raise TLSError("this cluster does not use TLS")
        tls = self._tls.for_role(role)
        if self._https_context is None:
            self._https_context = client_context(tls)
        return {"ssl": self._https_context, "server_hostname": tls.server_name}

    async def discard(self, address: str) -> None:
        """Close the channels to an address: new ones do not wait for gRPC's backoff."""
        for channels in (self._channels, self._read_channels):
            for key in [key for key in channels if key[0] == address]:
                await channels.pop(key).close()

    async def keep_only(self, addresses: set[str]) -> None:
        """Close the channels to all other addresses."""
        for address in {
            open_address for open_address, _ in (*self._channels, *self._read_channels)
        } - addresses:
            await self.discard(address)

    async def close(self) -> None:
        """Close all connections."""
        await self.keep_only(set())
        if self._session is not None:
            await self._session.close()


def _target(address: str) -> str:
    host, _, port = address.rpartition(":")
    return target_of([(host.strip("[]"), int(port))])
