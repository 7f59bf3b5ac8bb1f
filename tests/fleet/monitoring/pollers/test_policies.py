"""Asking instances for their policies."""

from __future__ import annotations

import grpc.aio
import pytest

from fleet.monitoring.pollers import policies
from fleet.monitoring.pollers.policies import UNSUPPORTED, read_node_reports
from fleet.vocabulary.instances import InstanceFacts, InstanceKind
from fleet.wire import fleet_pb2, fleet_pb2_grpc


class Answering(fleet_pb2_grpc.NodePoliciesServicer):
    """Answers with its role."""

    async def GetPolicies(self, request: object, context: object) -> fleet_pb2.PoliciesReport:  # noqa: N802
        return fleet_pb2.PoliciesReport(instance_id="a", role="auth")


def _facts(identity: str, address: str, **more: float) -> InstanceFacts:
    return InstanceFacts(identity, 0, InstanceKind.AUTH, identity, address, **more)  # type: ignore[arg-type] # by name


async def test_answers_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours report; Teleport's do not know the question; the dead do not answer; the gone are not asked."""
    monkeypatch.setattr(policies, "_TIMEOUT", 60.0)
    ours, theirs = grpc.aio.server(), grpc.aio.server()
    fleet_pb2_grpc.add_NodePoliciesServicer_to_server(Answering(), ours)
    ports = [server.add_insecure_port("127.0.0.1:0") for server in (ours, theirs)]
    await ours.start()
    await theirs.start()
    try:
        seen = await read_node_reports(
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
        await ours.stop(None)
        await theirs.stop(None)
    assert seen["a"].report is not None
    assert seen["b"].error == UNSUPPORTED
    assert "unavailable" in seen["c"].error
    assert "nowhere" in seen["d"].error
    assert "e" not in seen
