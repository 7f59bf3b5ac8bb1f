"""The real demo for a benchmark: started by the benchmark or already running, with a client that watches it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from fleet.processes import children
from fleet.processes.valkey import find_free_port
from fleet.vocabulary.verdicts import State
from tests.bench.measure import BenchError

ROOT = Path(__file__).resolve().parents[2]
#: The demo promises its page within 15 s, and within 3 minutes of the first run.
START_TIMEOUT = 180.0
#: Of a demo that starts soon, for `--quick`.
QUICK_AGENTS = 20
QUICK_FLAGS = ("--auths", "1", "--proxies", "2", "--agents", str(QUICK_AGENTS), "--no-forwarder")
_POLL = 0.02


@dataclass(frozen=True, slots=True)
class Demo:
    """The home folder, address and credentials of a running demo."""

    home: Path
    url: str
    username: str
    password: str
    token: str

    def pid_of(self, name: str) -> int:
        """Return the process id of an instance of the demo's fleet. Raises BenchError."""
        argv = [sys.executable, "-c", "from fleet.cli.main import main; main()", "fleet", "ps", "--json"]
        env = dict(os.environ, REFLOAT_HOME=str(self.home))
        answer = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise BenchError(f"`refloat fleet ps` on {self.home} failed: {answer.stderr.strip()}")
        for process in json.loads(answer.stdout):
            if process["name"] == name:
                return int(process["pid"])
        raise BenchError(f"the demo's fleet has no {name}")


def read(home: Path) -> Demo:
    """Return the demo that `demo.json` describes. Raises BenchError when no demo runs in that folder."""
    try:
        note = json.loads((home / "demo.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(
            f"no demo runs on {home}: start one with `make demo`, or unset REFLOAT_BENCH_HOME"
        ) from error
    return Demo(home, note["url"].rstrip("/"), note["username"], note["password"], note["token"])


@contextlib.contextmanager
def running_demo(*flags: str) -> Iterator[Demo]:
    """Yield the demo in REFLOAT_BENCH_HOME, or start one with the flags until the block ends. Raises BenchError."""
    home = os.environ.get("REFLOAT_BENCH_HOME")
    if home:
        yield read(Path(home))
        return
    with start_demo(ROOT, *flags) as (_process, demo):
        yield demo


@contextlib.contextmanager
def start_demo(root: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], Demo]]:
    """Run the demo of a checkout in a folder of its own, for as long as the block lasts. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        home = Path(folder)
        with (home / "bench.log").open("wb") as log:
            demo = children.spawn(
                [sys.executable, "manage.py", "demo", "--port", str(find_free_port()), *flags],
                env=dict(os.environ, REFLOAT_HOME=folder, PYTHONPATH=str(root)),
                log=log,
                cwd=str(root),
            )
        try:
            _await_note(demo, home)
            yield demo, read(home)
        finally:
            children.stop([demo], grace=20.0)


def _await_note(demo: subprocess.Popen[bytes], home: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not (home / "demo.json").exists():
        if demo.poll() is not None or time.monotonic() > deadline:
            raise BenchError(
                f"the demo did not start:\n{(home / 'bench.log').read_text('utf-8', 'replace')[-2000:]}"
            )
        time.sleep(0.1)


def not_healthy(counts: dict[str, int]) -> int:
    """Return the number of agents that are not healthy, without retired ones."""
    return sum(count for slug, count in counts.items() if slug not in {"healthy", "retired"})


class DemoClient:
    """A client of the demo: over the API with the token, and over the page's WebSocket after signing in."""

    def __init__(self, demo: Demo, session: aiohttp.ClientSession) -> None:
        self._demo = demo
        self._session = session

    async def counts(self) -> dict[str, int]:
        """Return the API's agent counts by state. Raises aiohttp.ClientError."""
        headers = {"Authorization": f"Bearer {self._demo.token}"}
        async with self._session.get(f"{self._demo.url}/api/v1/fleet/summary", headers=headers) as answer:
            answer.raise_for_status()
            summary: dict[str, Any] = await answer.json()
        counts: dict[str, int] = summary["counts"]
        return counts

    async def await_healthy(self, *, agents: int = 1, hold: float = 2.0, within: float = 120.0) -> int:
        """Wait until every agent has been healthy for `hold` seconds; return how many there are. Raises BenchError."""
        deadline = time.monotonic() + within
        since: float | None = None
        counts: dict[str, int] = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(aiohttp.ClientError):
                counts = await self.counts()
            well = counts.get("healthy", 0) >= agents and not_healthy(counts) == 0
            since = (since or time.monotonic()) if well else None
            if since is not None and time.monotonic() - since >= hold:
                return counts["healthy"]
            await asyncio.sleep(0.1)
        raise BenchError(
            f"the fleet did not become healthy within {within:g} s, the last counts were {counts}"
        )

    async def await_api_change(self) -> float:
        """Wait until the API counts agents that are not healthy; return when it did, by time.monotonic."""
        while not_healthy(await self.counts()) == 0:  # noqa: ASYNC110 - polling is what is measured
            await asyncio.sleep(_POLL)
        return time.monotonic()

    async def await_socket_change(self, socket: aiohttp.ClientWebSocketResponse) -> float:
        """Wait for the delta that makes agents not healthy; return when it came, by time.monotonic."""
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                event = json.loads(message.data)
                if event["type"] == "delta" and not_healthy(event["counts"]) > 0:
                    return time.monotonic()
        raise BenchError(f"the console closed the socket ({socket.close_code})")

    async def await_live_states(self, socket: aiohttp.ClientWebSocketResponse, agents: int) -> float:
        """Wait until the socket has shown a state from evidence for every agent; return when, by time.monotonic."""
        states = bytearray()
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                states = bytearray(message.data)
            elif message.type is aiohttp.WSMsgType.TEXT:
                event = json.loads(message.data)
                changes = event["changes"] if event["type"] == "delta" else []
                if event["type"] == "layout" or any(index >= len(states) for index, *_ in changes):
                    await socket.send_json({"type": "resync"})
                    continue
                for index, state, *_ in changes:
                    states[index] = state
            if sum(state not in {State.UNKNOWN, State.NEVER} for state in states) >= agents:
                return time.monotonic()
        raise BenchError(f"the console closed the socket ({socket.close_code})")

    async def sign_in(self) -> None:
        """Sign in through the login form. Raises BenchError."""
        page = f"{self._demo.url}/accounts/login/"
        async with self._session.get(page) as answer:
            cookie = answer.cookies.get("csrftoken")
        form = {
            "login": self._demo.username,
            "password": self._demo.password,
            "csrfmiddlewaretoken": cookie.value if cookie else "",
        }
        async with self._session.post(
            page, data=form, headers={"Referer": page}, allow_redirects=False
        ) as answer:
            if answer.status != 302:
                raise BenchError(f"signing in as {self._demo.username} was answered {answer.status}")

    @contextlib.asynccontextmanager
    async def socket(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open the WebSocket of the fleet page."""
        address = f"{self._demo.url.replace('http', 'ws', 1)}/ws/fleet/"
        async with self._session.ws_connect(address, origin=self._demo.url) as socket:
            yield socket
