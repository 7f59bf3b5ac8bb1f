"""Draining an instance and marking it degraded."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.destination.instance_status import (
    ACCEPTING_SERVICE,
    EMPTY_STATUS,
    PREFERRED_SERVICE,
    InstanceStatus,
    from_headers,
)
from fleet.transport.admin import InstanceAdminClient, RejectedError
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.agents import Agents
from tests.fakes.plane import Plane, channel_to

SERVING, NOT_SERVING = 1, 2


async def test_declared_status_is_reported_by_the_health_service(plane: Plane) -> None:
    """Two service names and the metadata of every response report it; the instance itself stays SERVING."""
    auth = await plane.auth(ttl=600.0)
    async with channel_to(auth.instance.grpc_address) as channel:
        admin, health = InstanceAdminClient(channel), health_pb2_grpc.HealthStub(channel)

        async def read_status() -> tuple[InstanceStatus, dict[str, int]]:
            call = health.Check(health_pb2.HealthCheckRequest())
            assert (await call).status == SERVING
            statuses_by_name = (await health.List(health_pb2.HealthListRequest())).statuses
            return from_headers(await call.trailing_metadata()), {
                name: entry.status for name, entry in statuses_by_name.items()
            }

        await admin.drain("kernel update")
        await admin.degrade("busy", 3600.0)
        statuses = {"": SERVING, PREFERRED_SERVICE: NOT_SERVING, ACCEPTING_SERVICE: NOT_SERVING}
        assert await read_status() == (InstanceStatus("busy", "kernel update"), statuses)
        await admin.undrain()
        await admin.restore()
        assert await read_status() == (EMPTY_STATUS, dict.fromkeys(statuses, SERVING))


async def test_draining_proxy_refuses_new_agents(plane: Plane, agents: Agents) -> None:
    """Connected agents keep their tunnels."""
    proxy = await plane.proxy(ttl=600.0)
    await agents.connect(proxy, "a")
    async with channel_to(proxy.instance.grpc_address) as channel:
        await InstanceAdminClient(channel).drain("kernel update")
        with pytest.raises(grpc.aio.AioRpcError, match="drained"):
            await agents.connect(proxy, "b")
        assert len(proxy.table) == 1
        await InstanceAdminClient(channel).undrain()
    await agents.connect(proxy, "b")
    assert len(proxy.table) == 2


async def test_invalid_request_names_the_field(plane: Plane) -> None:
    """A missing declaration and an unreadable reason are refused."""
    auth = await plane.auth(ttl=600.0)
    async with channel_to(auth.instance.grpc_address) as channel:
        with pytest.raises(RejectedError, match="reason"):
            await InstanceAdminClient(channel).drain("two\nlines")
        stub = fleet_pb2_grpc.InstanceAdminStub(channel)
        with pytest.raises(grpc.aio.AioRpcError, match="declaration") as caught:
            await stub.SetDeclaredStatus(fleet_pb2.SetDeclaredStatusRequest(), timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
