"""POST to a URL that a user entered: no redirects, with limits, and not into the private network (SSRF).

The address of the connection counts (`guard.py`): however a host is spelled, and whatever its name resolves to a moment
later, no connection to an address that is not public is made.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from typing_extensions import override

from fleet.alerts.channels import SendError
from fleet.alerts.channels.guard import ConnectionGuard, refuse_private_addresses
from fleet.alerts.channels.public_addresses import is_public

#: Timeout of an attempt, seconds.
TIMEOUT_SECONDS = 10.0
#: Bytes of a response that are read, and that an error message shows. Slack's responses repeat the message.
_MAX_RESPONSE_BYTES = 500_000
_MAX_EXCERPT_BYTES = 500
#: Status codes that mean the notification itself is wrong; with all others a retry may succeed.
_PERMANENT_STATUSES = frozenset({400, 413, 422})


class PrivateAddressError(SendError):
    """The address is private or loopback."""


@dataclass(frozen=True, slots=True)
class ReceiverResponse:
    """The response of a receiver, whatever its status."""

    status: int
    body: bytes
    #: Seconds that the receiver asks to wait before the next request; None if it does not.
    retry_after_seconds: float | None = None

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def excerpt(self) -> str:
        """Beginning of the body as printable text."""
        text = self.body[:_MAX_EXCERPT_BYTES].decode("utf-8", "replace").strip()
        return "".join(character if character.isprintable() else " " for character in text)


def parse_host(url: str) -> str:
    """Return the host of an http(s) URL. Raises SendError."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise SendError(f"the address is not a valid URL: {error}", permanent=True) from error
    if parts.scheme not in ("http", "https") or not host:
        raise SendError("the address must begin with https:// or http://", permanent=True)
    return host


def check_channel_url(url: str) -> None:
    """Validate a URL that a user entered. Raises SendError."""
    parse_host(url)
    if "@" in urlsplit(url).netloc:
        raise SendError(
            "the address must not contain a user name or password, because pages show it", permanent=True
        )


def check_written_address(url: str) -> None:
    """Require that a host that is written as an IP address is public. Raises PrivateAddressError.

    This finds mistakes while a channel is set up. Names may resolve to another address later: `post` checks those.
    """
    host = parse_host(url)
    try:
        is_private = not is_public(host.strip("[]"))
    except ValueError:
        is_private = host.lower() == "localhost"
    if is_private:
        raise _make_private_address_error(host)


def require_public_host(host: str) -> None:
    """Resolve a host. Raises PrivateAddressError if any of its addresses is not public, SendError if it has none."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SendError(f"host {host} could not be resolved: {error}") from error
    for *_, address in addresses:
        if not is_public(str(address[0])):
            raise _make_private_address_error(host)


def post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> str:
    """Send one POST and return the beginning of the response. Raises SendError unless the status is 2xx."""
    # Do not show responses of internal services to everybody who can read the delivery log.
    max_bytes = 0 if allow_private else _MAX_EXCERPT_BYTES
    response = _post_guarded(url, body, headers, allow_private=allow_private, max_bytes=max_bytes)
    excerpt = response.excerpt
    if response.is_success:
        return excerpt
    raise SendError(
        f"the receiver responded with status {response.status}{f': {excerpt}' if excerpt else ''}",
        permanent=response.status in _PERMANENT_STATUSES,
        retry_after_seconds=response.retry_after_seconds,
    )


def post_for_response(
    url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool
) -> ReceiverResponse:
    """Send one POST and return the response with its whole body. Raises SendError if there is none."""
    return _post_guarded(
        url, body, headers, allow_private=allow_private, max_bytes=_MAX_RESPONSE_BYTES, is_whole=True
    )


def _post_guarded(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allow_private: bool,
    max_bytes: int,
    is_whole: bool = False,
) -> ReceiverResponse:
    host = parse_host(url)
    with nullcontext(ConnectionGuard()) if allow_private else refuse_private_addresses() as guard:
        try:
            return asyncio.run(
                _post(url, body, headers, allow_private=allow_private, max_bytes=max_bytes, is_whole=is_whole)
            )
        except SendError as error:
            if guard.refused_address:
                raise _make_private_address_error(host) from error
            raise


class _GuardedResolver(AbstractResolver):
    """Resolves names, and refuses those with any address that is not public."""

    def __init__(self, *, allow_private: bool) -> None:
        self._resolver = ThreadedResolver()
        self._allow_private = allow_private

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        resolved_addresses = await self._resolver.resolve(host, port, family)
        if not self._allow_private and not all(
            is_public(resolved_address["host"]) for resolved_address in resolved_addresses
        ):
            raise _make_private_address_error(host)
        return resolved_addresses

    @override
    async def close(self) -> None:
        await self._resolver.close()


async def _post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allow_private: bool,
    max_bytes: int,
    is_whole: bool,
) -> ReceiverResponse:
    connector = aiohttp.TCPConnector(resolver=_GuardedResolver(allow_private=allow_private), force_close=True)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            retry_after_seconds = parse_retry_after(response.headers.get("Retry-After", ""), time.time())
            response_body = await _read_body(response, max_bytes, is_whole=is_whole)
            return ReceiverResponse(response.status, response_body, retry_after_seconds)
    except TimeoutError as error:
        raise SendError(f"no response within {TIMEOUT_SECONDS:g} s") from error
    except aiohttp.ClientConnectorDNSError as error:
        raise SendError(
            f"host {error.host} could not be resolved. Check the address, and the DNS of the console's machine"
        ) from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise SendError(f"the certificate of {error.host} is not valid: {error.certificate_error}") from error
    except aiohttp.ClientConnectorError as error:
        reason = error.os_error.strerror or str(error.os_error)
        raise SendError(f"cannot connect to {error.host}:{error.port}: {reason}") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise SendError(f"{type(error).__name__}: {error}") from error


async def _read_body(response: aiohttp.ClientResponse, max_bytes: int, *, is_whole: bool) -> bytes:
    """Return the beginning of the body, as soon as there is any; `is_whole`: wait for its end, too."""
    body = bytearray()
    while len(body) < max_bytes and (chunk := await response.content.read(max_bytes - len(body))):
        body += chunk
        if not is_whole:
            break
    return bytes(body)


def parse_retry_after(header: str, now: float) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date (RFC 9110, 10.2.3); None if it is not valid."""
    if header.strip().isascii() and header.strip().isdecimal():
        # A longer number would be infinite.
        return float(header.strip()[:9])
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _make_private_address_error(host: str) -> PrivateAddressError:
    return PrivateAddressError(
        (
            f"{host} is a private or loopback address. To send there, choose “Allow private addresses” under "
            "“More options” of the channel"
        ),
        permanent=True,
    )
