"""Detection of overload: an instance whose event loop runs late reports that it is degraded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fleet.processes import background
from fleet.transport.declared_status import DeclaredStatus

#: Seconds between two measurements of the event loop's lateness.
_TICK = 0.25
#: One late tick may be a garbage collection. This many of the last ticks mean overload.
_LATE_TICKS, _TICKS = 3, 8
#: Seconds for which the degraded state lasts, unless it is reported again.
_DEGRADED_SECONDS = 10.0


@contextlib.asynccontextmanager
async def watch_lateness(declared_status: DeclaredStatus, limit: float) -> AsyncIterator[None]:
    """Report degraded while the event loop is often late by more than `limit` seconds."""
    task = background.start(_watch(declared_status, limit), name="lateness")
    try:
        yield
    finally:
        await background.stop([task])


async def _watch(declared_status: DeclaredStatus, limit: float) -> None:
    loop = asyncio.get_running_loop()
    late_ticks: list[bool] = []
    while True:
        due = loop.time() + _TICK
        await asyncio.sleep(_TICK)
        late_ticks = [*late_ticks, loop.time() - due > limit][-_TICKS:]
        if late_ticks[-1] and late_ticks.count(True) >= _LATE_TICKS:
            declared_status.degrade(
                f"the event loop is late by more than {limit * 1000:.0f} ms", _DEGRADED_SECONDS
            )
