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


async def test_serving_status_and_metadata_are_read(proxy: FakeProxy, connections: Connections) -> None:
    channel = connections.channel(proxy.address, "proxy")
    assert await check_health(channel, timeout=30) == HealthResponse(ServingStatus.SERVING)
    proxy.serving = health_pb2.HealthCheckResponse.NOT_SERVING
    proxy.metadata = {DEGRADED_HEADER: "busy"}
    answer = await check_health(channel, timeout=30)
    assert answer == HealthResponse(ServingStatus.NOT_SERVING, InstanceStatus(degraded_reason="busy"))


async def test_missing_health_service_is_no_error(connections: Connections) -> None:
    """The attempt succeeded, and the instance is not sick."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    answer = await check_health(connections.channel(f"127.0.0.1:{port}", "proxy"), timeout=30)
    await server.stop(None)
    assert answer == HealthResponse(ServingStatus.SERVICE_UNKNOWN)


async def test_frozen_server_is_an_error(proxy: FakeProxy, connections: Connections) -> None:
    """The error says that the deadline was exceeded."""
    proxy.freeze_event.set()
    with pytest.raises(SourceError, match="deadline exceeded") as error_info:
        await check_health(connections.channel(proxy.address, "proxy"), timeout=0.2)
    assert not error_info.value.has_response
