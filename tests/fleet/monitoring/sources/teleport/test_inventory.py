from __future__ import annotations

import grpc
import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.teleport.inventory import read_auth_by_host, read_cluster
from fleet.transport.poll_connections import Connections
from tests.fakes.source_contexts import make_source_context
from tests.fakes.teleport_auth import FakeTeleportAuth


async def test_cluster_names_itself(teleport_auth: FakeTeleportAuth, connections: Connections) -> None:
    context = make_source_context(connections, teleport_auth)
    assert await read_cluster(context) == ("example.com", "18.1.0")
    teleport_auth.refusals = {"Ping": grpc.StatusCode.UNAUTHENTICATED}
    with pytest.raises(SourceError, match="unauthenticated"):
        await read_cluster(context)


async def test_inventory_without_usable_names_is_skipped(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """A failure is an error: the auths of agents must not look unknown because an auth is sick."""
    teleport_auth.inventory = {"host-1": "auth-id", "": "auth-id", "x" * 300: "auth-id", "host-2": ""}
    context = make_source_context(connections, teleport_auth)
    assert await read_auth_by_host(context) == {"host-1": "auth-id"}
    teleport_auth.refusals = {"GetInstances": grpc.StatusCode.UNAVAILABLE}
    with pytest.raises(SourceError, match="unavailable"):
        await read_auth_by_host(context)
