"""The parts of the bench `recovery` that are about auths: one client against a bare one, and a thousand at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
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
from tests.bench._recovery_auths import NAME_METHOD
from tests.bench.measure import BenchError
from tests.meta.house import ROOT

#: The balancer asks `/readyz` this often, seconds: nodes' default.
_CHECK_EVERY = 0.5
_WITHIN = 60.0
#: Between two RPCs of a client that asks all the time, seconds.
_PAUSE = 0.001


class ChildProcess:
    """A process that responds to each line on stdin with a line on stdout."""

    def __init__(self, process: asyncio.subprocess.Process, first: dict[str, Any]) -> None:
        self._process = process
        self.first = first

    def cpu(self) -> float:
        """Return the CPU seconds used so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    async def request(self, line: str) -> dict[str, Any]:
        """Send a line and read the answer."""
        assert self._process.stdin is not None, "it was started with a pipe"
        self._process.stdin.write(f"{line}\n".encode())
        return await self.read_answer()

    async def read_answer(self) -> dict[str, Any]:
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
async def run_child(*args: str) -> AsyncIterator[ChildProcess]:
    """Run `python -m WORDS` until the block ends."""
    pipe = asyncio.subprocess.PIPE
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *args, stdin=pipe, stdout=pipe, stderr=errors, env=env, limit=2**22
        )
        try:
            yield ChildProcess(process, await _answer(process))
        except BenchError as error:
            errors.seek(0)
            raise BenchError(f"{error}: {errors.read()[-2000:].decode(errors='replace')}") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


@dataclass(frozen=True, slots=True)
class AuthsSetup:
    """Auths, and the load balancer before them."""

    auths: ChildProcess
    balancer: ChildProcess
    count: int

    @property
    def address(self) -> str:
        """Where the balancer listens."""
        return str(self.balancer.first["listen"])

    async def keep_in_rotation(self, *numbers: int) -> None:
        """Keep these auths in rotation and take the others out."""
        await self.auths.request("heal")
        for number in set(range(self.count)) - set(numbers):
            await self.auths.request(f"out {number}")
        await self.await_rotation(set(numbers))

    async def await_rotation(self, numbers: set[int]) -> None:
        """Wait until the balancer has exactly these auths in rotation."""
        expected = {f"auth-{number}" for number in numbers}
        async with asyncio.timeout(_WITHIN), aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"http://{self.balancer.first['diag']}/targets") as response:
                    targets = (await response.json())["targets"]
                if {target["name"] for target in targets if target["ready"]} == expected:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def run_auths(count: int, check_every: float = _CHECK_EVERY) -> AsyncIterator[AuthsSetup]:
    """Auths in a process, the real balancer in another."""
    async with run_child("tests.bench._recovery_auths", str(count)) as auths:
        flags = [
            f"--target=auth-{number}={auth['grpc']},{auth['diag']}"
            for number, auth in enumerate(auths.first["auths"])
        ]
        interval = f"--interval={check_every}"
        async with run_child("fleet.nodes", "balancer", interval, *flags) as balancer:
            yield AuthsSetup(auths, balancer, count)


async def measure_pick_healthy(setup: AuthsSetup) -> float:
    """Return the seconds from the flip to a response of the other auth, with the whole policy and first wait 0."""
    host, _, port = setup.address.rpartition(":")
    await setup.keep_in_rotation(0)
    async with open_channel([(host, int(port))], settings=BalancerSettings(first_wait=0.0)) as channel:
        channel.connect()
        await channel.config_response_event.wait()
        await channel.channel_ready()
        await _rotate_to_other(setup)
        return await _measure_failover(setup, lambda: channel)


async def measure_bare(setup: AuthsSetup) -> float:
    """Return the same for two channels and a health watch: no service config, no health check of the second auth."""
    await setup.keep_in_rotation(0)
    async with channels.open_channel(setup.address) as first, channels.open_channel(setup.address) as second:
        await first.channel_ready()
        watch = health_pb2_grpc.HealthStub(first).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await _rotate_to_other(setup)
        current = [first]

        async def move() -> None:
            while (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING:
                pass
            await second.channel_ready()
            current[0] = second

        move_task = asyncio.create_task(move())
        seconds = await _measure_failover(setup, lambda: current[0])
        await move_task
        return seconds


async def _measure_failover(setup: AuthsSetup, pick: Callable[[], grpc.aio.Channel]) -> float:
    """Make the first auth unhealthy and send RPCs until the other auth responds."""
    flipping = asyncio.create_task(setup.auths.request("flip 0"))
    while True:
        answer = await pick().unary_unary(NAME_METHOD)(b"")
        moment = time.monotonic()
        if answer == b"auth-1":
            return moment - float((await flipping)["at"])
        await asyncio.sleep(_PAUSE)


async def _rotate_to_other(setup: AuthsSetup) -> None:
    """Send new connections to the other auth before the flip: the balancer's delay is not the client's."""
    await setup.keep_in_rotation(1)
