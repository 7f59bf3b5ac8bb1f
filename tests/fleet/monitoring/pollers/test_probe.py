from __future__ import annotations

import asyncio
import time

from fleet.monitoring.pollers.probe import SelfProbe


async def test_probe_of_an_idle_loop_succeeds() -> None:
    async with SelfProbe(5.0) as probe:
        await asyncio.sleep(0)
    assert probe.succeeded


async def test_probe_of_a_blocked_loop_fails() -> None:
    """Failures of a blocked loop are no evidence."""
    async with SelfProbe(0.3) as probe:
        await asyncio.sleep(0)
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            pass
    assert not probe.succeeded
