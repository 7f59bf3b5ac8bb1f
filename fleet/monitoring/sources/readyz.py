"""I: the process state, by GET /readyz on the diag address. The code says it; Teleport's are 200, 400 and 503."""

from __future__ import annotations

from dataclasses import dataclass, replace

import aiohttp

from fleet.monitoring.sources import asking
from fleet.monitoring.sources.source import EvidenceSource, Question
from fleet.protocol.destination import standing
from fleet.protocol.destination.standing import Said
from fleet.vocabulary.instances import Poll


@dataclass(frozen=True, slots=True)
class Readiness:
    """The HTTP code, and what the instance says of itself in the headers."""

    code: int
    said: Said = standing.NOTHING


async def ask_readyz(session: aiohttp.ClientSession, address: str, *, timeout: float) -> Readiness:  # noqa: ASYNC109 - it is aiohttp's
    """Ask host:port within `timeout` seconds. Raises SourceFailed."""
    limit = aiohttp.ClientTimeout(total=timeout)
    with asking():
        async with session.get(f"http://{address}/readyz", timeout=limit, allow_redirects=False) as answer:
            return Readiness(answer.status, standing.read(answer.headers.items()))


async def _ask(question: Question) -> Readiness:
    return await ask_readyz(
        question.connections.session, question.target.diag_address, timeout=question.left()
    )


def _record(poll: Poll, answer: Readiness, at: float) -> Poll:
    return replace(poll, readyz=answer.code, readyz_at=at)


READYZ = EvidenceSource("readyz", _ask, applies_to=lambda target: bool(target.diag_address), record=_record)
