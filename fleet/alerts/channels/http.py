"""POST to an address that somebody typed: no redirects, bounded, and not into our own network (SSRF).

What counts is the address that is connected to (`guard.py`): however a host is spelled, and whatever a name says a
moment later, a connection to an address that is not public is not made.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import nullcontext
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from typing_extensions import override

from fleet.alerts.channels import SendError
from fleet.alerts.channels.guard import ConnectionGuard, public_only
from fleet.alerts.channels.public_addresses import is_public

#: One attempt, seconds.
TIMEOUT = 10.0
#: So much of an answer is read, to say what was wrong.
_MAX_RESPONSE_BYTES = 500
#: Answers that say the message itself is wrong; all others may be mended at the other end within a day.
_PERMANENT_STATUSES = frozenset({400, 413, 422})


class PrivateAddressError(SendError):
    """A target on a private or loopback address."""


def check_url(url: str) -> str:
    """The host of an http(s) address. Raises SendError."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise SendError(f"the address cannot be read: {error}", permanent=True) from error
    if parts.scheme not in ("http", "https") or not host:
        raise SendError("the address must begin with https:// or http://", permanent=True)
    return host


def check_address(url: str) -> None:
    """Refuse an address that somebody typed and no POST can go to. Raises SendError."""
    check_url(url)
    if "@" in urlsplit(url).netloc:
        raise SendError("put no password into the address: pages show it up to its path", permanent=True)


def check_host(host: str) -> None:
    """Look a host up. Raises RefusedTarget when any of its addresses is not public, SendError when it has none."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SendError(f"{host} cannot be looked up: {error}") from error
    for *_, address in addresses:
        if not is_public(str(address[0])):
            raise _private_address_error(host)


def post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> str:
    """Send one POST and return the beginning of its answer. Raises SendError unless the answer is 2xx."""
    host = check_url(url)
    with nullcontext(ConnectionGuard()) if allow_private else public_only() as guard:
        try:
            return asyncio.run(_post(url, body, headers, allow_private=allow_private))
        except SendError as error:
            if guard.refused_address:
                raise _private_address_error(host) from error
            raise


class _GuardedResolver(AbstractResolver):
    """Looks names up, and refuses those that lead into a private network by any of their addresses."""

    def __init__(self, *, allow_private: bool) -> None:
        self._inner = ThreadedResolver()
        self._allow_private = allow_private

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        resolved_hosts = await self._inner.resolve(host, port, family)
        if not self._allow_private and not all(is_public(resolved_host["host"]) for resolved_host in resolved_hosts):
            raise _private_address_error(host)
        return resolved_hosts

    @override
    async def close(self) -> None:
        await self._inner.close()


async def _post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> str:
    connector = aiohttp.TCPConnector(resolver=_GuardedResolver(allow_private=allow_private), force_close=True)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            # What a service inside says is for nobody who merely reads the delivery log.
            excerpt = "" if allow_private else _printable_text(await response.content.read(_MAX_RESPONSE_BYTES))
            if 200 <= response.status < 300:
                return excerpt
            raise SendError(
                f"it answered {response.status}{f': {excerpt}' if excerpt else ''}", permanent=response.status in _PERMANENT_STATUSES
            )
    except TimeoutError as error:
        raise SendError(f"no answer within {TIMEOUT:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise SendError(f"{type(error).__name__}: {error}") from error


def _printable_text(content: bytes) -> str:
    text = content.decode("utf-8", "replace").strip()
    return "".join(character if character.isprintable() else " " for character in text)


def _private_address_error(host: str) -> PrivateAddressError:
    return PrivateAddressError(
        f"{host} is a private or loopback address: allow it at the channel if that is meant", permanent=True
    )
