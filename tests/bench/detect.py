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
#: What "within two seconds" means, and who may be later: one time in twenty.
_LIMIT = 2.0
#: Longer than this and nobody saw it.
_GIVE_UP = 30.0


def run(*, quick: bool) -> Outcome:
    """Freeze and thaw a proxy again and again, at moments that have nothing to do with the rounds."""
    with _demo.running() as demo:
        return asyncio.run(_measure(demo, rounds=3 if quick else 10))


async def _measure(demo: _demo.Demo, rounds: int) -> Outcome:
    api: list[float] = []
    socket: list[float] = []
    thawed: list[float] = []
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        watch = _demo.Watch(demo, session)
        agents = await watch.calm(within=_demo.START_TIMEOUT)
        await watch.sign_in()
        pid = await asyncio.to_thread(demo.pid_of, _PROXY)
        for number in range(rounds):
            await asyncio.sleep(random.uniform(0, 2))
            first, second = await _freeze(watch, pid)
            api.append(first)
            socket.append(second)
            began = time.monotonic()
            await watch.calm(agents=agents, hold=2.0)
            thawed.append(time.monotonic() - began - 2.0)
            print(
                f"round {number + 1}: API {first:.2f} s, socket {second:.2f} s, healthy again {thawed[-1]:.1f} s"
            )
    figures = {
        "agents": agents,
        "rounds": rounds,
        **{f"{name}_p50_s": percentile(seen, 0.5) for name, seen in (("api", api), ("socket", socket))},
        **{f"{name}_p95_s": percentile(seen, 0.95) for name, seen in (("api", api), ("socket", socket))},
        "healthy_again_p50_s": percentile(thawed, 0.5),
    }
    return Outcome(figures, [Target("api_p95_s", at_most=_LIMIT), Target("socket_p95_s", at_most=_LIMIT)])


async def _freeze(watch: _demo.Watch, pid: int) -> tuple[float, float]:
    """Stop the proxy's process, see it twice, and let it go on; seconds until the API and the socket showed it."""
    async with watch.socket() as socket:
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        try:
            return await asyncio.gather(
                _seen(watch.api_rise(), began), _seen(watch.socket_rise(socket), began)
            )
        finally:
            os.kill(pid, signal.SIGCONT)


async def _seen(rise: Coroutine[None, None, float], began: float) -> float:
    """Seconds until it was seen; `_GIVE_UP` when it was not."""
    try:
        return await asyncio.wait_for(rise, _GIVE_UP) - began
    except TimeoutError:
        return _GIVE_UP
