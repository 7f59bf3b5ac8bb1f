"""The gateway's own health service, over real gRPC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.transport.channels import channel_options, server_options
from tests.fakes.echoing import ECHO, Echo, route, run_gateway

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def expect_failure(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details() or ""


async def test_health_is_serving_until_the_gateway_stops(tmp_path: Path) -> None:
    """The status needs no backend; a watch receives NOT_SERVING and does not delay the shutdown."""
    async with (
        run_gateway(tmp_path, {"svc:1": []}, drain=60.0) as (gateway, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        assert gateway.listener.call_count == 0
        await gateway.stop()

        assert (await watch.read()).status == NOT_SERVING
        assert await expect_failure(watch.read()) == ("UNAVAILABLE", "the gateway is shutting down")


async def test_health_of_other_services_is_unknown(tmp_path: Path) -> None:
    """The service reports on the gateway only and refuses other methods and invalid messages."""
    async with (
        run_gateway(tmp_path, {"svc:1": []}) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        other_request = health_pb2.HealthCheckRequest(service="a.B")
        assert await expect_failure(health.Check(other_request)) == (
            "NOT_FOUND",
            "a.B is not a service of the gateway itself",
        )
        watch = health.Watch(other_request)
        assert (await watch.read()).status == SERVICE_UNKNOWN
        watch.cancel()
        lists = channel.unary_unary("/grpc.health.v1.Health/List")
        assert (await expect_failure(lists(b"")))[0] == "UNIMPLEMENTED"
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert (await expect_failure(check(b"\xff")))[0] == "INTERNAL"
        assert (await expect_failure(check(b"x" * 5000)))[0] == "RESOURCE_EXHAUSTED"
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == SERVING


async def test_route_for_health_service_reaches_the_backend(tmp_path: Path) -> None:
    """A rule that names the health service forwards it; a rule for all services does not."""
    echo = await Echo().start()
    server = grpc.aio.server(options=server_options())

    class NotServingServicer(health_pb2_grpc.HealthServicer):
        async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
            return health_pb2.HealthCheckResponse(status=NOT_SERVING)

    health_pb2_grpc.add_HealthServicer_to_server(NotServingServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    health_rule = {
        "matches": [{"method": {"service": "grpc.health.v1.Health"}}],
        "backendRefs": [{"name": "sick", "port": 1}],
    }
    backends = {"svc:1": [echo.address], "sick:1": [f"127.0.0.1:{port}"]}
    for rules, expected in (([{}], SERVING), ([{}, health_rule], NOT_SERVING)):
        async with (
            run_gateway(tmp_path, backends, route(*rules)) as (_, address),
            grpc.aio.insecure_channel(address, options=channel_options()) as channel,
        ):
            health = health_pb2_grpc.HealthStub(channel)
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == expected
            assert await channel.unary_unary(f"{ECHO}Unary")(b"a") == b"a"
    await server.stop(None)
    await echo.stop()
