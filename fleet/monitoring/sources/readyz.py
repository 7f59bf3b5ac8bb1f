"""Evidence I: the process state, by the status code of GET /readyz. Teleport's codes are 200, 400 and 503."""

from __future__ import annotations

from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime

import aiohttp

from fleet.monitoring.sources import map_source_errors
from fleet.monitoring.sources.source import EvidenceSource, SourceContext
from fleet.protocol.destination import instance_status
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import Poll


@dataclass(frozen=True, slots=True)
class ReadyzResponse:
    """HTTP status code, and the instance's own report in the headers."""

    code: int
    declared_status: InstanceStatus = instance_status.EMPTY_STATUS
    #: Seconds by which the clock of the instance is ahead, negative: behind; None: it does not report its time.
    clock_offset: float | None = None


async def get_readyz(context: SourceContext) -> ReadyzResponse:
    """Request /readyz. Raises SourceError."""
    url = f"http://{context.target.diag_address}/readyz"
    timeout = aiohttp.ClientTimeout(total=context.remaining_seconds())
    with map_source_errors():
        async with context.connections.session.get(url, timeout=timeout, allow_redirects=False) as response:
            return ReadyzResponse(
                response.status,
                instance_status.from_headers(response.headers.items()),
                find_clock_offset(response.headers.get("Date", ""), context.clock()),
            )


def find_clock_offset(date: str, now: float) -> float | None:
    """Return by how many seconds the clock that wrote an HTTP Date header is ahead of this one; negative: behind.

    The header has whole seconds: within the second that it names, the clocks agree. None for anything but a date.
    """
    try:
        server_at = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
    return round(max(0.0, server_at - now) or min(0.0, server_at + 1.0 - now), 1)


def _update_poll(poll: Poll, response: ReadyzResponse, at: float) -> Poll:
    return replace(poll, readyz=response.code, readyz_at=at, clock_offset=response.clock_offset)


READYZ = EvidenceSource(
    "readyz",
    get_readyz,
    applies_to=lambda target: bool(target.diag_address),
    update_poll=_update_poll,
    capabilities=frozenset({Capability.HEALTH}),
)
