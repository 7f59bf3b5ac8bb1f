"""Admin clients: unknown fields are sent back unchanged, and every refusal becomes an AdminError."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.transport import admin
from fleet.transport.admin import (
    NetworkingConfigClient,
    NotAllowedError,
    RejectedError,
    RevisionConflictError,
    TunnelAdminClient,
    UnreachableError,
)
from fleet.wire import clusterconfig_pb2_grpc, types_pb2
from tests.fakes.plane import Plane, channel_to

Context = grpc.aio.ServicerContext[Any, Any]


class NewerAuth:
    """An auth of a newer Teleport, whose config has unknown fields."""

    def __init__(self) -> None:
        self.stored_config = types_pb2.ClusterNetworkingConfigV2(metadata={"revision": "1"})
        self.stored_config.spec.MergeFromString(b"\x9a\x06\x01?")
        self.status_code = grpc.StatusCode.OK

    async def GetClusterNetworkingConfig(self, request: Any, context: Context) -> Any:  # noqa: N802
        if self.status_code is not grpc.StatusCode.OK:
            await context.abort(self.status_code, "because")
        return self.stored_config

    async def UpdateClusterNetworkingConfig(self, request: Any, context: Context) -> Any:  # noqa: N802
        config = request.cluster_network_config
        if config.metadata.revision != self.stored_config.metadata.revision:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "compare failed")
        return await self.UpsertClusterNetworkingConfig(request, context)

    async def UpsertClusterNetworkingConfig(self, request: Any, context: Context) -> Any:  # noqa: N802
        self.stored_config = request.cluster_network_config
        self.stored_config.metadata.revision += "1"
        return self.stored_config

    async def ResetClusterNetworkingConfig(self, request: Any, context: Context) -> Any:  # noqa: N802
        self.stored_config = types_pb2.ClusterNetworkingConfigV2(metadata={"revision": "reset"})
        return self.stored_config


@pytest.fixture
def auth() -> NewerAuth:
    """An auth with a newer config."""
    return NewerAuth()


@pytest.fixture
async def client(auth: NewerAuth) -> AsyncIterator[NetworkingConfigClient]:
    """A client of the newer auth."""
    server = grpc.aio.server()
    clusterconfig_pb2_grpc.add_ClusterConfigServiceServicer_to_server(auth, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with channel_to(f"127.0.0.1:{port}") as channel:
        yield NetworkingConfigClient(channel)
    await server.stop(None)


async def test_update_keeps_unknown_fields(client: NetworkingConfigClient, auth: NewerAuth) -> None:
    """After read, change and write the unknown field remains, and the revision is the one that was read."""
    stored = await client.get()
    changed_resource = replace(
        stored.resource, config=replace(stored.resource.config, ssh_dial_timeout=9.0), description="why"
    )
    stored_after = await client.update(stored, changed_resource)
    assert (stored_after.resource.config.ssh_dial_timeout, stored_after.resource.revision) == (9.0, "11")
    assert (auth.stored_config.metadata.description, auth.stored_config.spec.ssh_dial_timeout) == (
        "why",
        9_000_000_000,
    )
    assert auth.stored_config.spec.SerializeToString().endswith(b"\x9a\x06\x01?")
    with pytest.raises(RevisionConflictError, match="compare failed"):
        await client.update(stored, changed_resource)
    assert (await client.reset()).resource.revision == "reset"


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, RejectedError),
        (grpc.StatusCode.ABORTED, RevisionConflictError),
        (grpc.StatusCode.UNAVAILABLE, UnreachableError),
        (grpc.StatusCode.PERMISSION_DENIED, NotAllowedError),
        (grpc.StatusCode.DATA_LOSS, admin.AdminError),
    ],
)
async def test_status_codes_become_admin_errors(
    client: NetworkingConfigClient, auth: NewerAuth, code: grpc.StatusCode, error_class: type[Exception]
) -> None:
    """Each code has its class, with the auth's message."""
    auth.status_code = code
    with pytest.raises(error_class, match="because") as caught:
        await client.get()
    assert type(caught.value) is error_class


async def test_advise_reconnect_returns_the_counts(valkey_url: str, prefix: str) -> None:
    """A refusal becomes an AdminError."""
    plane = Plane(valkey_url, prefix)
    proxy = await plane.proxy(ttl=600.0)
    async with channel_to(proxy.instance.grpc_address) as channel:
        client = TunnelAdminClient(channel)
        advice_counts = await client.advise_reconnect("x", "because", agent_ids=["nobody"])
        assert (advice_counts.proxy_id, advice_counts.advised_count, advice_counts.absent_count) == (
            proxy.instance.flags.id,
            0,
            1,
        )
        with pytest.raises(RejectedError, match="advisory_id"):
            await client.advise_reconnect("", "because")
    async with channel_to("127.0.0.1:1") as channel:
        with pytest.raises(UnreachableError):
            await TunnelAdminClient(channel).advise_reconnect("x", "because")
    await plane.close()
