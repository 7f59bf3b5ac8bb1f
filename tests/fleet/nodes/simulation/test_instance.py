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

_CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]


class _SimulatedProxy:
    """One simulated proxy on real ports, and its clients."""

    def __init__(self) -> None:
        self.fleet = SimulatedFleet(SimulationShape(agents=50, proxies=2), Random(3), time.time())
        advice = local_advice(self.fleet)
        self.instance = SimulatedInstance(self.fleet, self.fleet.proxies[0], {}, time.time, advice)

    async def inject_fault(self, text: str) -> None:
        self.fleet.apply_fault(parse_fault(text), time.time())
        await self.instance.apply_state()

    async def read_health(self, within: float = 5.0) -> int:
        async with grpc.aio.insecure_channel(self.instance.addresses[0], options=_CHANNEL_OPTIONS) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=within)
            return int(response.status)

    async def list_tunnels(self, within: float = 5.0) -> fleet_pb2.ListTunnelsResponse:
        async with grpc.aio.insecure_channel(self.instance.addresses[0], options=_CHANNEL_OPTIONS) as channel:
            stub = fleet_pb2_grpc.TunnelFeedStub(channel)
            response: fleet_pb2.ListTunnelsResponse = await stub.ListTunnels(
                fleet_pb2.ListTunnelsRequest(), timeout=within
            )
            return response

    async def fetch_readyz(self, within: float = 5.0, path: str = "/readyz") -> int:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=within)) as session,
            session.get(f"http://{self.instance.addresses[1]}{path}") as response,
        ):
            return response.status


@pytest.fixture
async def proxy() -> AsyncIterator[_SimulatedProxy]:
    simulated_proxy = _SimulatedProxy()
    await simulated_proxy.instance.apply_state()
    yield simulated_proxy
    await simulated_proxy.instance.stop()


async def test_healthy_instance_serves_all_ports(proxy: _SimulatedProxy) -> None:
    """The health is SERVING, `/readyz` is 200, all tunnels are listed, and other paths are not found."""
    assert await proxy.read_health() == health_pb2.HealthCheckResponse.SERVING
    assert await proxy.fetch_readyz() == 200
    assert await proxy.fetch_readyz(path="/healthz") == 200
    assert await proxy.fetch_readyz(path="/nothing") == 404
    response = await proxy.list_tunnels()
    assert response.full
    assert len(response.tunnels) == 50
    assert response.proxy_id == proxy.fleet.proxies[0].id


async def test_unhealthy_instance_still_lists_its_tunnels(proxy: _SimulatedProxy) -> None:
    """The health is NOT_SERVING and `/readyz` is 503."""
    await proxy.inject_fault("unhealthy proxy-1")
    assert await proxy.read_health() == health_pb2.HealthCheckResponse.NOT_SERVING
    assert await proxy.fetch_readyz() == 503
    assert len((await proxy.list_tunnels()).tunnels) == 50
    await proxy.inject_fault("heal proxy-1")
    assert await proxy.read_health() == health_pb2.HealthCheckResponse.SERVING


async def test_frozen_instance_never_responds_until_resumed(proxy: _SimulatedProxy) -> None:
    """Callers reach their deadline over gRPC and HTTP; after the resume the same address responds."""
    await proxy.inject_fault("freeze proxy-1")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await proxy.read_health(within=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    with pytest.raises(TimeoutError):
        await proxy.fetch_readyz(within=0.2)
    await proxy.inject_fault("resume proxy-1")
    assert await proxy.read_health() == health_pb2.HealthCheckResponse.SERVING
    assert await proxy.fetch_readyz() == 200


async def test_healed_instance_has_its_old_address_and_a_new_epoch(proxy: _SimulatedProxy) -> None:
    """A killed instance refuses connections."""
    addresses, page_before = proxy.instance.addresses, await proxy.list_tunnels()
    await proxy.inject_fault("kill proxy-1")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await proxy.read_health()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(aiohttp.ClientConnectionError):
        await proxy.fetch_readyz()
    await proxy.inject_fault("heal proxy-1")
    assert proxy.instance.addresses == addresses
    page_after = await proxy.list_tunnels()
    assert page_after.full
    assert page_after.epoch != page_before.epoch
    assert await proxy.fetch_readyz() == 200


async def test_instance_killed_while_frozen_can_be_healed(proxy: _SimulatedProxy) -> None:
    """The new start is not frozen."""
    await proxy.inject_fault("freeze proxy-1")
    await proxy.inject_fault("kill proxy-1")
    await proxy.inject_fault("heal proxy-1")
    assert await proxy.read_health() == health_pb2.HealthCheckResponse.SERVING
