"""Requests to the monitoring port of nats-server, with limits: any server may be behind an address."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from fleet.monitoring.sources import SourceError, map_source_errors
from fleet.monitoring.sources.nats.documents import Document

#: Maximum bytes of a response: /leafz of 65,536 connections, nats-server's own maximum, has 22 MB.
LARGEST_LEAF_LIST = 32 * 1024 * 1024
LARGEST_DOCUMENT = 4 * 1024 * 1024
_REFUSED = (401, 403, 407)


@dataclass(frozen=True, slots=True)
class MonitoringResponse:
    """A response: HTTP status code and JSON object."""

    status: int
    document: Document


class AuthenticationError(SourceError):
    """The port asks for a password, which nats-server's own does not."""

    def __init__(self, path: str, status: int) -> None:
        super().__init__(f"{path} requires authentication (HTTP {status})", has_response=True)


async def get_document(
    session: aiohttp.ClientSession,
    address: str,
    path: str,
    *,
    timeout: float,  # noqa: ASYNC109 - it is aiohttp's
    max_bytes: int = LARGEST_DOCUMENT,
) -> MonitoringResponse:
    """Return the object at a path of host:port within `timeout` seconds; a status other than 200 may have one too.

    Raises SourceError.
    """
    url = f"http://{address}{path}"
    limits = aiohttp.ClientTimeout(total=max(timeout, 0.001))
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    with map_source_errors():
        try:
            async with session.get(url, timeout=limits, allow_redirects=False, headers=headers) as response:
                if response.status in _REFUSED:
                    raise AuthenticationError(path, response.status)
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise SourceError(f"{path} is compressed, which was not requested", has_response=True)
                body = await _read(response.content, path, max_bytes)
        except (aiohttp.InvalidURL, ValueError) as error:
            raise SourceError(f"{address!r:.100} is not an address: {error}", has_response=False) from None
    return MonitoringResponse(response.status, _parse_object(body, path, response.status))


async def _read(content: aiohttp.StreamReader, path: str, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    byte_count = 0
    async for chunk in content.iter_any():
        byte_count += len(chunk)
        if byte_count > max_bytes:
            raise SourceError(f"{path} is longer than {max_bytes // 2**20} MB", has_response=True)
        chunks.append(chunk)
    return b"".join(chunks)


def _parse_object(body: bytes, path: str, status: int) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        code = "" if status == 200 else f" (HTTP {status})"
        raise SourceError(f"{path} is not JSON{code}", has_response=True) from None
    if not isinstance(document, dict):
        raise SourceError(f"{path} is not a JSON object", has_response=True)
    return document
