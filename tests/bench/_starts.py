"""Programs of a user, started and timed: shared by `start` and `install`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from fleet.processes import children
from tests.bench import _demo
from tests.bench.measure import BenchError

#: Seconds until a start counts as failed.
TIMEOUT = 600.0
_POLL = 0.05


#: Agents of `make demo`.
AGENTS = 200


@dataclass(frozen=True, slots=True)
class DemoStart:
    """Seconds from the command until a signed-in user has the page, and the live states of all agents."""

    page: float
    live: float


def time_demo(argv: Sequence[str], checkout: Path, home: Path, *, agents: int = AGENTS) -> DemoStart:
    """Start the demo, sign in and watch the page's WebSocket until it has shown every agent. Raises BenchError."""
    start = time.monotonic()
    with start_program(argv, checkout, home) as demo:
        page_at, live_at = asyncio.run(_await_live_states(demo, home, agents, start + TIMEOUT))
    took = DemoStart(page_at - start, live_at - start)
    print(f"page {took.page:.1f} s, live states of all agents {took.live:.1f} s", file=sys.stderr, flush=True)
    return took


def output_of(home: Path) -> Path:
    """Return the file with the output of the program whose state is in `home`."""
    return home / "bench.log"


@contextlib.contextmanager
def start_program(argv: Sequence[str], folder: Path, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a folder with its state in `home` until the block ends; its output goes to `home`."""
    # Variables of an outer `make bench` must not reach the clone's make.
    make_variables = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VENV"}
    env = {name: value for name, value in os.environ.items() if name not in make_variables}
    home.mkdir(parents=True, exist_ok=True)
    (home / "demo.json").unlink(missing_ok=True)
    with output_of(home).open("wb") as log:
        program = children.spawn(argv, env={**env, "REFLOAT_HOME": str(home)}, log=log, cwd=str(folder))
    try:
        yield program
    finally:
        children.stop([program], grace=30.0)


async def _await_live_states(
    demo: subprocess.Popen[bytes], home: Path, agents: int, deadline: float
) -> tuple[float, float]:
    """Return when a signed-in user had the page, and when the live states of all agents, by time.monotonic."""
    page_at: float | None = None
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        while True:
            if demo.poll() is not None or time.monotonic() > deadline:
                raise BenchError(
                    f"the demo did not start:\n{output_of(home).read_text('utf-8', 'replace')[-2000:]}"
                )
            with contextlib.suppress(BenchError, aiohttp.ClientError, TimeoutError):
                demo_access = _demo.read(home)
                client = _demo.DemoClient(demo_access, session)
                if page_at is None:
                    await client.sign_in()
                    async with session.get(f"{demo_access.url}/", allow_redirects=False) as page:
                        page_at = time.monotonic() if page.status == 200 else None
                if page_at is not None:
                    async with client.socket() as socket, asyncio.timeout(deadline - time.monotonic()):
                        return page_at, await client.await_live_states(socket, agents)
            await asyncio.sleep(_POLL)
