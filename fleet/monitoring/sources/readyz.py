"""I: the process state, by GET /readyz on the diag address. The code says it; Teleport's are 200, 400 and 503."""

from __future__ import annotations

from dataclasses import dataclass, replace

import aiohttp

from fleet.monitoring.sources import asking
from fleet.monitoring.sources.source import EvidenceSource, Question
from fleet.protocol.destination import instance_status
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.vocabulary.instances import Poll


@dataclass(frozen=True, slots=True)
class Readiness:
    """The HTTP code, and what the instance says of itself in the headers."""

    code: int
    said: InstanceStatus = instance_status.EMPTY_STATUS


async def ask_readyz(question: Question) -> Readiness:
    """Ask the diag address. Raises SourceFailed."""
    url = f"http://{question.target.diag_address}/readyz"
    limit = aiohttp.ClientTimeout(total=question.left())
    with asking():
        async with question.connections.session.get(url, timeout=limit, allow_redirects=False) as answer:
            return Readiness(answer.status, instance_status.read(answer.headers.items()))


def _record(poll: Poll, answer: Readiness, at: float) -> Poll:
    return replace(poll, readyz=answer.code, readyz_at=at)


READYZ = EvidenceSource(
    "readyz", ask_readyz, applies_to=lambda target: bool(target.diag_address), record=_record
)
