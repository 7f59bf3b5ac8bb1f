"""grpc.health.v1 as the process state drives it."""

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
    made = ProcessHealth(tick=1.0)
    made.register("auth")
    return made


@pytest.fixture
def standing() -> DeclaredStatus:
    return DeclaredStatus()


@pytest.fixture
async def stub(process: ProcessHealth, standing: DeclaredStatus) -> AsyncIterator[health_pb2_grpc.HealthStub]:
    server = grpc.aio.server()
    HealthServicer(process, standing).add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with channels.open_channel(f"127.0.0.1:{port}") as channel:
        yield health_pb2_grpc.HealthStub(channel)
    await server.stop(0)


async def test_check_follows_the_state(process: ProcessHealth, stub: health_pb2_grpc.HealthStub) -> None:
    """NOT_SERVING while starting, SERVING when ok, NOT_SERVING when degraded and while recovering."""
    seen = []
    for change in (
        lambda: None,
        lambda: process.record_success("auth", 0.0),
        lambda: process.record_failure("auth"),
        lambda: process.record_success("auth", 1.0),
        lambda: process.record_success("auth", 9.0),
    ):
        change()
        seen.append((await stub.Check(health_pb2.HealthCheckRequest())).status)
    assert seen == [NOT_SERVING, SERVING, NOT_SERVING, NOT_SERVING, SERVING]


async def test_watch_tells_each_change(process: ProcessHealth, stub: health_pb2_grpc.HealthStub) -> None:
    """The status now, then each other one, to every watcher."""
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
    named = health_pb2.HealthCheckRequest(service="x")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(named)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch = stub.Watch(named)
    assert (await watch.read()).status == SERVICE_UNKNOWN
    assert not watch.done()
    watch.cancel()


async def test_watch_of_a_service_with_a_name_of_megabytes(stub: health_pb2_grpc.HealthStub) -> None:
    """Refused: it would be kept for as long as the watch is open, and a client may open thousands."""
    assert await stub.Watch(health_pb2.HealthCheckRequest(service="x" * 256)).read()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Watch(health_pb2.HealthCheckRequest(service="x" * 257)).read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_list(stub: health_pb2_grpc.HealthStub) -> None:
    """List answers, unlike the library's, and has the names of what an instance says of itself."""
    answer = await stub.List(health_pb2.HealthListRequest())
    names = HEALTH_SERVICES
    assert {name: found.status for name, found in answer.statuses.items()} == dict.fromkeys(
        names, NOT_SERVING
    )


async def test_watch_tells_of_draining(
    process: ProcessHealth, standing: DeclaredStatus, stub: health_pb2_grpc.HealthStub
) -> None:
    """A service of its own changes when it is drained, the whole does not."""
    process.record_success("auth", 0.0)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=ACCEPTING_SERVICE))
    async with asyncio.timeout(60):
        assert (await watch.read()).status == SERVING
        standing.drain("kernel update")
        assert (await watch.read()).status == NOT_SERVING
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        standing.undrain()
        assert (await watch.read()).status == SERVING
    watch.cancel()
