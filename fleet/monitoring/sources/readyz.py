"""I: the process state, by GET /readyz on the diag address. The code says it; Teleport's are 200, 400 and 503."""

from __future__ import annotations

from dataclasses import dataclass, replace

import aiohttp

from fleet.monitoring.sources import map_source_errors
from fleet.monitoring.sources.source import EvidenceSource, SourceContext
from fleet.protocol.destination import instance_status
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.vocabulary.instances import Poll


@dataclass(frozen=True, slots=True)
class ReadyzResponse:
    """The HTTP code, and what the instance says of itself in the headers."""

    code: int
    status: InstanceStatus = instance_status.EMPTY_STATUS


async def get_readyz(context: SourceContext) -> ReadyzResponse:
    """Ask the diag address. Raises SourceError."""
    url = f"http://{context.target.diag_address}/readyz"
    limit = aiohttp.ClientTimeout(total=context.remaining_seconds())
    with map_source_errors():
        async with context.connections.session.get(url, timeout=limit, allow_redirects=False) as response:
            return ReadyzResponse(response.status, instance_status.read(response.headers.items()))


def _record(poll: Poll, response: ReadyzResponse, at: float) -> Poll:
    return replace(poll, readyz=response.code, readyz_at=at)


READYZ = EvidenceSource(
    "readyz", get_readyz, applies_to=lambda target: bool(target.diag_address), record=_record
)
