"""Detection of overload: an instance whose event loop runs late reports that it is degraded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fleet.processes import background
from fleet.transport.declared_status import DeclaredStatus

#: Seconds between two measurements of the event loop's lateness.
_TICK_SECONDS = 0.25
#: One late tick may be a garbage collection. This many of the last ticks mean overload.
_MIN_LATE_TICKS, _OBSERVED_TICKS = 3, 8
#: Seconds for which the degraded state lasts, unless it is reported again.
_DEGRADED_SECONDS = 10.0


@contextlib.asynccontextmanager
async def watch_lateness(declared_status: DeclaredStatus, limit_seconds: float) -> AsyncIterator[None]:
    """Report degraded while the event loop is often late by more than `limit` seconds."""
    task = background.start(_watch(declared_status, limit_seconds), name="lateness")
    try:
        yield
    finally:
        await background.stop([task])


async def _watch(declared_status: DeclaredStatus, limit_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    recent_lateness: list[bool] = []
    while True:
        due_at = loop.time() + _TICK_SECONDS
        await asyncio.sleep(_TICK_SECONDS)
        recent_lateness = [*recent_lateness, loop.time() - due_at > limit_seconds][-_OBSERVED_TICKS:]
        if recent_lateness[-1] and recent_lateness.count(True) >= _MIN_LATE_TICKS:
            declared_status.degrade(
                f"the event loop is late by more than {limit_seconds * 1000:.0f} ms", _DEGRADED_SECONDS
            )
