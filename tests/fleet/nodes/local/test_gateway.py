"""The routes of a local fleet's gateway."""

from __future__ import annotations

from pathlib import Path

from fleet.nodes.gateway import routes_file
from fleet.nodes.local import gateway
from fleet.wire import clusterconfig_pb2


def test_reading_is_retried_and_writing_is_not(tmp_path: Path) -> None:
    """As a gateway reads the file; every method of the service there is has a rule."""
    table = routes_file.read(gateway.write(tmp_path))
    (service,) = clusterconfig_pb2.DESCRIPTOR.services_by_name.values()
    attempts = {}
    for method in service.methods:
        found = table.find("127.0.0.1:1", f"/{service.full_name}/{method.name}")
        assert found is not None
        attempts[method.name] = found.rule.policy.attempts

    assert attempts.pop("GetClusterNetworkingConfig") == 2
    assert attempts
    assert set(attempts.values()) == {0}


def test_nothing_else_passes(tmp_path: Path) -> None:
    """Agents' calls are for the balancer."""
    table = routes_file.read(gateway.write(tmp_path))

    assert table.find("a", "/fleet.v1.HeartbeatService/Heartbeat") is None
