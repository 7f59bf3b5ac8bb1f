"""A demo that is calm before its pictures are made, and the commands of an operator in it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.waiting import eventually
from tests.flow.running import Demo, start_demo
from tests.meta.house import ROOT
from tests.pictures.faults import Command

#: Seconds until the fleet is calm, or shows what a command caused, on a machine that does other things too.
_TIMEOUT = 300.0


@asynccontextmanager
async def run_calm_demo(agent_count: int, *flags: str) -> AsyncIterator[Demo]:
    """Run a demo in a home of its own until the block ends; the block begins when nothing is wrong in it."""
    with tempfile.TemporaryDirectory(prefix="refloat-pictures-") as home:
        demo = await asyncio.to_thread(start_demo, Path(home), "--agents", str(agent_count), *flags)
        try:
            await wait_until(lambda: _is_calm(demo, agent_count))
            yield demo
        finally:
            await asyncio.to_thread(demo.stop)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the blocking `condition` holds."""

    def check() -> Awaitable[bool]:
        return asyncio.to_thread(condition)

    await eventually(check, seconds=_TIMEOUT)


async def run_refloat(demo: Demo, command: Command) -> None:
    """Run `refloat` with these arguments. Raises AssertionError with its output when it fails."""
    await asyncio.to_thread(_run_refloat, demo, command)


def _is_calm(demo: Demo, agent_count: int) -> bool:
    """All agents are healthy, no incident is open, and no change runs."""
    if demo.counts() != {"healthy": agent_count}:
        return False
    has_incident = bool(demo.get("incidents?state=open")["incidents"])
    return not has_incident and not demo.get("changes")["busy_reason"]


def _run_refloat(demo: Demo, command: Command) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "fleet.cli", *command, "--home", str(demo.home)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
