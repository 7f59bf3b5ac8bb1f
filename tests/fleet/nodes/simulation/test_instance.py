from __future__ import annotations

import time
from collections.abc import AsyncIterator
from random import Random

import aiohttp
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.nodes.simulation.fault_script import parse_fault
from fleet.nodes.simulation.fleet import SimulatedFleet, SimulationShape
from fleet.nodes.simulation.instance import SimulatedInstance
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.local_advice import local_advice

_OWN = [("grpc.use_local_subchannel_pool", 1)]


class _Proxy:
    """One simulated proxy on real ports, and callers of it."""

    def __init__(self) -> None:
        self.fleet = SimulatedFleet(SimulationShape(agents=50, proxies=2), Random(3), time.time())
        advice = local_advice(self.fleet)
        self.served = SimulatedInstance(self.fleet, self.fleet.proxies[0], {}, time.time, advice)

    async def do(self, text: str) -> None:
        self.fleet.apply(parse_fault(text), time.time())
        await self.served.apply_state()

    async def health(self, within: float = 5.0) -> int:
        async with grpc.aio.insecure_channel(self.served.addresses[0], options=_OWN) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=within)
            return int(answer.status)

    async def tunnels(self, within: float = 5.0) -> fleet_pb2.ListTunnelsResponse:
        async with grpc.aio.insecure_channel(self.served.addresses[0], options=_OWN) as channel:
            stub = fleet_pb2_grpc.TunnelFeedStub(channel)
            answer: fleet_pb2.ListTunnelsResponse = await stub.ListTunnels(
                fleet_pb2.ListTunnelsRequest(), timeout=within
            )
            return answer

    async def readyz(self, within: float = 5.0, path: str = "/readyz") -> int:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=within)) as session,
            session.get(f"http://{self.served.addresses[1]}{path}") as answer,
        ):
            return answer.status


@pytest.fixture
async def proxy() -> AsyncIterator[_Proxy]:
    made = _Proxy()
    await made.served.apply_state()
    yield made
    await made.served.stop()


async def test_instance_fine_serves(proxy: _Proxy) -> None:
    """SERVING, 200, its tunnels; other paths are not found."""
    assert await proxy.health() == health_pb2.HealthCheckResponse.SERVING
    assert await proxy.readyz() == 200
    assert await proxy.readyz(path="/healthz") == 200
    assert await proxy.readyz(path="/nothing") == 404
    answer = await proxy.tunnels()
    assert answer.full
    assert len(answer.tunnels) == 50
    assert answer.proxy_id == proxy.fleet.proxies[0].id


async def test_instance_unhealthy_says_so_and_still_answers(proxy: _Proxy) -> None:
    """NOT_SERVING and 503, but its tunnels are reported."""
    await proxy.do("unhealthy proxy-1")
    assert await proxy.health() == health_pb2.HealthCheckResponse.NOT_SERVING
    assert await proxy.readyz() == 503
    assert len((await proxy.tunnels()).tunnels) == 50
    await proxy.do("heal proxy-1")
    assert await proxy.health() == health_pb2.HealthCheckResponse.SERVING


async def test_instance_frozen_accepts_and_never_answers(proxy: _Proxy) -> None:
    """Callers meet their own deadline, over gRPC and over HTTP; thawed, it answers at the same address."""
    await proxy.do("freeze proxy-1")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await proxy.health(within=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    with pytest.raises(TimeoutError):
        await proxy.readyz(within=0.2)
    await proxy.do("resume proxy-1")
    assert await proxy.health() == health_pb2.HealthCheckResponse.SERVING
    assert await proxy.readyz() == 200


async def test_instance_killed_refuses_and_heals_at_its_address(proxy: _Proxy) -> None:
    """Refused at once; back at the same ports, as a new start with an epoch of its own."""
    addresses, before = proxy.served.addresses, await proxy.tunnels()
    await proxy.do("kill proxy-1")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await proxy.health()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(aiohttp.ClientConnectionError):
        await proxy.readyz()
    await proxy.do("heal proxy-1")
    assert proxy.served.addresses == addresses
    after = await proxy.tunnels()
    assert after.full
    assert after.epoch != before.epoch
    assert await proxy.readyz() == 200


async def test_instance_killed_while_frozen_heals(proxy: _Proxy) -> None:
    """The gate of the old start holds nobody back in the new one."""
    await proxy.do("freeze proxy-1")
    await proxy.do("kill proxy-1")
    await proxy.do("heal proxy-1")
    assert await proxy.health() == health_pb2.HealthCheckResponse.SERVING
