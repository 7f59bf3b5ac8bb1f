from __future__ import annotations

import grpc
import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.teleport.networking import note_networking_access, read_networking_config
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.capabilities import Capability
from tests.fakes.source_contexts import make_source_context
from tests.fakes.teleport_auth import FakeTeleportAuth

_CAPABILITIES = {Capability.NETWORKING_READ, Capability.NETWORKING_WRITE}


async def test_config_is_that_of_the_auth(teleport_auth: FakeTeleportAuth, connections: Connections) -> None:
    teleport_auth.networking.spec.keep_alive_count_max = 7
    context = make_source_context(connections, teleport_auth)
    resource = await read_networking_config(context)
    assert resource is not None
    assert (resource.revision, resource.config.keep_alive_count_max) == ("revision-1", 7)
    assert context.missing_capabilities == {}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "lacks the verb read for cluster_networking_config."),
        (grpc.StatusCode.UNIMPLEMENTED, "This version of Teleport does not have a networking config"),
    ],
)
async def test_refusal_is_the_reason_of_both_capabilities(
    teleport_auth: FakeTeleportAuth, connections: Connections, code: grpc.StatusCode, reason: str
) -> None:
    """What cannot be read cannot be changed either."""
    teleport_auth.refusals = {"GetClusterNetworkingConfig": code}
    context = make_source_context(connections, teleport_auth)
    await note_networking_access(context)
    assert context.missing_capabilities.keys() == _CAPABILITIES
    assert all(reason in found_reason for found_reason in context.missing_capabilities.values())


async def test_failure_is_no_property_of_the_cluster(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """A round goes on; who reads the config gets the error."""
    teleport_auth.refusals = {"GetClusterNetworkingConfig": grpc.StatusCode.UNAVAILABLE}
    context = make_source_context(connections, teleport_auth)
    await note_networking_access(context)
    assert context.missing_capabilities == {}
    with pytest.raises(SourceError, match="unavailable"):
        await read_networking_config(context)
