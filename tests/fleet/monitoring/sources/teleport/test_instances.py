from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from aiohttp import web

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.teleport.instances import ANNOUNCE_TTL, list_by_http, list_instances
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind
from fleet.wire import types_pb2
from tests.fakes.source_contexts import make_source_context
from tests.fakes.teleport_auth import FakeTeleportAuth
from tests.fakes.teleport_http import http_auth

_AUTH = {
    "kind": "auth_server",
    "version": "v2",
    "metadata": {"name": "auth-id", "expires": "2026-09-21T14:00:00.123456789Z"},
    "spec": {"addr": "10.0.0.1:3025", "hostname": "auth-1", "version": "17.0.0", "new": {"field": 1}},
}


async def test_instances_have_no_addresses(teleport_auth: FakeTeleportAuth, connections: Connections) -> None:
    """What they announce is often reachable only inside the cluster: Refloat does not connect to it."""
    server = types_pb2.ServerV2(metadata=types_pb2.Metadata(name="proxy-id"))
    server.spec.hostname, server.spec.addr = "proxy-1", "10.0.0.2:3080"
    teleport_auth.proxies = [server]
    (proxy,) = await list_instances(make_source_context(connections, teleport_auth))
    assert proxy.resource.ttl == ANNOUNCE_TTL
    assert (proxy.id, proxy.kind, proxy.resource.name, proxy.resource.address) == (
        *("proxy-id", InstanceKind.PROXY),
        *("proxy-1", ""),
    )


async def test_role_without_the_verbs_is_no_failure(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    teleport_auth.error_code = grpc.StatusCode.PERMISSION_DENIED
    context = make_source_context(connections, teleport_auth)
    assert await list_instances(context) == ()
    assert context.missing_capabilities[Capability.INSTANCES] == (
        "The role of Refloat's identity lacks the verbs list and read for auth_server and proxy."
    )
    teleport_auth.error_code = grpc.StatusCode.INTERNAL
    with pytest.raises(SourceError, match="internal"):
        await list_instances(context)


async def test_older_versions_list_by_http(
    teleport_auth: FakeTeleportAuth, connections: Connections, tmp_path: Path
) -> None:
    """Values that Refloat does not read do not matter, nor do documents that are no resources."""

    async def list_proxies(_: web.Request) -> web.Response:
        return web.json_response([{"metadata": {"name": "proxy-id"}, "spec": {}}, {"metadata": 5}, "x", {}])

    async def list_auths(_: web.Request) -> web.Response:
        return web.json_response([_AUTH])

    async with http_auth(
        {"/v2/authservers": list_auths, "/v2/proxies": list_proxies}, teleport_auth, tmp_path
    ) as context:
        auth, proxy = await list_by_http(context)
    assert (auth.id, auth.kind, auth.resource.name, auth.resource.version) == (
        *("auth-id", InstanceKind.AUTH),
        *("auth-1", "17.0.0"),
    )
    assert auth.resource.expires_at == pytest.approx(1_789_999_200.123, abs=0.01)
    assert auth.resource.address == ""
    assert (proxy.id, proxy.resource.name) == ("proxy-id", "proxy-id")


async def test_refused_http_list_is_a_reason(teleport_auth: FakeTeleportAuth, tmp_path: Path) -> None:
    """Also a path that the version does not have."""

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=403)

    async with http_auth({"/v2/authservers": refuse}, teleport_auth, tmp_path) as context:
        assert await list_by_http(context) == ()
    assert "list and read for auth_server" in context.missing_capabilities[Capability.INSTANCES]
    async with http_auth({}, teleport_auth, tmp_path) as context:
        assert await list_by_http(context) == ()
    assert "does not have" in context.missing_capabilities[Capability.INSTANCES]
