"""The networking config of a Teleport cluster, as far as rounds and the connection test need it.

The config itself is read and written by `fleet.transport.admin`; a round finds out whether the role and the version
allow to read it.
"""

from __future__ import annotations

import contextlib

from fleet.monitoring.sources import SourceError, map_source_errors, require_parsed
from fleet.monitoring.sources.source import SourceContext
from fleet.monitoring.sources.teleport.refusals import describe_refusal
from fleet.protocol.networking.config import NetworkingResource
from fleet.transport import networking_config
from fleet.vocabulary.capabilities import Capability
from fleet.wire import clusterconfig_pb2, clusterconfig_pb2_grpc

_MIN_TIMEOUT_SECONDS = 0.001


async def read_networking_config(context: SourceContext) -> NetworkingResource | None:
    """Return the config of an auth; None, with the reason in the context, if the role or the version does not allow it.

    Raises SourceError.
    """
    stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(context.channel)
    request = clusterconfig_pb2.GetClusterNetworkingConfigRequest()
    timeout = max(context.remaining_seconds(), _MIN_TIMEOUT_SECONDS)
    try:
        with map_source_errors():
            message = require_parsed(await stub.GetClusterNetworkingConfig(request, timeout=timeout))
            return networking_config.read(message)
    except SourceError as error:
        reason = describe_refusal(
            error, "a networking config (ClusterConfigService)", "read for cluster_networking_config"
        )
        if reason is None:
            raise
        for capability in (Capability.NETWORKING_READ, Capability.NETWORKING_WRITE):
            context.missing_capabilities[capability] = reason
        return None


async def note_networking_access(context: SourceContext) -> None:
    """Note in the context why the role or the version does not allow to read the config.

    Other errors are reported by the requests that read the config for a page or a change.
    """
    with contextlib.suppress(SourceError):
        await read_networking_config(context)
