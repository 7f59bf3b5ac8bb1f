"""Asking for the service config when the answer is none."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from fleet.protocol.recovery.service_config import ServiceConfig
from fleet.transport import channels, service_config
from fleet.wire import grpcclientconfig_pb2, grpcclientconfig_pb2_grpc


async def ask(servicer: Any) -> service_config.ConfigResponse | None:
    server = grpc.aio.server()
    if servicer is not None:
        grpcclientconfig_pb2_grpc.add_ServiceConfigDiscoveryServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with channels.open_channel(f"127.0.0.1:{port}") as channel:
            return await asyncio.wait_for(service_config.discover(channel), 60.0)
    finally:
        await server.stop(0)


class Failing:
    async def GetServiceConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(grpc.StatusCode.UNAVAILABLE, "later")


class Empty:
    async def GetServiceConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return grpcclientconfig_pb2.GetServiceConfigResponse()


async def test_server_without_the_service() -> None:
    """An old server: nobody says what is wanted."""
    assert await ask(None) == service_config.ConfigResponse(None)


async def test_empty_answer() -> None:
    """No config means the default, from an auth that did not name itself."""
    assert await ask(Empty()) == service_config.ConfigResponse(ServiceConfig(), "")


async def test_failed_question() -> None:
    """A failure is not an answer: it can be asked again."""
    assert await ask(Failing()) is None


def test_answer_that_cannot_be_read() -> None:
    """It is as no answer, with why."""
    found = service_config.read(b"\x0a\xff", [(service_config.AUTH_ID_METADATA, "a")])
    assert (found.config, found.auth_id) == (None, "a")
    assert "is truncated" in found.problem
