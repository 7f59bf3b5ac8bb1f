"""Asking a connection for its service config: RFD 226, "Policy Configuration Discovery"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from fleet.protocol import service_config
from fleet.protocol.service_config import ServiceConfig, ServiceConfigError
from fleet.wire import grpcclientconfig_pb2

#: Our auths name themselves in this trailing metadata; others do not, and the client goes without.
AUTH_ID_METADATA = "refloat-auth-id"

_METHOD = "/teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService/GetServiceConfig"


@dataclass(frozen=True, slots=True)
class Discovered:
    """What a connection answered."""

    #: None: the server has no such service, or its answer cannot be read. It is old, or not ours.
    config: ServiceConfig | None
    #: The auth that answered; empty when it did not say.
    auth_id: str = ""


async def discover(channel: grpc.aio.Channel) -> Discovered | None:
    """Ask for the service config; None when the question failed, and may be asked again.

    It has no deadline: who asks cancels it when the connection is lost.
    """
    # The request is empty, and the answer is read as bytes: a thousand connections are told the same.
    ask: Any = channel.unary_unary(_METHOD)
    call = ask(b"")
    try:
        answer: bytes = await call
        return read_bytes(answer, await call.trailing_metadata() or ())
    except grpc.aio.AioRpcError as error:
        return Discovered(None) if error.code() is grpc.StatusCode.UNIMPLEMENTED else None


def read(
    answer: grpcclientconfig_pb2.GetServiceConfigResponse, metadata: Iterable[tuple[str, Any]]
) -> Discovered:
    """Read an answer and the metadata that trailed it."""
    return read_bytes(answer.SerializeToString(), metadata)


def read_bytes(answer: bytes, metadata: Iterable[tuple[str, Any]]) -> Discovered:
    """Read an answer as it came, and the metadata that trailed it."""
    auth_id = str(dict(metadata).get(AUTH_ID_METADATA, ""))
    try:
        return Discovered(service_config.decode(answer), auth_id)
    except ServiceConfigError:
        return Discovered(None, auth_id)
