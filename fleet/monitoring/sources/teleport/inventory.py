"""Name and version of a Teleport cluster (proto.AuthService/Ping), and the auth of each agent (GetInstances)."""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc

from fleet.monitoring.sources import SourceError, map_source_errors, require_parsed
from fleet.monitoring.sources.source import SourceContext
from fleet.monitoring.sources.teleport.refusals import describe_refusal
from fleet.protocol.text_limits import LONGEST_ID, cut
from fleet.vocabulary.capabilities import Capability
from fleet.wire import authservice_pb2, authservice_pb2_grpc, resources_pb2

_MIN_TIMEOUT_SECONDS = 0.001


class TeleportCluster(NamedTuple):
    """What every identity of a cluster may know of it."""

    name: str
    #: Of the auth that responded; empty if it reports none.
    version: str


async def read_cluster(context: SourceContext) -> TeleportCluster:
    """Ask an auth which cluster it belongs to. Raises SourceError."""
    stub = authservice_pb2_grpc.AuthServiceStub(context.channel)
    timeout = max(context.remaining_seconds(), _MIN_TIMEOUT_SECONDS)
    with map_source_errors():
        response = require_parsed(await stub.Ping(authservice_pb2.PingRequest(), timeout=timeout))
    return TeleportCluster(cut(response.cluster_name), cut(response.server_version))


async def read_auth_by_host(context: SourceContext) -> dict[str, str]:
    """Return the UUID of the auth that saw each host last, by the UUID of the host.

    Empty, with the reason in the context, if the role or the version does not allow it. Raises SourceError.
    """
    stub = authservice_pb2_grpc.AuthServiceStub(context.channel)
    timeout = max(context.remaining_seconds(), _MIN_TIMEOUT_SECONDS)
    auth_by_host: dict[str, str] = {}
    try:
        with map_source_errors():
            async for message in stub.GetInstances(resources_pb2.InstanceFilter(), timeout=timeout):
                _add_auth(auth_by_host, require_parsed(message))
    except SourceError as error:
        reason = describe_refusal(error, "an inventory (GetInstances)", "list and read for instance")
        if reason is None:
            raise
        context.missing_capabilities[Capability.AGENT_TO_AUTH] = reason
    return auth_by_host


def read_inventory(channel: grpc.Channel, timeout: float) -> dict[str, str]:
    """Return the same in a thread, on a channel for streams; `timeout` in seconds.

    Raises grpc.RpcError, DecodeError, and ValueError after the channel was closed.
    """
    auth_by_host: dict[str, str] = {}
    call: Any = channel.unary_stream(
        "/proto.AuthService/GetInstances", request_serializer=resources_pb2.InstanceFilter.SerializeToString
    )
    for message in call(resources_pb2.InstanceFilter(), timeout=timeout):
        _add_auth(auth_by_host, resources_pb2.InstanceV1.FromString(message))
    return auth_by_host


def _add_auth(auth_by_host: dict[str, str], instance: resources_pb2.InstanceV1) -> None:
    host, auth = instance.header.metadata.name, instance.spec.auth_id
    if 0 < len(host) <= LONGEST_ID and 0 < len(auth) <= LONGEST_ID:
        auth_by_host[host] = auth
