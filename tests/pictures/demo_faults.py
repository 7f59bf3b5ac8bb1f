"""Cause each fault in a demo, and photograph the map 5, 10 and 60 s later."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.pictures.calm_demo import run_calm_demo, run_refloat
from tests.pictures.faults import AGENTS, DELAYS, DEMO_FLAGS, Fault
from tests.pictures.windows import Theme, open_windows


async def photograph_fault(fault: Fault, path: Path, theme: Theme) -> None:
    """Write the pictures of a fault, in a demo of its own: PATH-05.png, PATH-05-full.png, PATH-05.txt, and so on."""
    async with run_calm_demo(AGENTS, *DEMO_FLAGS) as demo, open_windows(demo, theme) as windows:
        await run_refloat(demo, fault.cause)
        started_at = time.monotonic()
        for delay in DELAYS:
            await asyncio.sleep(max(0.0, started_at + delay - time.monotonic()))
            await windows[0].photograph_whole(path.with_name(f"{path.name}-{delay:02d}"))
        if fault.repair:
            await run_refloat(demo, fault.repair)
