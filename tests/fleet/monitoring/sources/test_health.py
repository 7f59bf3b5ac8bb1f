from __future__ import annotations

import grpc
import pytest
from grpc_health.v1 import health_pb2

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.health import HealthResponse, check_health
from fleet.protocol.destination.instance_status import DEGRADED_HEADER, InstanceStatus
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import ServingStatus
from tests.fakes.instances import FakeProxy


async def test_server_says_how_it_is(proxy: FakeProxy, connections: Connections) -> None:
    """Its own word."""
    channel = connections.channel(proxy.address, "proxy")
    assert await check_health(channel, timeout=30) == HealthResponse(ServingStatus.SERVING)
    proxy.serving = health_pb2.HealthCheckResponse.NOT_SERVING
    proxy.says = {DEGRADED_HEADER: "busy"}
    answer = await check_health(channel, timeout=30)
    assert answer == HealthResponse(ServingStatus.NOT_SERVING, InstanceStatus(degraded_reason="busy"))


async def test_server_without_the_service(connections: Connections) -> None:
    """It answered: that it does not know the service is no sickness, and no failed attempt."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    answer = await check_health(connections.channel(f"127.0.0.1:{port}", "proxy"), timeout=30)
    await server.stop(None)
    assert answer == HealthResponse(ServingStatus.SERVICE_UNKNOWN)


async def test_frozen_server(proxy: FakeProxy, connections: Connections) -> None:
    """No answer within the deadline is a failure that says so."""
    proxy.held.set()
    with pytest.raises(SourceError, match="deadline exceeded") as failed:
        await check_health(connections.channel(proxy.address, "proxy"), timeout=0.2)
    assert not failed.value.has_response
