from __future__ import annotations

import asyncio
import time

from fleet.monitoring.pollers.probe import SelfProbe


async def test_probe_of_a_loop_that_runs_freely() -> None:
    """Good, and at once."""
    async with SelfProbe(5.0) as probe:
        await asyncio.sleep(0)
    assert probe.succeeded


async def test_probe_of_a_loop_that_is_held_up() -> None:
    """What failed while the loop was late is no evidence."""
    async with SelfProbe(0.3) as probe:
        await asyncio.sleep(0)
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            pass
    assert not probe.succeeded
