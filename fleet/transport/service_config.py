"""Asking a connection for its service config: RFD 226, "Policy Configuration Discovery"."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
import grpc.aio

from fleet.protocol import service_config
from fleet.protocol.service_config import ServiceConfig, ServiceConfigError
from fleet.wire import grpcclientconfig_pb2, grpcclientconfig_pb2_grpc

#: Our auths name themselves in this trailing metadata; others do not, and the client goes without.
AUTH_ID_METADATA = "refloat-auth-id"


@dataclass(frozen=True, slots=True)
class Discovered:
    """What a connection answered."""

    config: ServiceConfig
    #: The auth that answered; empty when it did not say.
    auth_id: str


async def discover(channel: grpc.aio.Channel, within: float) -> Discovered | None:
    """Ask for the service config, `within` seconds; None when the question failed, and may be asked again.

    A server without the service, or with an answer that cannot be read, means the default: it is old or not ours.
    """
    stub = grpcclientconfig_pb2_grpc.ServiceConfigDiscoveryServiceStub(channel)
    call = stub.GetServiceConfig(grpcclientconfig_pb2.GetServiceConfigRequest(), timeout=within)
    try:
        answer = await call
        metadata = dict(await call.trailing_metadata() or ())
        return Discovered(
            service_config.decode(answer.SerializeToString()), str(metadata.get(AUTH_ID_METADATA, ""))
        )
    except grpc.aio.AioRpcError as error:
        return Discovered(ServiceConfig(), "") if error.code() is grpc.StatusCode.UNIMPLEMENTED else None
    except ServiceConfigError:
        return Discovered(ServiceConfig(), "")
