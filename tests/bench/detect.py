"""Seconds from a frozen proxy to the API's count and to the browser's socket, p50 and p95, in the real demo.

REFLOAT_BENCH_HOME names the folder of a demo that runs already; without it the bench starts one.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Coroutine

import aiohttp

from tests.bench import _demo
from tests.bench.measure import Outcome, Target, percentile

_PROXY = "proxy-1"
#: "Within two seconds", as a 95th percentile.
_LIMIT = 2.0
#: A change that takes longer counts as not detected.
_TIMEOUT = 30.0


def run(*, quick: bool) -> Outcome:
    """Freeze and thaw a proxy again and again, at moments that have nothing to do with the rounds."""
    flags = _demo.QUICK_FLAGS if quick else ()
    with _demo.running_demo(*flags) as demo:
        return asyncio.run(_measure(demo, rounds=1 if quick else 10))


async def _measure(demo: _demo.Demo, rounds: int) -> Outcome:
    api: list[float] = []
    socket: list[float] = []
    thawed: list[float] = []
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        watch = _demo.DemoClient(demo, session)
        agents = await watch.await_healthy(within=_demo.START_TIMEOUT)
        await watch.sign_in()
        pid = await asyncio.to_thread(demo.pid_of, _PROXY)
        for number in range(rounds):
            await asyncio.sleep(random.uniform(0, 2))
            first, second = await _freeze(watch, pid)
            api.append(first)
            socket.append(second)
            start = time.monotonic()
            await watch.await_healthy(agents=agents, hold=2.0)
            thawed.append(time.monotonic() - start - 2.0)
            print(
                f"round {number + 1}: API {first:.2f} s, socket {second:.2f} s, healthy again {thawed[-1]:.1f} s"
            )
    figures = {
        "agents": agents,
        "rounds": rounds,
        **{f"{name}_p50_s": percentile(delays, 0.5) for name, delays in (("api", api), ("socket", socket))},
        **{f"{name}_p95_s": percentile(delays, 0.95) for name, delays in (("api", api), ("socket", socket))},
        "healthy_again_p50_s": percentile(thawed, 0.5),
    }
    return Outcome(figures, [Target("api_p95_s", at_most=_LIMIT), Target("socket_p95_s", at_most=_LIMIT)])


async def _freeze(watch: _demo.DemoClient, pid: int) -> tuple[float, float]:
    """Freeze and resume the proxy's process; return the seconds until the API and the socket showed it."""
    async with watch.socket() as socket:
        start = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        try:
            return await asyncio.gather(
                _rise_delay(watch.await_api_change(), start),
                _rise_delay(watch.await_socket_change(socket), start),
            )
        finally:
            os.kill(pid, signal.SIGCONT)


async def _rise_delay(change: Coroutine[None, None, float], start: float) -> float:
    """Return the seconds until the change was seen; `_TIMEOUT` when it was not."""
    try:
        return await asyncio.wait_for(change, _TIMEOUT) - start
    except TimeoutError:
        return _TIMEOUT
