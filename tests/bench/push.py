"""Live updates to 200 browsers: ms from publication to each, beside a bare hub; memory with sockets that never read.

Both servers are uvicorn with the same flags, on the same Valkey, and have their turns with the same clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from fleet.processes import children
from fleet.processes.valkey import find_free_port
from tests.bench import _push_peer
from tests.bench._push_browsers import Latencies, open_browsers, open_deaf_socket
from tests.bench.measure import BenchError, Figure, Outcome, Target, percentile, sleep_for

_ROOT = Path(__file__).resolve().parents[2]
_BROWSERS, _AGENTS = 200, 2_000
_UPDATES_PER_SECOND = 5
#: Agents in an update: about 2 KB.
_CHANGES = 85
_TURN_SECONDS, _TURNS = 20, 3
#: Sockets that never read; seconds in which memory is measured: they are ended after 30 s without reading.
_DEAF_SOCKETS, _DEAF_SECONDS = 50, 120
#: Seconds after the sockets opened until memory counts: the process loads what it needs for a snapshot.
_WARM_UP_SECONDS = 10
_TARGETS = (
    Target("p95_of_the_bare_hub", at_most=2),
    Target("lost_updates", at_most=0),
    Target("deaf_sockets_growth_mb", at_most=8),
    Target("deaf_sockets_open", at_most=0),
)


@dataclass
class _Turn:
    """What one turn of one server measured."""

    latencies: Latencies = field(default_factory=Latencies)
    updates: int = 0
    browsers: int = 0
    cpu_seconds: float = 0.0

    @property
    def lost_updates(self) -> int:
        """Updates that a browser did not get as such; those in a snapshot that it got instead included."""
        return self.updates * self.browsers - len(self.latencies.milliseconds)


def run(*, quick: bool) -> Outcome:
    """Measure; `--quick` with 20 browsers and short turns."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder, ExitStack() as stack:
        _set_up_django(folder)
        from tests.flow.web import web_console

        home = Path(folder) / "console"
        home.mkdir()
        console = stack.enter_context(web_console(home))
        peer_url, peer_pid = stack.enter_context(_start_peer(console, Path(folder)))
        bench = _Bench(console, peer_url, psutil.Process(peer_pid), quick=quick)
        return asyncio.run(bench.measure())


def _set_up_django(home: str) -> None:
    os.environ |= {
        "REFLOAT_HOME": home,
        "DATABASE_URL": "",
        "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
    }
    import django

    django.setup()


@contextmanager
def _start_peer(console: Any, folder: Path) -> Iterator[tuple[str, int]]:
    """Start the bare hub with the flags of the console; yield its address and process id."""
    port = find_free_port()
    argv = (
        *(sys.executable, "-m", "uvicorn", "tests.bench._push_peer:application"),
        *("--host", "127.0.0.1", "--port", str(port), "--log-level", "warning", "--no-access-log"),
        *("--ws-per-message-deflate", "false"),
    )
    env = {**os.environ, _push_peer.REDIS_URL_VARIABLE: console.server.url}
    with (folder / "peer.log").open("wb") as log:
        process = children.spawn(argv, env=env, cwd=str(_ROOT), log=log)
    try:
        yield f"ws://127.0.0.1:{port}/", process.pid
    finally:
        children.stop([process])


def _find_web_process(port: int) -> psutil.Process:
    """Return the web process of the console. Raises BenchError."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "dashboards.config.asgi:application" in process.cmdline() and str(port) in process.cmdline():
                return process
    raise BenchError("the web process of the console was not found")


def _cpu_of(process: psutil.Process) -> float:
    cpu_times = process.cpu_times()
    return float(cpu_times.user + cpu_times.system)


def _create_sessions(console: Any, count: int) -> list[dict[str, str]]:
    """Sign the admin in `count` times; return the headers of each session."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User
    from django.contrib.sessions.backends.db import SessionStore

    from tests.flow.web import USERNAME, database

    headers = []
    with database(console.home):
        user = User.objects.get(username=USERNAME)
        for _ in range(count):
            session = SessionStore()
            session[SESSION_KEY] = str(user.pk)
            session[BACKEND_SESSION_KEY] = "allauth.account.auth_backends.AuthenticationBackend"
            session[HASH_SESSION_KEY] = user.get_session_auth_hash()
            session.save()
            headers.append({"Cookie": f"sessionid={session.session_key}"})
    return headers


