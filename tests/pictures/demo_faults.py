"""Cause each fault in a demo, and photograph the map 5, 10 and 60 s later."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fakes.waiting import eventually
from tests.flow.running import Demo, start_demo
from tests.meta.house import ROOT
from tests.pictures.faults import AGENTS, DELAYS, DEMO_FLAGS, Command, Fault
from tests.pictures.map_watch import MapWatch, watch_map

#: Seconds until the fleet is calm again after a fault.
_CALM_TIMEOUT = 300.0


async def photograph_fault(fault: Fault, path: Path, *, dark: bool) -> None:
    """Write the pictures of a fault, in a demo of its own: PATH-05.png, PATH-05-full.png, PATH-05.txt, and so on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="refloat-pictures-") as home:
        demo = await asyncio.to_thread(start_demo, Path(home), *DEMO_FLAGS)
        try:
            await _wait_calm(demo)
            async with watch_map(demo.url, "demo", demo.password, dark=dark) as watch:
                await _photograph(demo, watch, fault, path)
        finally:
            await asyncio.to_thread(demo.stop)


async def _photograph(demo: Demo, watch: MapWatch, fault: Fault, path: Path) -> None:
    await asyncio.to_thread(_run_refloat, demo, fault.cause)
    started_at = time.monotonic()
    for delay in DELAYS:
        await asyncio.sleep(max(0.0, started_at + delay - time.monotonic()))
        await watch.photograph(path.with_name(f"{path.name}-{delay:02d}"))
    if fault.repair:
        await asyncio.to_thread(_run_refloat, demo, fault.repair)


async def _wait_calm(demo: Demo) -> None:
    """Wait until all agents are healthy, no incident is open, and no change runs."""

    async def is_calm() -> bool:
        return await asyncio.to_thread(_is_calm, demo)

    await eventually(is_calm, seconds=_CALM_TIMEOUT)


def _is_calm(demo: Demo) -> bool:
    if demo.counts() != {"healthy": AGENTS}:
        return False
    has_incident = bool(demo.get("incidents?state=open")["incidents"])
    return not has_incident and not demo.get("changes")["busy_reason"]


def _run_refloat(demo: Demo, command: Command) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "fleet.cli", *command, "--home", str(demo.home)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
