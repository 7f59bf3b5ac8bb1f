"""POST to an address that somebody typed: no redirects, bounded, and not into our own network (SSRF).

Names are looked up once and the answer is what is connected to, so a name cannot point elsewhere a moment later.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from typing_extensions import override

from fleet.alerts.senders import SendError

#: One attempt, seconds.
TIMEOUT = 10.0
#: So much of an answer is read, to say what was wrong.
_ANSWER = 500
#: Answers that say the message itself is wrong; all others may be mended at the other end within a day.
_NEVER = frozenset({400, 413, 422})


class RefusedTarget(SendError):
    """A target on a private or loopback address."""


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        # Addresses that carry an IPv4 address inside: mapped, 6to4, Teredo, NAT64.
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            ip = inner
    return ip.is_global and not ip.is_multicast


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


def check_host(host: str) -> None:
    """Look a host up. Raises RefusedTarget when any of its addresses is not public, SendError when it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SendError(f"{host} cannot be looked up: {error}") from error
    for *_, address in found:
        if not is_public(str(address[0])):
            raise _refused(host)


def post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> str:
    """Send one POST and return the beginning of its answer. Raises SendError unless the answer is 2xx."""
    host = check_url(url)
    try:
        literal = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        literal = None
    if literal is not None and not allow_private and not is_public(str(literal)):
        raise _refused(host)
    return asyncio.run(_post(url, body, headers, allow_private=allow_private))


class _GuardedResolver(AbstractResolver):
    """Looks names up, and refuses those that lead into a private network."""

    def __init__(self, *, allow_private: bool) -> None:
        self._inner = ThreadedResolver()
        self._allow_private = allow_private

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if not self._allow_private and not all(is_public(one["host"]) for one in found):
            raise _refused(host)
        return found

    @override
    async def close(self) -> None:
        await self._inner.close()


async def _post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> str:
    connector = aiohttp.TCPConnector(resolver=_GuardedResolver(allow_private=allow_private), force_close=True)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            said = (await answer.content.read(_ANSWER)).decode("utf-8", "replace").strip()
            if 200 <= answer.status < 300:
                return said
            raise SendError(
                f"it answered {answer.status}{f': {said}' if said else ''}", permanent=answer.status in _NEVER
            )
    except TimeoutError as error:
        raise SendError(f"no answer within {TIMEOUT:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise SendError(f"{type(error).__name__}: {error}") from error


def _refused(host: str) -> RefusedTarget:
    return RefusedTarget(
        f"{host} is a private or loopback address: allow it at the channel if that is meant", permanent=True
    )