class _Fleet:
    """The record, and rounds that change it: what workers do, with the same writer and the same publication."""

    def __init__(self, console: Any) -> None:
        from fleet.vocabulary.verdicts import State
        from tests.fakes.record import fill

        self._console = console
        self._writer = console.writer()
        self._layer = console.layer()
        self._choices = [State.HEALTHY, State.STRANDED]
        self._states = [State.HEALTHY] * _AGENTS
        self._random = random.Random(1)
        self.epoch = fill(self._writer, self._states, as_of=time.time())
        self.seq = self._writer.load("default").header.seq

    async def publish_update(self, latencies: Latencies) -> None:
        """Conclude a round that changes some agents, and publish it, as workers do."""
        from fleet.monitoring.events import AgentDelta, StateDelta
        from fleet.monitoring.publish import publish
        from fleet.vocabulary.verdicts import State
        from tests.fakes.record import conclude

        indices = sorted(self._random.sample(range(_AGENTS), _CHANGES))
        for index in indices:
            self._states[index] = self._choices[self._states[index] is State.HEALTHY]
        as_of = time.time()
        if not await asyncio.to_thread(conclude, self._writer, self._states, as_of=as_of):
            raise BenchError("the record has another writer")
        self.seq += 1
        delta = StateDelta(
            cluster="default",
            epoch=self.epoch,
            seq=self.seq,
            as_of=as_of,
            changes=tuple(AgentDelta(index, self._states[index], 2 + index % 2, 0, 0) for index in indices),
            counts={state: self._states.count(state) for state in State},
        )
        latencies.published_at[self.seq] = time.perf_counter()
        await publish(self._layer, "default", [delta])

    async def close(self) -> None:
        """Close the connection of the channel layer."""
        await self._layer.flush()


