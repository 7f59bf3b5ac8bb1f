"""Evidence I: the health of a server, by grpc.health.v1.Health/Check of the whole server and its response metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import grpc.aio
from grpc_health.v1 import health_pb2

from fleet.monitoring.sources import require_parsed, source_error_of
from fleet.monitoring.sources.source import EvidenceSource, SourceContext
from fleet.protocol.destination import instance_status
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.protocol.text_limits import LONGEST_TEXT, cut
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import Poll, ServingStatus

#: One method and one request for all checks: a stub per check would create three methods.
_check_by_channel: WeakKeyDictionary[grpc.aio.Channel, Callable[..., Any]] = WeakKeyDictionary()
_WHOLE_SERVER = b""


@dataclass(frozen=True, slots=True)
class HealthResponse:
    """Response to a health check."""

    serving_status: ServingStatus
    declared_status: InstanceStatus = instance_status.EMPTY_STATUS
    #: Why it is not serving, as a clause that follows "responds, but"; empty: the instance does not tell.
    problem: str = ""

    @property
    def is_not_serving(self) -> bool:
        """Return whether the instance reports that it is not serving, not only that it does not know."""
        return self.serving_status is ServingStatus.NOT_SERVING


async def check_health(channel: grpc.aio.Channel, *, timeout: float) -> HealthResponse:  # noqa: ASYNC109 - it is gRPC's
    """Check the health within `timeout` seconds; SERVICE_UNKNOWN without a health service. Raises SourceError."""
    try:
        call = _check_of(channel)(_WHOLE_SERVER, timeout=timeout)
        response = require_parsed(await call)
        metadata = await call.trailing_metadata()
    except grpc.aio.AioRpcError as error:
        source_error = source_error_of(error)
        if source_error.has_response:
            return HealthResponse(ServingStatus.SERVICE_UNKNOWN)
        raise source_error from error
    return HealthResponse(ServingStatus(int(response.status)), instance_status.from_headers(metadata))


def _check_of(channel: grpc.aio.Channel) -> Callable[..., Any]:
    check = _check_by_channel.get(channel)
    if check is None:
        check = _check_by_channel[channel] = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=bytes,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
    return check


async def _query(context: SourceContext) -> HealthResponse:
    return await check_health(context.channel, timeout=context.remaining_seconds())


def _update_poll(poll: Poll, response: HealthResponse, at: float) -> Poll:
    problem = cut(response.problem, LONGEST_TEXT)
    return replace(poll, serving=response.serving_status, serving_at=at, serving_problem=problem)


HEALTH = EvidenceSource(
    "health",
    _query,
    proves_reachability=True,
    update_poll=_update_poll,
    capabilities=frozenset({Capability.HEALTH}),
)
