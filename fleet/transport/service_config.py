"""Requests for the service config of a connection: RFD 226, "Policy Configuration Discovery"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import ServiceConfig, ServiceConfigError

#: Trailing metadata with the auth's id; only Refloat's auths send it.
AUTH_ID_METADATA = "refloat-auth-id"

#: The method has an empty request; the response is handled as bytes, because a thousand connections get the same.
GET_CONFIG_METHOD = "/teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService/GetServiceConfig"


@dataclass(frozen=True, slots=True)
class ConfigResponse:
    """The response on a connection."""

    #: None: the server does not have the service, or its response cannot be read.
    config: ServiceConfig | None
    #: Id of the auth; empty if unknown.
    auth_id: str = ""
    #: Why the response cannot be read; empty otherwise.
    problem: str = ""


async def request_service_config(channel: grpc.aio.Channel) -> ConfigResponse | None:
    """Request the service config; None if the request failed and may be repeated.

    The request has no timeout: the caller cancels it when the connection is lost.
    """
    get_config: Any = channel.unary_unary(GET_CONFIG_METHOD)
    call = get_config(b"")
    try:
        message: bytes = await call
        return read_response(message, await call.trailing_metadata() or ())
    except grpc.aio.AioRpcError as error:
        return ConfigResponse(None) if error.code() is grpc.StatusCode.UNIMPLEMENTED else None


def read_response(message: bytes, metadata: Iterable[tuple[str, Any]]) -> ConfigResponse:
    """Return the content of a response and of its trailing metadata."""
    auth_id = str(dict(metadata).get(AUTH_ID_METADATA, ""))
    try:
        return ConfigResponse(service_config.decode(message), auth_id)
    except ServiceConfigError as error:
        return ConfigResponse(None, auth_id, str(error))
