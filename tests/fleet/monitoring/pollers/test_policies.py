"""Policy reports that are read from instances."""

from __future__ import annotations

import grpc.aio
import pytest

from fleet.monitoring.pollers import policies
from fleet.monitoring.pollers.policies import read_node_reports
from fleet.vocabulary.instances import InstanceFacts, InstanceKind
from fleet.vocabulary.node_policies import UNSUPPORTED_ERROR
from fleet.wire import fleet_pb2, fleet_pb2_grpc


class FakePolicyService(fleet_pb2_grpc.NodePoliciesServicer):
    """Responds with a minimal report."""

    async def GetPolicies(self, request: object, context: object) -> fleet_pb2.PoliciesReport:  # noqa: N802
        return fleet_pb2.PoliciesReport(instance_id="a", role="auth")


def _facts(identity: str, address: str, **more: float) -> InstanceFacts:
    return InstanceFacts(identity, 0, InstanceKind.AUTH, identity, address, **more)  # type: ignore[arg-type] # by name


async def test_responses_and_errors_are_returned_by_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report, an unsupported call, unreachable instances, and a deregistered one that is skipped."""
    monkeypatch.setattr(policies, "_TIMEOUT_SECONDS", 60.0)
    supporting_server, unsupporting_server = grpc.aio.server(), grpc.aio.server()
    fleet_pb2_grpc.add_NodePoliciesServicer_to_server(FakePolicyService(), supporting_server)
    ports = [server.add_insecure_port("127.0.0.1:0") for server in (supporting_server, unsupporting_server)]
    await supporting_server.start()
    await unsupporting_server.start()
    try:
        responses = await read_node_reports(
            [
                _facts("a", f"127.0.0.1:{ports[0]}"),
                _facts("b", f"127.0.0.1:{ports[1]}"),
                _facts("c", "127.0.0.1:1"),
                _facts("d", "nowhere"),
                _facts("e", f"127.0.0.1:{ports[0]}", gone_at=1.0),
            ],
            None,
        )
    finally:
        await supporting_server.stop(None)
        await unsupporting_server.stop(None)
    assert responses["a"].report is not None
    assert responses["b"].error == UNSUPPORTED_ERROR
    assert "unavailable" in responses["c"].error
    assert "nowhere" in responses["d"].error
    assert "e" not in responses
