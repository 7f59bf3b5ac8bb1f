"""The health service of the gateway itself, over real gRPC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.transport.channels import channel_options, server_options
from tests.fakes.echoing import ECHO, Echo, gateway_before, route

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def status_of(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details() or ""


async def test_check_and_watch_until_it_ends(tmp_path: Path) -> None:
    """SERVING without any backend; a watch hears NOT_SERVING, and holds up no drain."""
    async with (
        gateway_before(tmp_path, {"svc:1": []}, drain=60.0) as (gateway, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        assert gateway.listener.calls == 0
        await gateway.stop()

        assert (await watch.read()).status == NOT_SERVING
        assert await status_of(watch.read()) == ("UNAVAILABLE", "the gateway is shutting down")


async def test_other_services_and_methods(tmp_path: Path) -> None:
    """It speaks of itself alone."""
    async with (
        gateway_before(tmp_path, {"svc:1": []}) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        other = health_pb2.HealthCheckRequest(service="a.B")
        assert await status_of(health.Check(other)) == (
            "NOT_FOUND",
            "a.B is not a service of the gateway itself",
        )
        watch = health.Watch(other)
        assert (await watch.read()).status == SERVICE_UNKNOWN
        watch.cancel()
        lists = channel.unary_unary("/grpc.health.v1.Health/List")
        assert (await status_of(lists(b"")))[0] == "UNIMPLEMENTED"
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert (await status_of(check(b"\xff")))[0] == "INTERNAL"
        assert (await status_of(check(b"x" * 5000)))[0] == "RESOURCE_EXHAUSTED"
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == SERVING


async def test_rule_that_names_the_service_passes_it_on(tmp_path: Path) -> None:
    """Health of a backend is reached by a rule of its own; one for all services does not take the gateway's away."""
    echo = await Echo().start()
    server = grpc.aio.server(options=server_options())

    class Sick(health_pb2_grpc.HealthServicer):
        async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
            return health_pb2.HealthCheckResponse(status=NOT_SERVING)

    health_pb2_grpc.add_HealthServicer_to_server(Sick(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    named = {
        "matches": [{"method": {"service": "grpc.health.v1.Health"}}],
        "backendRefs": [{"name": "sick", "port": 1}],
    }
    backends = {"svc:1": [echo.address], "sick:1": [f"127.0.0.1:{port}"]}
    for rules, expected in (([{}], SERVING), ([{}, named], NOT_SERVING)):
        async with (
            gateway_before(tmp_path, backends, route(*rules)) as (_, address),
            grpc.aio.insecure_channel(address, options=channel_options()) as channel,
        ):
            health = health_pb2_grpc.HealthStub(channel)
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == expected
            assert await channel.unary_unary(f"{ECHO}Unary")(b"a") == b"a"
    await server.stop(None)
    await echo.stop()
