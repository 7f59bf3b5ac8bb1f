"""The parts of the bench `recovery` that are about auths: one client against a bare one, and a thousand at once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import grpc.aio
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.transport import channels
from fleet.transport.pick_healthy.channel_factory import open_channel
from tests.bench._recovery_auths import WHO
from tests.bench.measure import BenchError
from tests.meta.house import ROOT

#: The balancer asks `/readyz` this often, seconds: nodes' default.
_CHECK_EVERY = 0.5
_WITHIN = 60.0
#: Between two RPCs of a client that asks all the time, seconds.
_PAUSE = 0.001


class Child:
    """A process of ours that answers lines with lines."""

    def __init__(self, process: asyncio.subprocess.Process, first: dict[str, Any]) -> None:
        self._process = process
        self.first = first

    def cpu(self) -> float:
        """CPU seconds it took so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    async def ask(self, line: str) -> dict[str, Any]:
        """Send a line and read the answer."""
        assert self._process.stdin is not None, "it was started with a pipe"
        self._process.stdin.write(f"{line}\n".encode())
        return await self.hear()

    async def hear(self) -> dict[str, Any]:
        """Read a line."""
        return await _answer(self._process)


async def _answer(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None, "it was started with a pipe"
    line = await asyncio.wait_for(process.stdout.readline(), _WITHIN)
    if not line:
        raise BenchError(f"a process of the bench ended with {await process.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


@asynccontextmanager
async def child(*words: str) -> AsyncIterator[Child]:
    """Run `python -m WORDS` until the block ends."""
    pipe = asyncio.subprocess.PIPE
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *words,
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
        env=env,
        limit=2**22,
    )
    try:
        yield Child(process, await _answer(process))
    finally:
        process.terminate()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Ground:
    """Auths, and the load balancer before them."""

    auths: Child
    balancer: Child
    count: int

    @property
    def address(self) -> str:
        """Where the balancer listens."""
        return str(self.balancer.first["listen"])

    async def only(self, *numbers: int) -> None:
        """Leave these in rotation and take the others out."""
        await self.auths.ask("heal")
        for number in set(range(self.count)) - set(numbers):
            await self.auths.ask(f"out {number}")
        await self.rotation(set(numbers))

    async def rotation(self, numbers: set[int]) -> None:
        """Wait until the balancer knows it."""
        wanted = {f"auth-{number}" for number in numbers}
        async with asyncio.timeout(_WITHIN), aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"http://{self.balancer.first['diag']}/targets") as response:
                    targets = (await response.json())["targets"]
                if {target["name"] for target in targets if target["ready"]} == wanted:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def ground(count: int, check_every: float = _CHECK_EVERY) -> AsyncIterator[Ground]:
    """Auths in a process, the real balancer in another."""
    async with child("tests.bench._recovery_auths", str(count)) as auths:
        flags = [
            f"--target=auth-{number}={auth['grpc']},{auth['diag']}"
            for number, auth in enumerate(auths.first["auths"])
        ]
        interval = f"--interval={check_every}"
        async with child("fleet.nodes", "balancer", interval, *flags) as balancer:
            yield Ground(auths, balancer, count)


async def pick_healthy_once(there: Ground) -> float:
    """Seconds from the flip to an answer of the other auth, through the whole policy, first wait 0."""
    host, _, port = there.address.rpartition(":")
    await there.only(0)
    async with open_channel([(host, int(port))], settings=BalancerSettings(first_wait=0.0)) as channel:
        channel.connect()
        await channel.config_response_event.wait()
        await channel.channel_ready()
        await _other_in_rotation(there)
        return await _flip_and_ask(there, lambda: channel)


async def bare_once(there: Ground) -> float:
    """The same of two channels and a health watch, as anybody would write it: no policy to ask for, no health of the
    second one."""
    await there.only(0)
    async with channels.open_channel(there.address) as first, channels.open_channel(there.address) as second:
        await first.channel_ready()
        watch = health_pb2_grpc.HealthStub(first).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await _other_in_rotation(there)
        picked = [first]

        async def move() -> None:
            while (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING:
                pass
            await second.channel_ready()
            picked[0] = second

        moving = asyncio.create_task(move())
        seconds = await _flip_and_ask(there, lambda: picked[0])
        await moving
        return seconds


async def _flip_and_ask(there: Ground, pick: Callable[[], grpc.aio.Channel]) -> float:
    """Let the first auth fall sick, and ask without end who answers, until it is the other."""
    flipping = asyncio.create_task(there.auths.ask("flip 0"))
    while True:
        answer = await pick().unary_unary(WHO)(b"")
        answered = time.monotonic()
        if answer == b"auth-1":
            return answered - float((await flipping)["at"])
        await asyncio.sleep(_PAUSE)


async def _other_in_rotation(there: Ground) -> None:
    """The balancer sends new connections to the other auth before the flip: how late it looks is not the client's."""
    await there.only(1)


@dataclass(frozen=True, slots=True)
class Herd:
    """What became of many agents whose auth fell sick."""

    #: Seconds from the flip, of those that got away.
    seconds: Sequence[float]
    lost: int
    connects: float
    #: CPU seconds of the agents, the auths and the balancer.
    cpu: Mapping[str, float]


async def herd(agents: int, processes: int, first_wait: str, auths: int = 3) -> Herd:
    """Let many agents hold connections to one auth, then let it fall sick; the balancer finds out by itself."""
    async with ground(auths) as there:
        await there.only(0)
        share = str(agents // processes)
        words = ("tests.bench._recovery_clients", there.address, share, first_wait)
        async with _children(processes, *words) as clients:
            await there.only(*range(auths))
            asked = (await there.auths.ask("asked"))["asked"]
            parts = {"agents": clients, "auths": [there.auths], "balancer": [there.balancer]}
            before = {name: sum(one.cpu() for one in part) for name, part in parts.items()}
            await asyncio.gather(*(client.ask("auth-0") for client in clients))
            at = float((await there.auths.ask("flip 0"))["at"])
            answers = await asyncio.gather(*(client.hear() for client in clients))
            seconds = [when - at for answer in answers for when in answer["answered"]]
            connects = ((await there.auths.ask("asked"))["asked"] - asked) / agents
            spent = {name: sum(one.cpu() for one in part) - before[name] for name, part in parts.items()}
            return Herd(seconds, agents - len(seconds), connects, spent)


@asynccontextmanager
async def _children(count: int, *words: str) -> AsyncIterator[list[Child]]:
    async with child(*words) as one:
        if count == 1:
            yield [one]
            return
        async with _children(count - 1, *words) as others:
            yield [one, *others]