class _Bench:
    """The console, the bare hub, and browsers for both."""

    def __init__(self, console: Any, peer_url: str, peer: psutil.Process, *, quick: bool) -> None:
        self._console = console
        self._peer_url = peer_url
        self._peer = peer
        self._quick = quick
        self._browsers = _BROWSERS // 10 if quick else _BROWSERS
        self._web = _find_web_process(int(console.url.rpartition(":")[2]))
        self._sessions = _create_sessions(console, self._browsers)

    async def measure(self) -> Outcome:
        """Return the figures of all turns, and of the sockets that never read."""
        fleet = _Fleet(self._console)
        console_turns: list[_Turn] = []
        peer_turns: list[_Turn] = []
        try:
            # A first turn that does not count: both servers load what they need.
            for seconds, turns in [
                (2, 0),
                *[(1, 1) if self._quick else (_TURN_SECONDS, 1)] * (1 if self._quick else _TURNS),
            ]:
                console_turn = await self._run_console_turn(fleet, seconds)
                peer_turn = await self._run_peer_turn(seconds)
                console_turns += [console_turn] * turns
                peer_turns += [peer_turn] * turns
            deaf_figures = await self._measure_deaf_sockets(fleet)
        finally:
            await fleet.close()
        figures = _figures_of(console_turns)
        peers = {f"bare_hub_{name}": value for name, value in _figures_of(peer_turns).items()}
        figures["p95_of_the_bare_hub"] = round(float(figures["p95_ms"]) / float(peers["bare_hub_p95_ms"]), 2)
        figures |= deaf_figures
        return Outcome(figures, () if self._quick else _TARGETS, peers)

    async def _run_console_turn(self, fleet: _Fleet, seconds: float) -> _Turn:
        return await self._run_turn(
            self._console.socket,
            self._sessions,
            self._web,
            seconds,
            fleet.publish_update,
            origin=self._console.url,
        )

    async def _run_peer_turn(self, seconds: float) -> _Turn:
        from redis.asyncio import Redis

        redis = Redis.from_url(self._console.server.url)
        changes = [[1_000 + index, 9, 2, 0, 0] for index in range(_CHANGES)]
        counts = {f"state_{number}": 1_000 for number in range(10)}
        seq = 0

        async def publish_update(latencies: Latencies) -> None:
            nonlocal seq
            seq += 1
            text = json.dumps(
                {
                    "type": "delta",
                    "epoch": "e",
                    "seq": seq,
                    "age_ms": 0,
                    "changes": changes,
                    "counts": counts,
                },
                separators=(",", ":"),
            )
            latencies.published_at[seq] = time.perf_counter()
            await redis.publish(_push_peer.CHANNEL, text)

        try:
            return await self._run_turn(
                self._peer_url,
                [{} for _ in range(self._browsers)],
                self._peer,
                seconds,
                publish_update,
                origin=None,
            )
        finally:
            await redis.aclose()

    async def _run_turn(
        self,
        url: str,
        headers: Sequence[Mapping[str, str]],
        process: psutil.Process,
        seconds: float,
        publish_update: Callable[[Latencies], Awaitable[None]],
        *,
        origin: str | None,
    ) -> _Turn:
        turn = _Turn(browsers=len(headers))
        async with open_browsers(url, headers, turn.latencies, origin=origin):
            await asyncio.to_thread(sleep_for, 1)
            # The record may have become stale: the first update then makes browsers start over.
            await publish_update(Latencies())
            await asyncio.to_thread(sleep_for, 1)
            cpu_before = _cpu_of(process)
            async for _ in _ticks(seconds):
                await publish_update(turn.latencies)
                turn.updates += 1
            await asyncio.to_thread(sleep_for, 1)
            turn.cpu_seconds = _cpu_of(process) - cpu_before
        return turn

    async def _measure_deaf_sockets(self, fleet: _Fleet) -> dict[str, Figure]:
        """Open sockets that never read beside a tenth of the browsers, and watch the memory of the web process."""
        turn = _Turn(browsers=self._browsers // 10)
        headers = [
            {**self._sessions[n % len(self._sessions)], "Origin": self._console.url}
            for n in range(_DEAF_SOCKETS)
        ]
        seconds = 4 if self._quick else _DEAF_SECONDS
        resident_mb: list[float] = []
        async with open_browsers(
            self._console.socket, self._sessions[: turn.browsers], turn.latencies, origin=self._console.url
        ):
            deaf_sockets = [
                await asyncio.to_thread(open_deaf_socket, self._console.socket, fields) for fields in headers
            ]
            try:
                async for number in _ticks(seconds):
                    await fleet.publish_update(turn.latencies)
                    turn.updates += 1
                    if number % _UPDATES_PER_SECOND == 0:
                        resident_mb.append(self._web.memory_info().rss / 1e6)
                await asyncio.to_thread(sleep_for, 1)
                # Only connections of browsers that read are left.
                established = sum(
                    connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port == self._web_port
                    for connection in self._web.net_connections("tcp")
                )
            finally:
                for link in deaf_sockets:
                    link.close()
        warm_mb = resident_mb[min(_WARM_UP_SECONDS, len(resident_mb) // 2) :]
        return {
            "deaf_sockets_first_mb": round(warm_mb[0], 1),
            "deaf_sockets_growth_mb": round(max(warm_mb) - warm_mb[0], 1),
            "deaf_sockets_open": established - turn.browsers,
            "deaf_sockets_others_p95_ms": round(percentile(turn.latencies.milliseconds, 0.95), 1),
        }

    @property
    def _web_port(self) -> int:
        return int(self._console.url.rpartition(":")[2])


async def _ticks(seconds: float) -> AsyncIterator[int]:
    """Yield numbers, evenly, for so many seconds."""
    start = time.perf_counter()
    for number in range(round(seconds * _UPDATES_PER_SECOND)):
        yield number
        seconds_left = start + (number + 1) / _UPDATES_PER_SECOND - time.perf_counter()
        await asyncio.to_thread(sleep_for, max(0.0, seconds_left))


def _figures_of(turns: Sequence[_Turn]) -> dict[str, Figure]:
    """Return the medians of the turns."""
    return {
        "p50_ms": round(statistics.median(percentile(turn.latencies.milliseconds, 0.5) for turn in turns), 1),
        "p95_ms": round(
            statistics.median(percentile(turn.latencies.milliseconds, 0.95) for turn in turns), 1
        ),
        "cpu_us_per_delivery": round(
            statistics.median(1e6 * turn.cpu_seconds / len(turn.latencies.milliseconds) for turn in turns), 1
        ),
        "lost_updates": sum(turn.lost_updates for turn in turns),
    }
