"""The part of the bench `recovery` that is about proxies: from one that stops heartbeating to tunnels elsewhere.

Real auths, proxies, balancer and agents in this process, and a real backend, from which one proxy is cut: it neither
heartbeats nor hears of others', and keeps every connection it has.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.nodes.agent.program import Agent
from fleet.nodes.balancer.rotation import parse_flag
from fleet.nodes.balancer.server import LoadBalancer
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.nodes.proxy.server import Proxy
from fleet.processes import valkey
from tests.bench.measure import BenchError
from tests.fakes.plane import Plane

TTL = 2.0
_PROXIES = 3
_CHECK_EVERY = 0.5
_TIMEOUT = 60.0
#: A tunnel is seen this late at most, seconds.
_LOOK_EVERY = 0.01


async def seconds_to_tunnels_elsewhere(rounds: int, agents: int) -> list[float]:
    """Of every agent of each round whose one tunnel was at the proxy that stopped."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        server = valkey.start(Path(folder), persist=False)
        try:
            seconds: list[float] = []
            for number in range(rounds):
                plane = Plane(server.url, f"bench{number}")
                try:
                    seconds += await _measure_round(plane, agents)
                finally:
                    await plane.close()
            return seconds
        finally:
            server.stop()


@dataclass(frozen=True, slots=True)
class _Fleet:
    victim: Proxy
    link: Forward
    agents: list[Agent]


async def _measure_round(plane: Plane, count: int) -> list[float]:
    async with _fleet(plane, count) as fleet:
        victims = [
            agent for agent in fleet.agents if agent.tunnels.proxy_ids == (fleet.victim.instance.flags.id,)
        ]
        await fleet.link.change(mode=ForwardMode.CUT)
        at = time.monotonic()
        return [
            moment - at
            for moment in await asyncio.gather(*(_await_other_proxy(agent, fleet) for agent in victims))
        ]


@asynccontextmanager
async def _fleet(plane: Plane, count: int) -> AsyncIterator[_Fleet]:
    link, url = await plane.backend_forward()
    auth = await plane.auth(ttl=600.0)
    victim = await plane.proxy("proxy-1", ttl=TTL, backend=url)
    other_proxies = [await plane.proxy(f"proxy-{number}", ttl=TTL) for number in range(2, _PROXIES + 1)]
    targets = [
        parse_flag(f"{instance.flags.name}={instance.grpc_address},{instance.diag_address}")
        for instance in (proxy.instance for proxy in (victim, *other_proxies))
    ]
    balancer = LoadBalancer("proxies", targets, _CHECK_EVERY)
    address = await balancer.start(("127.0.0.1", 0))
    try:
        # The flags' defaults: what an agent does is what is measured.
        group = await plane.agents(
            auth.instance.grpc_address, [address], count, redial_step=1.0, announce_ttl=20.0
        )
        await _until(
            lambda: all(
                agent.tunnels.proxy_ids and agent.snapshot().last_announce_ttl for agent in group.agents
            )
        )
        yield _Fleet(victim, link, list(group.agents))
        await plane.stop(group)
    finally:
        await balancer.stop()


async def _await_other_proxy(agent: Agent, fleet: _Fleet) -> float:
    own = fleet.victim.instance.flags.id
    await _until(lambda: any(proxy != own for proxy in agent.tunnels.proxy_ids))
    return time.monotonic()


async def _until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _TIMEOUT
    while not condition():
        if time.monotonic() > until:
            raise BenchError(f"agents had no tunnels within {_TIMEOUT:g} s")
        await asyncio.sleep(_LOOK_EVERY)
