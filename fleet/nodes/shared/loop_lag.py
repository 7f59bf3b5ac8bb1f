"""A node that notices by itself that it is overloaded: its event loop runs late, so everybody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fleet.processes import background
from fleet.transport.declared_status import DeclaredStatus

#: How often the loop's lateness is looked at, seconds.
_TICK = 0.25
#: One late tick may be a garbage collection; so many of the last ones are load.
_LATE_TICKS, _TICKS = 3, 8
#: The word holds for this, unless it is said again, seconds.
_DEGRADED_SECONDS = 10.0


@contextlib.asynccontextmanager
async def watch_lateness(declared_status: DeclaredStatus, limit: float) -> AsyncIterator[None]:
    """Say that the node is degraded while its loop is often late by more than `limit` seconds."""
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
            declared_status.degrade(f"its event loop is late by more than {limit * 1000:.0f} ms", _DEGRADED_SECONDS)
