"""Asking instances for their policies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from typing_extensions import override

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.policies import read_policies
from fleet.protocol.policies.env_policies import Source
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.plane import channel_to


class Answering(fleet_pb2_grpc.NodePoliciesServicer):
    """Answers what it is given."""

    def __init__(self, *policies: fleet_pb2.PolicyReport) -> None:
        self.report = fleet_pb2.PoliciesReport(
            instance_id="a", role="auth", run_id="r", up_for_ms=1500, policies=policies
        )

    @override
    async def GetPolicies(self, request: Any, context: Any) -> fleet_pb2.PoliciesReport:
        return self.report


def _policy(name: str, source: str = "env") -> fleet_pb2.PolicyReport:
    return fleet_pb2.PolicyReport(name=name, value="1m", source=source, next_value="2m", next_source="file")


@pytest.fixture
async def server() -> AsyncIterator[tuple[grpc.aio.Server, str]]:
    """A server to add services to."""
    made = grpc.aio.server()
    port = made.add_insecure_port("127.0.0.1:0")
    yield made, f"127.0.0.1:{port}"
    await made.stop(None)


async def test_report(server: tuple[grpc.aio.Server, str]) -> None:
    """Values with their sources; a policy of a newer instance is left out."""
    answering: Any = Answering(_policy(AUTH_TTL_VARIABLE), _policy("TELEPORT_NEW"))
    fleet_pb2_grpc.add_NodePoliciesServicer_to_server(answering, server[0])
    await server[0].start()
    async with channel_to(server[1]) as channel:
        report = await read_policies(channel, timeout=30)
    assert (report.instance_id, report.role, report.run_id, report.uptime_seconds) == ("a", "auth", "r", 1.5)
    assert set(report.policies) == {AUTH_TTL_VARIABLE}
    found = report.policies[AUTH_TTL_VARIABLE]
    assert (found.current_value.text, found.current_value.source) == ("1m", Source.ENVIRONMENT)
    assert (found.next_value.text, found.next_value.source) == ("2m", Source.FILE)


async def test_instance_without_the_service(server: tuple[grpc.aio.Server, str]) -> None:
    """Teleport's own do not know the question: an answer, though none of policies."""
    await server[0].start()
    async with channel_to(server[1]) as channel:
        with pytest.raises(SourceError) as caught:
            await read_policies(channel, timeout=30)
    assert caught.value.has_response


async def test_unknown_source_is_refused(server: tuple[grpc.aio.Server, str]) -> None:
    """An answer that makes no sense is not taken for one that does."""
    answering: Any = Answering(_policy(AUTH_TTL_VARIABLE, "magic"))
    fleet_pb2_grpc.add_NodePoliciesServicer_to_server(answering, server[0])
    await server[0].start()
    async with channel_to(server[1]) as channel:
        with pytest.raises(SourceError, match="the policy report is invalid"):
            await read_policies(channel, timeout=30)
