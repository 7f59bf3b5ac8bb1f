"""Asking a connection for its service config: RFD 226, "Policy Configuration Discovery"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import ServiceConfig, ServiceConfigError

#: Our auths name themselves in this trailing metadata; others do not, and the client goes without.
AUTH_ID_METADATA = "refloat-auth-id"

#: Its request is empty, and its answer is read as bytes: a thousand connections are told the same.
METHOD = "/teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService/GetServiceConfig"


@dataclass(frozen=True, slots=True)
class ConfigResponse:
    """What a connection answered."""

    #: None: the server has no such service, or its answer cannot be read. It is old, or not ours.
    config: ServiceConfig | None
    #: The auth that answered; empty when it did not say.
    auth_id: str = ""
    #: Why its answer cannot be read; empty when it can, or there was none.
    problem: str = ""


async def discover(channel: grpc.aio.Channel) -> ConfigResponse | None:
    """Ask for the service config; None when the question failed, and may be asked again.

    It has no deadline: who asks cancels it when the connection is lost.
    """
    get_config: Any = channel.unary_unary(METHOD)
    call = get_config(b"")
    try:
        message: bytes = await call
        return read(message, await call.trailing_metadata() or ())
    except grpc.aio.AioRpcError as error:
        return ConfigResponse(None) if error.code() is grpc.StatusCode.UNIMPLEMENTED else None


def read(message: bytes, metadata: Iterable[tuple[str, Any]]) -> ConfigResponse:
    """Read an answer and the metadata that trailed it."""
    auth_id = str(dict(metadata).get(AUTH_ID_METADATA, ""))
    try:
        return ConfigResponse(service_config.decode(message), auth_id)
    except ServiceConfigError as error:
        return ConfigResponse(None, auth_id, str(error))
