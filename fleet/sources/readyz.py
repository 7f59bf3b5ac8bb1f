"""I: the process state, by GET /readyz on the diag address. The code says it; Teleport's are 200, 400 and 503."""

from __future__ import annotations

import aiohttp

from fleet.sources import SourceFailed


async def ask_readyz(session: aiohttp.ClientSession, address: str, *, timeout: float) -> int:  # noqa: ASYNC109 - it is aiohttp's
    """Ask host:port within `timeout` seconds; answers the HTTP code. Raises SourceFailed."""
    limit = aiohttp.ClientTimeout(total=timeout)
    try:
        async with session.get(f"http://{address}/readyz", timeout=limit, allow_redirects=False) as answer:
            return answer.status
    except TimeoutError as error:
        raise SourceFailed("no answer in time", answered=False) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise SourceFailed(str(error) or type(error).__name__, answered=False) from error
