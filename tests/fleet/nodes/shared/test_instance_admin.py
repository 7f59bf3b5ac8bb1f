"""Draining an instance, and calling it degraded."""

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
    read,
)
from fleet.transport.admin import InstanceAdmin, RejectedError
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.agents import Agents
from tests.fakes.plane import Plane, channel_to

SERVING, NOT_SERVING = 1, 2


async def test_words_are_told_by_health(plane: Plane) -> None:
    """By two names of their own and in the metadata of every answer; the whole stays SERVING."""
    auth = await plane.auth(ttl=600.0)
    async with channel_to(auth.instance.grpc_address) as channel:
        admin, health = InstanceAdmin(channel), health_pb2_grpc.HealthStub(channel)

        async def told() -> tuple[InstanceStatus, dict[str, int]]:
            call = health.Check(health_pb2.HealthCheckRequest())
            assert (await call).status == SERVING
            found = (await health.List(health_pb2.HealthListRequest())).statuses
            return read(await call.trailing_metadata()), {name: one.status for name, one in found.items()}

        await admin.drain("kernel update")
        await admin.degrade("busy", 3600.0)
        statuses = {"": SERVING, PREFERRED_SERVICE: NOT_SERVING, ACCEPTING_SERVICE: NOT_SERVING}
        assert await told() == (InstanceStatus("busy", "kernel update"), statuses)
        await admin.undrain()
        await admin.restore()
        assert await told() == (EMPTY_STATUS, dict.fromkeys(statuses, SERVING))


async def test_drained_proxy_takes_nobody_new(plane: Plane, agents: Agents) -> None:
    """Who is there stays."""
    proxy = await plane.proxy(ttl=600.0)
    await agents.connect(proxy, "a")
    async with channel_to(proxy.instance.grpc_address) as channel:
        await InstanceAdmin(channel).drain("kernel update")
        with pytest.raises(grpc.aio.AioRpcError, match="drained"):
            await agents.connect(proxy, "b")
        assert len(proxy.table) == 1
        await InstanceAdmin(channel).undrain()
    await agents.connect(proxy, "b")
    assert len(proxy.table) == 2


async def test_refusals_name_the_field(plane: Plane) -> None:
    """No word, and a reason nobody can read."""
    auth = await plane.auth(ttl=600.0)
    async with channel_to(auth.instance.grpc_address) as channel:
        with pytest.raises(RejectedError, match="reason"):
            await InstanceAdmin(channel).drain("two\nlines")
        stub = fleet_pb2_grpc.InstanceAdminStub(channel)
        with pytest.raises(grpc.aio.AioRpcError, match="word") as caught:
            await stub.SetStanding(fleet_pb2.SetStandingRequest(), timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
