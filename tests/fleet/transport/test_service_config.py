"""Service config requests without a usable response."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from fleet.protocol.recovery.service_config import ServiceConfig
from fleet.transport import channels, service_config
from fleet.wire import grpcclientconfig_pb2, grpcclientconfig_pb2_grpc


async def discover_from(servicer: Any) -> service_config.ConfigResponse | None:
    server = grpc.aio.server()
    if servicer is not None:
        grpcclientconfig_pb2_grpc.add_ServiceConfigDiscoveryServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with channels.open_channel(f"127.0.0.1:{port}") as channel:
            return await asyncio.wait_for(service_config.request_service_config(channel), 60.0)
    finally:
        await server.stop(0)


class FailingServicer:
    async def GetServiceConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(grpc.StatusCode.UNAVAILABLE, "later")


class EmptyServicer:
    async def GetServiceConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return grpcclientconfig_pb2.GetServiceConfigResponse()


async def test_server_without_the_service_gives_no_config() -> None:
    assert await discover_from(None) == service_config.ConfigResponse(None)


async def test_empty_response_gives_the_default() -> None:
    """The auth is unnamed."""
    assert await discover_from(EmptyServicer()) == service_config.ConfigResponse(ServiceConfig(), "")


async def test_failed_request_gives_no_response() -> None:
    """It can be repeated."""
    assert await discover_from(FailingServicer()) is None


def test_unreadable_response_has_a_problem() -> None:
    """It gives no config."""
    response = service_config.read_response(b"\x0a\xff", [(service_config.AUTH_ID_METADATA, "a")])
    assert (response.config, response.auth_id) == (None, "a")
    assert "is truncated" in response.problem
