"""Writing to a node: what came back unknown goes back untouched, and every refusal is one of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.transport import admin
from fleet.transport.admin import (
    NetworkingConfigAdmin,
    NotAllowedError,
    RejectedError,
    RevisionConflict,
    TunnelAdmin,
    UnreachableError,
)
from fleet.wire import clusterconfig_pb2_grpc, types_pb2
from tests.fakes.plane import Plane, channel_to

Context = grpc.aio.ServicerContext[Any, Any]


class NewerAuth:
    """An auth of a newer Teleport: its config has fields nobody here knows."""

    def __init__(self) -> None:
        self.held = types_pb2.ClusterNetworkingConfigV2(metadata={"revision": "1"})
        self.held.spec.MergeFromString(b"\x9a\x06\x01?")
        self.answers = grpc.StatusCode.OK

    async def GetClusterNetworkingConfig(self, request: Any, context: Context) -> Any:  # noqa: N802
        if self.answers is not grpc.StatusCode.OK:
            await context.abort(self.answers, "because")
        return self.held

    async def UpdateClusterNetworkingConfig(self, request: Any, context: Context) -> Any:  # noqa: N802
        wanted = request.cluster_network_config
        if wanted.metadata.revision != self.held.metadata.revision:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "compare failed")
        return await self.UpsertClusterNetworkingConfig(request, context)

    async def UpsertClusterNetworkingConfig(self, request: Any, context: Context) -> Any:  # noqa: N802
        self.held = request.cluster_network_config
        self.held.metadata.revision += "1"
        return self.held

    async def ResetClusterNetworkingConfig(self, request: Any, context: Context) -> Any:  # noqa: N802
        self.held = types_pb2.ClusterNetworkingConfigV2(metadata={"revision": "reset"})
        return self.held


@pytest.fixture
def auth() -> NewerAuth:
    """A newer auth."""
    return NewerAuth()


@pytest.fixture
async def client(auth: NewerAuth) -> AsyncIterator[NetworkingConfigAdmin]:
    """A client of it."""
    server = grpc.aio.server()
    clusterconfig_pb2_grpc.add_ClusterConfigServiceServicer_to_server(auth, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with channel_to(f"127.0.0.1:{port}") as channel:
        yield NetworkingConfigAdmin(channel)
    await server.stop(None)


async def test_update_sends_back_what_is_unknown(client: NetworkingConfigAdmin, auth: NewerAuth) -> None:
    """Read, change, write: the unknown field is still there, and the revision was the one that was read."""
    stored = await client.get()
    wanted = replace(
        stored.resource, config=replace(stored.resource.config, ssh_dial_timeout=9.0), description="why"
    )
    written = await client.update(stored, wanted)
    assert (written.resource.config.ssh_dial_timeout, written.resource.revision) == (9.0, "11")
    assert (auth.held.metadata.description, auth.held.spec.ssh_dial_timeout) == ("why", 9_000_000_000)
    assert auth.held.spec.SerializeToString().endswith(b"\x9a\x06\x01?")
    with pytest.raises(RevisionConflict, match="compare failed"):
        await client.update(stored, wanted)
    assert (await client.reset()).resource.revision == "reset"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, RejectedError),
        (grpc.StatusCode.ABORTED, RevisionConflict),
        (grpc.StatusCode.UNAVAILABLE, UnreachableError),
        (grpc.StatusCode.PERMISSION_DENIED, NotAllowedError),
        (grpc.StatusCode.DATA_LOSS, admin.AdminError),
    ],
)
async def test_refusals_become_ours(
    client: NetworkingConfigAdmin, auth: NewerAuth, code: grpc.StatusCode, kind: type[Exception]
) -> None:
    """Each code is one kind of ours, with the auth's sentence."""
    auth.answers = code
    with pytest.raises(kind, match="because") as caught:
        await client.get()
    assert type(caught.value) is kind


async def test_advice_to_reconnect(valkey_url: str, prefix: str) -> None:
    """What the proxy counted comes back; a refusal is one of ours."""
    plane = Plane(valkey_url, prefix)
    proxy = await plane.proxy(ttl=600.0)
    async with channel_to(proxy.instance.grpc_address) as channel:
        client = TunnelAdmin(channel)
        advised = await client.advise_reconnect("x", "because", agents=["nobody"])
        assert (advised.proxy_id, advised.advised, advised.absent) == (proxy.instance.flags.id, 0, 1)
        with pytest.raises(RejectedError, match="advisory_id"):
            await client.advise_reconnect("", "because")
    async with channel_to("127.0.0.1:1") as channel:
        with pytest.raises(UnreachableError):
            await TunnelAdmin(channel).advise_reconnect("x", "because")
    await plane.close()
