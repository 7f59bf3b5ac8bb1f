"""grpc.health.v1 from the process state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.destination.instance_status import ACCEPTING_SERVICE, HEALTH_SERVICES
from fleet.transport import channels
from fleet.transport.declared_status import DeclaredStatus
from fleet.transport.health import HealthServicer
from fleet.transport.process import ProcessHealth

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


@pytest.fixture
def process() -> ProcessHealth:
    process_health = ProcessHealth(tick=1.0)
    process_health.register("auth")
    return process_health


@pytest.fixture
def declared_status() -> DeclaredStatus:
    return DeclaredStatus()


@pytest.fixture
async def stub(
    process: ProcessHealth, declared_status: DeclaredStatus
) -> AsyncIterator[health_pb2_grpc.HealthStub]:
    server = grpc.aio.server()
    HealthServicer(process, declared_status).add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with channels.open_channel(f"127.0.0.1:{port}") as channel:
        yield health_pb2_grpc.HealthStub(channel)
    await server.stop(0)


async def test_check_follows_the_state(process: ProcessHealth, stub: health_pb2_grpc.HealthStub) -> None:
    """SERVING only in the state OK."""
    statuses = []
    for record in (
        lambda: None,
        lambda: process.record_success("auth", 0.0),
        lambda: process.record_failure("auth"),
        lambda: process.record_success("auth", 1.0),
        lambda: process.record_success("auth", 9.0),
    ):
        record()
        statuses.append((await stub.Check(health_pb2.HealthCheckRequest())).status)
    assert statuses == [NOT_SERVING, SERVING, NOT_SERVING, NOT_SERVING, SERVING]


async def test_watch_sends_each_change(process: ProcessHealth, stub: health_pb2_grpc.HealthStub) -> None:
    """Every watcher gets the current status, then each other one."""
    watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(3)]
    async with asyncio.timeout(60):
        assert {(await watch.read()).status for watch in watches} == {NOT_SERVING}
        process.record_success("auth", 0.0)
        assert {(await watch.read()).status for watch in watches} == {SERVING}
        process.record_failure("auth")
        assert {(await watch.read()).status for watch in watches} == {NOT_SERVING}
    for watch in watches:
        watch.cancel()


async def test_unknown_service(stub: health_pb2_grpc.HealthStub) -> None:
    """Check: NOT_FOUND. Watch: SERVICE_UNKNOWN, and the stream stays open."""
    request = health_pb2.HealthCheckRequest(service="x")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(request)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch = stub.Watch(request)
    assert (await watch.read()).status == SERVICE_UNKNOWN
    assert not watch.done()
    watch.cancel()


async def test_watch_of_a_long_service_name_is_refused(stub: health_pb2_grpc.HealthStub) -> None:
    """The name is kept while the watch is open, and a client may open thousands."""
    assert await stub.Watch(health_pb2.HealthCheckRequest(service="x" * 256)).read()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Watch(health_pb2.HealthCheckRequest(service="x" * 257)).read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_list_has_every_service(stub: health_pb2_grpc.HealthStub) -> None:
    """The library's own List responds with an error."""
    response = await stub.List(health_pb2.HealthListRequest())
    names = HEALTH_SERVICES
    assert {
        name: status_response.status for name, status_response in response.statuses.items()
    } == dict.fromkeys(names, NOT_SERVING)


async def test_watch_sends_draining(
    process: ProcessHealth, declared_status: DeclaredStatus, stub: health_pb2_grpc.HealthStub
) -> None:
    """Only the service for new sessions changes, not the whole server."""
    process.record_success("auth", 0.0)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=ACCEPTING_SERVICE))
    async with asyncio.timeout(60):
        assert (await watch.read()).status == SERVING
        declared_status.drain("kernel update")
        assert (await watch.read()).status == NOT_SERVING
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        declared_status.undrain()
        assert (await watch.read()).status == SERVING
    watch.cancel()
