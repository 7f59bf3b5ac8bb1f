"""Evidence I: the process state, by the status code of GET /readyz. Teleport's codes are 200, 400 and 503."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


async def get_readyz(context: SourceContext) -> ReadyzResponse:
    """Request /readyz. Raises SourceError."""
    url = f"http://{context.target.diag_address}/readyz"
    timeout = aiohttp.ClientTimeout(total=context.remaining_seconds())
    with map_source_errors():
        async with context.connections.session.get(url, timeout=timeout, allow_redirects=False) as response:
            return ReadyzResponse(response.status, instance_status.from_headers(response.headers.items()))


def _update_poll(poll: Poll, response: ReadyzResponse, at: float) -> Poll:
    return replace(poll, readyz=response.code, readyz_at=at)


READYZ = EvidenceSource(
    "readyz",
    get_readyz,
    applies_to=lambda target: bool(target.diag_address),
    update_poll=_update_poll,
    capabilities=frozenset({Capability.HEALTH}),
)
