"""The diag port of a gateway."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio
from aiohttp.test_utils import TestClient, TestServer

from fleet.nodes.gateway.site import gateway_site
from fleet.transport.channels import channel_options
from tests.fakes.echoing import Echo, route, run_gateway
from tests.fakes.failing import UNARY, FailingBackend, failure_metadata
from tests.fakes.waiting import eventually


async def test_diag_port_reports_routes_destinations_and_metrics(tmp_path: Path) -> None:
    """The port reports readiness, the rules in effect, the health of each destination, and metrics."""
    echo, failing_backend = await Echo().start(), await FailingBackend().start()
    rules = (
        {"matches": [{"method": {"service": "refloat.test.Echo"}}]},
        {
            "retry": {"reasons": ["internal"], "attempts": 1, "backoff": "1ms"},
            "backendRefs": [{"name": "failing", "port": 1}],
        },
    )
    backends = {"svc:1": [echo.address], "failing:1": [failing_backend.address]}
    async with run_gateway(tmp_path, backends, route(*rules, hosts=["a.b"])) as (gateway, address):
        site = gateway_site(
            gateway.process, gateway.registry, gateway.listener, gateway.backends, gateway.routes_file
        )
        options = [*channel_options(), ("grpc.default_authority", "a.b")]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            await channel.unary_unary(UNARY)(b"", metadata=failure_metadata(code="INTERNAL", succeed_after=1))

            async def are_all_healthy() -> bool:
                return {backend["health"] for backend in gateway.backends.describe()} == {"healthy"}

            await eventually(are_all_healthy)
            async with TestClient(TestServer(site)) as client:
                assert (await client.get("/readyz")).status == 200
                routes = await (await client.get("/routes")).json()
                destinations = await (await client.get("/destinations")).json()
                metrics = await (await client.get("/metrics")).text()
                gateway.process.leave()
                assert (await client.get("/readyz")).status == 503
    await echo.stop()
    await failing_backend.stop()

    assert routes["valid"] is True
    assert routes["streams"] == []
    assert routes["rules"][0] == {
        "rule": "r/0",
        "hostnames": ["a.b"],
        "matches": [{"service": "refloat.test.Echo", "method": ""}],
        "retry": None,
        "timeouts": {"request": 0.0, "backend_request": 0.0},
        "call_count": 0,
        "retry_counts": {},
        "backends": {"svc:1": {echo.address: 1.0}},
    }
    retrying_rule = routes["rules"][1]
    assert retrying_rule["retry"] == {"attempts": 1, "reasons": ["internal"], "backoff": 0.001}
    assert (retrying_rule["call_count"], retrying_rule["retry_counts"]) == (1, {"INTERNAL": 1})
    assert {
        (destination["address"], destination["health"], destination["reason"])
        for destination in destinations["destinations"]
    } == {
        (echo.address, "healthy", "the first probe succeeded"),
        (failing_backend.address, "healthy", "the first probe succeeded"),
    }
    assert 'refloat_gateway_calls_total{rule="r/1",status="OK"} 1.0' in metrics
    assert 'refloat_gateway_retries_total{rule="r/1",status="INTERNAL"} 1.0' in metrics
    assert f'refloat_gateway_destination_health{{address="{echo.address}",health="healthy"}} 1.0' in metrics
    assert "refloat_gateway_routes_file_valid 1.0" in metrics
