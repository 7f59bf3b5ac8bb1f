"""I: what a server says of itself, by grpc.health.v1.Health/Check of the whole server, and in the answer's metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import grpc.aio
from grpc_health.v1 import health_pb2

from fleet.monitoring.sources import failure
from fleet.monitoring.sources.source import EvidenceSource, Question
from fleet.protocol.destination import instance_status
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.vocabulary.instances import Poll, ServingStatus

#: A stub made for each check would ask gRPC for three methods; the request is always the same.
_checks: WeakKeyDictionary[grpc.aio.Channel, Callable[..., Any]] = WeakKeyDictionary()
_WHOLE_SERVER = b""


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """What it answered."""

    serving: ServingStatus
    said: InstanceStatus = instance_status.EMPTY_STATUS


async def ask_health(channel: grpc.aio.Channel, *, timeout: float) -> HealthAnswer:  # noqa: ASYNC109 - it is gRPC's
    """Ask within `timeout` seconds. A server without the health service is SERVICE_UNKNOWN. Raises SourceFailed."""
    try:
        call = _check(channel)(_WHOLE_SERVER, timeout=timeout)
        answer = await call
        metadata = await call.trailing_metadata()
    except grpc.aio.AioRpcError as error:
        failed = failure(error)
        if failed.answered:
            return HealthAnswer(ServingStatus.SERVICE_UNKNOWN)
        raise failed from error
    return HealthAnswer(ServingStatus(int(answer.status)), instance_status.read(metadata))


def _check(channel: grpc.aio.Channel) -> Callable[..., Any]:
    found = _checks.get(channel)
    if found is None:
        found = _checks[channel] = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=bytes,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
    return found


async def _ask(question: Question) -> HealthAnswer:
    return await ask_health(question.channel, timeout=question.left())


def _record(poll: Poll, answer: HealthAnswer, at: float) -> Poll:
    return replace(poll, serving=answer.serving, serving_at=at)


HEALTH = EvidenceSource("health", _ask, is_contact=True, record=_record)
