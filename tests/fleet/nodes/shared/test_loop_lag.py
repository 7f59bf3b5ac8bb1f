"""An instance that detects that its event loop is late."""

from __future__ import annotations

import asyncio
import time

from fleet.nodes.shared import loop_lag
from fleet.protocol.destination.instance_status import EMPTY_STATUS
from fleet.transport.declared_status import DeclaredStatus
from tests.fakes.waiting import eventually


async def test_blocked_loop_is_declared_degraded() -> None:
    """Work that blocks the loop again and again leads to a degraded declaration with an end."""
    declared_status = DeclaredStatus()

    async def work() -> None:
        while True:
            end = time.perf_counter() + 0.03
            while time.perf_counter() < end:
                pass  # blocks the event loop on purpose
            await asyncio.sleep(0)

    async with loop_lag.watch_lateness(declared_status, 0.001):
        blocking_task = asyncio.create_task(work())
        await eventually(lambda: declared_status.degraded_declaration is not None)
        blocking_task.cancel()
    assert declared_status.degraded_declaration is not None
    assert "late by more than 1 ms" in declared_status.degraded_declaration.reason
    assert declared_status.degraded_declaration.expires_at is not None


async def test_loop_on_time_is_not_declared_degraded() -> None:
    """A very high limit is never exceeded."""
    declared_status = DeclaredStatus()
    async with loop_lag.watch_lateness(declared_status, 3600.0):
        await asyncio.sleep(0)
    assert declared_status.status == EMPTY_STATUS
