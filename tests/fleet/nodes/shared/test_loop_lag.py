"""A node that notices that it is late."""

from __future__ import annotations

import asyncio
import time

from fleet.nodes.shared import loop_lag
from fleet.protocol.destination.instance_status import EMPTY_STATUS
from fleet.transport.declared_status import DeclaredStatus
from tests.fakes.waiting import eventually


async def test_loop_that_is_held_up_often_is_degraded() -> None:
    """Work that blocks the loop again and again is said; the word ends by itself."""
    standing = DeclaredStatus()

    async def work() -> None:
        while True:
            until = time.perf_counter() + 0.03
            while time.perf_counter() < until:
                pass  # holding up the loop is the point
            await asyncio.sleep(0)

    async with loop_lag.watch_lateness(standing, 0.001):
        busy = asyncio.create_task(work())
        await eventually(lambda: standing.degraded_declaration is not None)
        busy.cancel()
    assert standing.degraded_declaration is not None
    assert "late by more than 1 ms" in standing.degraded_declaration.reason
    assert standing.degraded_declaration.until is not None


async def test_loop_on_time_says_nothing() -> None:
    """However often it looks."""
    standing = DeclaredStatus()
    async with loop_lag.watch_lateness(standing, 3600.0):
        await asyncio.sleep(0)
    assert standing.status == EMPTY_STATUS
