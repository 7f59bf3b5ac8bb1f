"""I: what a server says of itself, by grpc.health.v1.Health/Check of the whole server, and in the answer's metadata."""

from __future__ import annotations

from dataclasses import dataclass

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.domain.instances import ServingStatus
from fleet.protocol import standing
from fleet.protocol.standing import Said
from fleet.sources import SourceFailed, asking


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """What it answered."""

    serving: ServingStatus
    said: Said = standing.NOTHING


async def ask_health(channel: grpc.aio.Channel, *, timeout: float) -> HealthAnswer:  # noqa: ASYNC109 - it is gRPC's
    """Ask within `timeout` seconds. A server without the health service is SERVICE_UNKNOWN. Raises SourceFailed."""
    stub = health_pb2_grpc.HealthStub(channel)
    try:
        with asking():
            call = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout)
            answer = await call
            metadata = await call.trailing_metadata()
    except SourceFailed as error:
        if error.answered:
            return HealthAnswer(ServingStatus.SERVICE_UNKNOWN)
        raise
    return HealthAnswer(ServingStatus(int(answer.status)), standing.read(metadata))
