"""I: what a server says of itself, by grpc.health.v1.Health/Check of the whole server."""

from __future__ import annotations

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.domain.instances import ServingStatus
from fleet.sources import SourceFailed, asking


async def ask_health(channel: grpc.aio.Channel, *, timeout: float) -> ServingStatus:  # noqa: ASYNC109 - it is gRPC's
    """Ask within `timeout` seconds. A server without the health service is SERVICE_UNKNOWN. Raises SourceFailed."""
    stub = health_pb2_grpc.HealthStub(channel)
    try:
        with asking():
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout)
    except SourceFailed as error:
        if error.answered:
            return ServingStatus.SERVICE_UNKNOWN
        raise
    return ServingStatus(int(answer.status))
