"""Read a Teleport cluster with our stubs, as tests need it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from fleet.transport.client_identity import ClientIdentity
from fleet.transport.identity_file import parse_identity_file
from fleet.wire import authservice_pb2, authservice_pb2_grpc
from tests.fakes import teleport
from tests.fakes.teleport import TeleportCluster

#: Seconds for one call.
TIMEOUT = 60.0


def read_identity(cluster: TeleportCluster) -> ClientIdentity:
    return parse_identity_file(cluster.identity.read_bytes(), now=datetime.now(UTC))


@contextlib.contextmanager
def auth_stub(cluster: TeleportCluster, number: int = 1) -> Iterator[authservice_pb2_grpc.AuthServiceStub]:
    with teleport.open_channel(cluster.auth_address(number), read_identity(cluster)) as channel:
        yield authservice_pb2_grpc.AuthServiceStub(channel)


def list_resources(stub: authservice_pb2_grpc.AuthServiceStub, kind: str, limit: int = 1000) -> list[Any]:
    """Return all resources of a kind, as the one field of each that is set."""
    resources: list[Any] = []
    start = ""
    while True:
        request = authservice_pb2.ListResourcesRequest(resource_type=kind, limit=limit, start_key=start)
        page = stub.ListResources(request, timeout=TIMEOUT)
        resources += [getattr(resource, resource.WhichOneof("resource")) for resource in page.resources]
        start = page.next_key
        if not start:
            return resources


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """Return the code and text of a refused call; a stream is read to its end."""
    with pytest.raises(grpc.RpcError) as caught:
        consume(call())
    return caught.value.code(), caught.value.details()


def consume(outcome: object) -> None:
    if isinstance(outcome, Iterator):
        deque(outcome, maxlen=0)
