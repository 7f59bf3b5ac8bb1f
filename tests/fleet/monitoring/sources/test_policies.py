"""Policy reports of instances."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from typing_extensions import override

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.policies import read_policies
from fleet.protocol.policies.env_policies import PolicySource
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.plane import channel_to


class FakePolicyService(fleet_pb2_grpc.NodePoliciesServicer):
    """A service that returns a report of the given policies."""

    def __init__(self, *policies: fleet_pb2.PolicyReport) -> None:
        self.report = fleet_pb2.PoliciesReport(
            instance_id="a", role="auth", run_id="r", uptime_ms=1500, policies=policies
        )

    @override
    async def GetPolicies(self, request: Any, context: Any) -> fleet_pb2.PoliciesReport:
        return self.report


def _policy(name: str, source: str = "env") -> fleet_pb2.PolicyReport:
    return fleet_pb2.PolicyReport(name=name, value="1m", source=source, next_value="2m", next_source="file")


@pytest.fixture
async def server() -> AsyncIterator[tuple[grpc.aio.Server, str]]:
    """Return a server without services, and its address."""
    new_server = grpc.aio.server()
    port = new_server.add_insecure_port("127.0.0.1:0")
    yield new_server, f"127.0.0.1:{port}"
    await new_server.stop(None)


async def test_report_contains_values_and_sources(server: tuple[grpc.aio.Server, str]) -> None:
    """An unknown policy of a newer instance is left out."""
    service: Any = FakePolicyService(_policy(AUTH_TTL_VARIABLE), _policy("TELEPORT_NEW"))
    fleet_pb2_grpc.add_NodePoliciesServicer_to_server(service, server[0])
    await server[0].start()
    async with channel_to(server[1]) as channel:
        report = await read_policies(channel, timeout=30)
    assert (report.instance_id, report.role, report.run_id, report.uptime_seconds) == ("a", "auth", "r", 1.5)
    assert set(report.policies) == {AUTH_TTL_VARIABLE}
    report_of_policy = report.policies[AUTH_TTL_VARIABLE]
    assert (report_of_policy.current_value.text, report_of_policy.current_value.source) == (
        "1m",
        PolicySource.ENVIRONMENT,
    )
    assert (report_of_policy.next_value.text, report_of_policy.next_value.source) == ("2m", PolicySource.FILE)


async def test_missing_policy_service_is_an_error_with_a_response(
    server: tuple[grpc.aio.Server, str],
) -> None:
    """Teleport's own instances do not support the call."""
    await server[0].start()
    async with channel_to(server[1]) as channel:
        with pytest.raises(SourceError) as error_info:
            await read_policies(channel, timeout=30)
    assert error_info.value.has_response


async def test_unknown_value_source_is_an_error(server: tuple[grpc.aio.Server, str]) -> None:
    """The error says that the report is invalid."""
    service: Any = FakePolicyService(_policy(AUTH_TTL_VARIABLE, "magic"))
    fleet_pb2_grpc.add_NodePoliciesServicer_to_server(service, server[0])
    await server[0].start()
    async with channel_to(server[1]) as channel:
        with pytest.raises(SourceError, match="the policy report is invalid"):
            await read_policies(channel, timeout=30)
