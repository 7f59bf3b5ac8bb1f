"""The routes of a local fleet's gateway."""

from __future__ import annotations

from pathlib import Path

from fleet.nodes.gateway import routes_file
from fleet.nodes.local import gateway
from fleet.wire import clusterconfig_pb2


def test_read_calls_are_retried_and_write_calls_are_not(tmp_path: Path) -> None:
    """Every method of the config service has a rule in the file."""
    table = routes_file.read(gateway.write_routes(tmp_path))
    (service,) = clusterconfig_pb2.DESCRIPTOR.services_by_name.values()
    attempts = {}
    for method in service.methods:
        match = table.find("127.0.0.1:1", f"/{service.full_name}/{method.name}")
        assert match is not None
        attempts[method.name] = match.rule.policy.attempts

    assert attempts.pop("GetClusterNetworkingConfig") == 2
    assert attempts
    assert set(attempts.values()) == {0}


def test_other_services_have_no_route(tmp_path: Path) -> None:
    """Calls of agents go to the balancer and not to the gateway."""
    table = routes_file.read(gateway.write_routes(tmp_path))

    assert table.find("a", "/fleet.v1.HeartbeatService/Heartbeat") is None
