"""The HTTP API of a Teleport auth: what has no gRPC call, or had none in older versions."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from fleet.monitoring.sources import SourceError, map_source_errors
from fleet.monitoring.sources.source import SourceContext
from fleet.transport.tls import TLSError

#: Bytes of a response: thousands of resources.
_LARGEST_RESPONSE = 8 * 1024 * 1024


async def get_resources(context: SourceContext, path: str) -> list[Any]:
    """Return the documents of a list. Raises SourceError."""
    documents = await _get(context, path)
    if not isinstance(documents, list):
        raise SourceError(f"the response of {path} is not a list", has_response=True)
    return documents


async def _get(context: SourceContext, path: str) -> Any:
    try:
        options = context.connections.https_options(context.target.kind)
    except TLSError as error:
        raise SourceError(str(error), has_response=False) from error
    timeout = aiohttp.ClientTimeout(total=max(context.remaining_seconds(), 0.001))
    url = f"https://{context.target.address}{path}"
    with map_source_errors():
        async with context.connections.session.get(
            url, timeout=timeout, allow_redirects=False, **options
        ) as response:
            if response.status == 403:
                raise SourceError("permission denied", has_response=True)
            if response.status == 404:
                raise SourceError(f"unimplemented: {path}", has_response=True)
            if response.status != 200:
                raise SourceError(f"{path} responds with {response.status}", has_response=True)
            body = b""
            async for chunk in response.content.iter_chunked(65536):
                body += chunk
                if len(body) > _LARGEST_RESPONSE:
                    raise SourceError(f"the response of {path} is too large", has_response=True)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise SourceError(f"{path} does not respond with JSON", has_response=True) from None
