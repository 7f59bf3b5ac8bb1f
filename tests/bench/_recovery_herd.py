"""The part of the bench `recovery` that is about many agents at once: real ones, or plain gRPC clients.

Agents are the programs that run everywhere, with their tunnels to a real proxy. The auths note when they answer the
first heartbeat of each, of agents and of the clients that they are compared with alike.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from fleet.processes import valkey
from tests.bench._recovery_failover import AuthsSetup, ChildProcess, run_auths, run_child
from tests.bench.measure import BenchError

#: For all agents to connect, and for all to move, seconds.
_CONNECT_TIMEOUT, _MOVE_TIMEOUT = 600.0, 60.0
_CHECK_INTERVAL = 0.25
#: The auths of the bench write no heartbeats of proxies.
_NO_AUTH = ("--heartbeat-to", "backend")
#: How real agents wait before they connect to another auth.
AGENT_WAITS: Mapping[str, Sequence[str]] = {"agents": (), "upstream": ("--upstream-reconnect-wait",)}


@dataclass(frozen=True, slots=True)
class Herd:
    """Figures of many agents whose auth became unhealthy."""

    #: Seconds from the flip until another auth answered a heartbeat, of those that got away.
    seconds: Sequence[float]
    lost_agents: int
    #: Connections that an auth answered, and all connections to the balancer, also those that failed; per agent.
    connects: float
    dials: float
    #: CPU seconds of the agents, the auths and the balancer.
    cpu: Mapping[str, float]


async def measure_herd(agents: int, processes: int, kind: str, auths: int = 3) -> Herd:
    """Connect many agents to one auth, then make it unhealthy; the balancer detects it by its own checks.

    `kind`: of `AGENT_WAITS`, or plain clients, `bare` or `floor`.
    """
    async with AsyncExitStack() as stack:
        setup = await stack.enter_async_context(run_auths(auths))
        await setup.keep_in_rotation(0)
        start = _run_agents if kind in AGENT_WAITS else _run_clients
        clients = await stack.enter_async_context(start(setup, agents // processes, processes, kind))
        await _await_all_settled(setup, agents)
        await setup.keep_in_rotation(*range(auths))
        requests_before = (await setup.auths.request("asked"))["asked"]
        dials_before = await _count_dials(setup)
        parts = {"agents": clients, "auths": [setup.auths], "balancer": [setup.balancer]}
        before = {name: sum(child_process.cpu() for child_process in part) for name, part in parts.items()}
        if kind not in AGENT_WAITS:
            await asyncio.gather(*(client.request("auth-0") for client in clients))
        at = float((await setup.auths.request("flip 0"))["at"])
        moments = await _await_answers(setup, agents)
        spent = {
            name: sum(child_process.cpu() for child_process in part) - before[name]
            for name, part in parts.items()
        }
        connects = ((await setup.auths.request("asked"))["asked"] - requests_before) / agents
        dials = (await _count_dials(setup) - dials_before) / agents
        return Herd([moment - at for moment in moments], agents - len(moments), connects, dials, spent)


async def _await_all_settled(setup: AuthsSetup, agents: int) -> None:
    """Wait until every agent has sent a heartbeat with a tunnel to the first auth. Raises BenchError."""
    deadline = time.monotonic() + _CONNECT_TIMEOUT
    while (count := (await setup.auths.request("settled 0"))["settled"]) < agents:
        if time.monotonic() > deadline:
            raise BenchError(f"{count} of {agents} agents connected within {_CONNECT_TIMEOUT:g} s")
        await asyncio.sleep(_CHECK_INTERVAL)


async def _await_answers(setup: AuthsSetup, agents: int) -> list[float]:
    """Return the moments when other auths first answered each agent, of those that were answered in time."""
    deadline = time.monotonic() + _MOVE_TIMEOUT
    while True:
        moments: list[float] = (await setup.auths.request("answered 0"))["answered"]
        if len(moments) == agents or time.monotonic() > deadline:
            return moments
        await asyncio.sleep(_CHECK_INTERVAL)


async def _count_dials(setup: AuthsSetup) -> float:
    """Return how many connections the balancer accepted, also those that no target took."""
    url = f"http://{setup.balancer.first['diag']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        text = await response.text()
    names = {"refloat_balancer_connections_total", "refloat_balancer_refused_connections_total"}
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in names
    )


@asynccontextmanager
async def _run_agents(
    setup: AuthsSetup, share: int, processes: int, kind: str
) -> AsyncIterator[list[ChildProcess]]:
    """Run processes of real agents, each agent with a tunnel to a proxy."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        backend = valkey.start(Path(folder), persist=False)
        try:
            async with AsyncExitStack() as stack:
                proxy = await stack.enter_async_context(
                    run_child(
                        "fleet.nodes", "proxy", "--name", "proxy-1", "--backend", backend.url, *_NO_AUTH
                    )
                )
                flags = ["--auth", setup.address, "--proxy", str(proxy.first["grpc"])]
                flags += ["--count", str(share), "--connections", "1", *AGENT_WAITS[kind]]
                yield [
                    await stack.enter_async_context(
                        run_child("fleet.nodes", "agent", *flags, "--first", str(1 + number * share))
                    )
                    for number in range(processes)
                ]
        finally:
            backend.stop()


@asynccontextmanager
async def _run_clients(
    setup: AuthsSetup, share: int, processes: int, kind: str
) -> AsyncIterator[list[ChildProcess]]:
    """Run processes of plain gRPC clients."""
    async with AsyncExitStack() as stack:
        module = "tests.bench._recovery_clients"
        yield [
            await stack.enter_async_context(
                run_child(module, setup.address, str(share), kind, f"client-{number}")
            )
            for number in range(processes)
        ]
