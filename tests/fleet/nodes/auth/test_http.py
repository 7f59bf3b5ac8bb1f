"""The HTTP part of the auth API: Teleport's paths and JSON, on a real auth."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleet.nodes.auth.server import Auth
from fleet.nodes.auth.site import HTTPFlags
from fleet.nodes.local.forward_names import ForwardMode
from fleet.protocol.instance_labels import CONNECT_LABEL, DIAG_LABEL, HEARTBEAT_AUTH_LABEL, HTTP_LABEL
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane, get_diag

SECOND = 1_000_000_000


class Client:
    """Send requests to one auth."""

    def __init__(self, auth: Auth, session: aiohttp.ClientSession) -> None:
        self.auth = auth
        self.session = session

    async def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        url = f"http://{self.auth.http_address}{path}"
        async with self.session.request(method, url, data=data) as response:
            assert response.headers["content-type"] == "application/json"
            return response.status, await response.json()


@pytest.fixture
async def client(plane: Plane) -> AsyncIterator[Client]:
    """Yield a client of a running auth."""
    auth = await plane.auth()
    async with aiohttp.ClientSession() as session:
        yield Client(auth, session)


def proxy_document(name: str, **metadata: Any) -> dict[str, Any]:
    """Return a proxy as Teleport writes it, with a field that the auth does not know."""
    return {
        "kind": "proxy",
        "version": "v2",
        "metadata": {"name": name, "labels": {"a": "b"}, **metadata},
        "spec": {"addr": "10.0.0.8:3080", "hostname": name, "version": "18.0.0", "rotation": {"state": ""}},
    }


def connection_document(cluster: str, name: str, **metadata: Any) -> dict[str, Any]:
    """Return a tunnel connection as Teleport writes it."""
    return {
        "kind": "tunnel_connection",
        "version": "v2",
        "metadata": {"name": name, **metadata},
        "spec": {
            "cluster_name": cluster,
            "proxy_name": "p",
            "last_heartbeat": format_time_after(),
            "type": "proxy",
        },
    }


def format_time_after(seconds: float = 0.0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def has_ttl_since(document: dict[str, Any], ttl: float, started_at: datetime) -> bool:
    """Return whether the document expires `ttl` seconds after a moment between `started_at` and now."""
    written_at = datetime.fromisoformat(document["metadata"]["expires"]) - timedelta(seconds=ttl)
    slack = timedelta(milliseconds=10)  # for rounding
    return started_at - slack <= written_at <= datetime.now(UTC) + slack


async def list_names(client: Client, path: str) -> list[str]:
    code, documents = await client("GET", path)
    assert code == 200
    return sorted(document["metadata"]["name"] for document in documents)


async def test_upserted_proxies_are_listed_by_every_auth(plane: Plane, client: Client) -> None:
    """Another auth lists them in Teleport's JSON with their expiry."""
    started_at = datetime.now(UTC)
    assert await client("POST", "/v2/proxies", {"server": proxy_document("p-1"), "ttl": 60 * SECOND}) == (
        200,
        {"message": "ok"},
    )
    assert (
        await client("POST", "/v1/proxies", {"server": proxy_document("p-2", expires=format_time_after(30))})
    )[0] == 200
    assert (await client("POST", "/v2/proxies", {"server": proxy_document("p-3")}))[0] == 200
    client.auth = await plane.auth("auth-2")
    code, documents = await client("GET", "/v2/proxies")
    assert code == 200
    first, second, third = sorted(documents, key=lambda document: str(document["metadata"]["name"]))
    assert first["spec"] == {"addr": "10.0.0.8:3080", "hostname": "p-1", "version": "18.0.0"}
    assert (first["kind"], first["version"]) == ("proxy", "v2")
    assert first["metadata"]["labels"]["a"] == "b"
    assert first["metadata"]["namespace"] == "default"
    for document, ttl in ((first, 60), (second, 30), (third, 600)):
        assert has_ttl_since(document, ttl, started_at)


async def test_running_instances_are_listed_like_in_grpc(plane: Plane, client: Client) -> None:
    """GetAuthServers and GetProxies show the same presence as the gRPC service."""
    running_proxy = await plane.proxy()
    assert await list_names(client, "/v2/proxies") == [running_proxy.instance.flags.id]
    assert await list_names(client, "/v2/authservers") == [client.auth.instance.flags.id]
    server = {"metadata": {"name": "a-9"}, "spec": {"addr": "10.0.0.9:3025"}}
    assert (await client("POST", "/v2/authservers", {"server": server, "ttl": SECOND * 9}))[0] == 200
    assert "a-9" in await list_names(client, "/v2/authservers")


async def test_proxy_resource_names_the_auth_of_its_last_heartbeat(plane: Plane, client: Client) -> None:
    """The auth overwrites the sender's label; resources of auths do not get the label."""
    forged_document = proxy_document("p-1", labels={HEARTBEAT_AUTH_LABEL: "somebody"})
    first_auth_id = client.auth.instance.flags.id
    for auth in (client.auth, await plane.auth("auth-2")):
        client.auth = auth
        assert (await client("POST", "/v2/proxies", {"server": forged_document}))[0] == 200
        (document,) = (await client("GET", "/v2/proxies"))[1]
        assert document["metadata"]["labels"][HEARTBEAT_AUTH_LABEL] == auth.instance.flags.id
    assert first_auth_id != client.auth.instance.flags.id
    server = {**forged_document, "kind": "auth_server"}
    assert (await client("POST", "/v2/authservers", {"server": server}))[0] == 200
    labels = {
        server_document["metadata"]["name"]: server_document["metadata"].get("labels", {})
        for server_document in (await client("GET", "/v2/authservers"))[1]
    }
    assert HEARTBEAT_AUTH_LABEL not in labels["p-1"]


async def test_proxies_are_deleted_by_name_or_all_at_once(client: Client) -> None:
    """A second deletion by name returns 404."""
    for name in ("p-1", "p-2", "p-3"):
        await client("POST", "/v2/proxies", {"server": proxy_document(name)})
    assert await client("DELETE", "/v2/proxies/p-1") == (200, {"message": "ok"})
    code, response = await client("DELETE", "/v2/proxies/p-1")
    assert (code, response) == (404, {"error": {"message": "proxy 'p-1' was not found"}})
    assert await list_names(client, "/v2/proxies") == ["p-2", "p-3"]
    assert await client("DELETE", "/v2/proxies") == (200, {"message": "ok"})
    assert await list_names(client, "/v2/proxies") == []


async def test_tunnel_connections_are_written_listed_and_deleted(client: Client) -> None:
    """Lists and deletions cover one connection, one cluster or all; documents keep unknown fields."""
    started_at = datetime.now(UTC)
    for cluster, name in (("leaf", "c-1"), ("leaf", "c-2"), ("other", "c-3")):
        body = {"tunnel_connection": connection_document(cluster, name, extra="kept")}
        assert await client("POST", "/v2/tunnelconnections", body) == (200, {"message": "ok"})
    assert await list_names(client, "/v2/tunnelconnections") == ["c-1", "c-2", "c-3"]
    assert await list_names(client, "/v2/tunnelconnections/leaf") == ["c-1", "c-2"]
    (document,) = (await client("GET", "/v2/tunnelconnections/other"))[1]
    assert (document["sub_kind"], document["spec"]["type"], document["metadata"]["extra"]) == (
        "other",
        "proxy",
        "kept",
    )
    assert has_ttl_since(document, 600, started_at)
    assert await client("DELETE", "/v2/tunnelconnections/leaf/c-1") == (200, {"message": "ok"})
    assert (await client("DELETE", "/v2/tunnelconnections/leaf/c-1"))[0] == 404
    assert await list_names(client, "/v2/tunnelconnections/leaf") == ["c-2"]
    assert await client("DELETE", "/v2/tunnelconnections/leaf") == (200, {"message": "ok"})
    assert await list_names(client, "/v2/tunnelconnections") == ["c-3"]


async def test_expired_tunnel_connection_replaces_and_is_not_listed(client: Client) -> None:
    """A connection with an expiry in the past removes the connection with the same name."""
    for expires in (format_time_after(60), format_time_after(-5)):
        body = {"tunnel_connection": connection_document("leaf", "c-1", expires=expires)}
        assert (await client("POST", "/v2/tunnelconnections", body))[0] == 200
    assert await list_names(client, "/v2/tunnelconnections") == []


async def test_expired_proxy_replaces_and_is_not_listed(client: Client) -> None:
    """A proxy with an expiry in the past removes the proxy with the same name."""
    for expires in (format_time_after(60), format_time_after(-5)):
        assert (await client("POST", "/v2/proxies", {"server": proxy_document("p-1", expires=expires)}))[
            0
        ] == 200
    assert await list_names(client, "/v2/proxies") == []


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "message"),
    [
        ("POST", "/v2/proxies", b"{", 400, "not JSON"),
        ("POST", "/v2/proxies", b"[]", 400, "must be a JSON object"),
        ("POST", "/v2/proxies", b"[" * 100_000, 400, ""),
        ("POST", "/v2/proxies", b" " * 300_000, 413, "262144 bytes"),
        ("POST", "/v2/proxies", {}, 400, "server: missing"),
        (
            "POST",
            "/v2/proxies",
            {"server": {"kind": "node"}},
            400,
            "server.kind: must be 'proxy', not 'node'",
        ),
        ("POST", "/v2/proxies", {"server": {"spec": {"addr": 5}}}, 400, "server: "),
        ("POST", "/v2/authservers", {"server": {"metadata": {"name": "a"}}}, 400, "server.spec.addr: ''"),
        (
            "POST",
            "/v2/proxies",
            {"server": proxy_document("p", labels={CONNECT_LABEL: "nowhere"})},
            400,
            "server.metadata.labels[refloat.dev/connect-addr]: 'nowhere' is not host:port",
        ),
        (
            "POST",
            "/v2/proxies",
            {"server": proxy_document("p", labels={DIAG_LABEL: ":1"})},
            400,
            "diag-addr]: ':1'",
        ),
        (
            "POST",
            "/v2/proxies",
            {"server": proxy_document("p", labels={HTTP_LABEL: "x"})},
            400,
            "http-addr]: 'x'",
        ),
        ("POST", "/v2/proxies", {"server": {}}, 400, "server.metadata.name"),
        ("POST", "/v2/proxies", {"server": proxy_document("a/b")}, 400, "server.metadata.name"),
        ("POST", "/v2/proxies", {"server": proxy_document("a" * 129)}, 400, "server.metadata.name"),
        ("POST", "/v2/proxies", {"server": proxy_document("p"), "ttl": "1m"}, 400, "ttl: "),
        ("POST", "/v2/proxies", {"server": proxy_document("p"), "ttl": -1}, 400, "ttl: "),
        ("POST", "/v2/proxies", {"server": proxy_document("p"), "ttl": 1 << 62}, 400, "ttl: "),
        ("POST", "/v2/tunnelconnections", {}, 400, "tunnel_connection: missing"),
        ("POST", "/v2/tunnelconnections", {"tunnel_connection": {"metadata": 5}}, 400, "must be objects"),
        ("POST", "/v2/tunnelconnections", {"tunnel_connection": {"kind": "x"}}, 400, "kind: "),
        ("POST", "/v2/tunnelconnections", {"tunnel_connection": {}}, 400, "version: missing"),
        (
            "POST",
            "/v2/tunnelconnections",
            {"tunnel_connection": connection_document("", "n")},
            400,
            "cluster_name",
        ),
        (
            "POST",
            "/v2/tunnelconnections",
            {"tunnel_connection": connection_document("c", "n", expires="soon")},
            400,
            "metadata.expires",
        ),
        ("GET", "/v2/tunnelconnections/a%2Fb", None, 400, "the path"),
        ("GET", "/v2/nodes", None, 404, "was not found"),
        ("GET", "/proxies", None, 404, "was not found"),
        ("PUT", "/v2/proxies", b"", 405, "method PUT is not allowed for this path"),
    ],
)
async def test_invalid_request_is_explained_and_stores_nothing(
    client: Client, method: str, path: str, body: Any, code: int, message: str
) -> None:
    """The response has a code and a message in Teleport's format, and the auth keeps serving."""
    status, response = await client(method, path, body)
    assert status == code
    assert message in response["error"]["message"]
    assert await list_names(client, "/v2/proxies") == []
    assert await list_names(client, "/v2/tunnelconnections") == []


async def test_requests_are_counted_by_call_and_code(client: Client) -> None:
    """Requests to unknown paths are counted as one call "unknown"."""
    await client("GET", "/v2/proxies")
    await client("GET", "/nothing")
    lines = (await get_diag(client.auth.instance, "/metrics"))[1].splitlines()
    assert 'refloat_auth_http_requests_total{call="GetProxies",code="200"} 1.0' in lines
    assert 'refloat_auth_http_requests_total{call="unknown",code="404"} 1.0' in lines


async def test_calls_without_backend_return_503(plane: Plane) -> None:
    """The error names the backend."""
    forward, url = await plane.backend_forward()
    auth = await plane.auth(backend=url, ttl=600.0)
    await forward.change(mode=ForwardMode.CUT)
    async with aiohttp.ClientSession() as session:
        for method, path, body in (
            ("GET", "/v2/proxies", None),
            ("POST", "/v2/proxies", {"server": proxy_document("p")}),
            ("DELETE", "/v2/tunnelconnections/leaf", None),
        ):
            code, response = await Client(auth, session)(method, path, body)
            assert (code, "the backend at" in response["error"]["message"]) == (503, True)


@pytest.mark.parametrize(
    ("role", "code"),
    [
        *((role, 403) for role in ("agent", "gateway", "", "Proxy", "auth", "console")),
        ("proxy", 200),
    ],
)
async def test_only_proxy_certificate_writes_its_own_proxy(
    plane: Plane, tmp_path: Path, role: str, code: int
) -> None:
    """With mutual TLS every other certificate can only read."""
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    certificate_files = certificates.of("somebody", role)
    assert certificate_files.certificate is not None
    tls_context = ssl.create_default_context(cafile=str(certificate_files.authority))
    tls_context.load_cert_chain(certificate_files.certificate, certificate_files.key)
    url = f"https://{auth.http_address}/v2/proxies"
    async with aiohttp.ClientSession() as session:
        async with session.get(url, ssl=tls_context) as response:
            assert response.status == 200
        for name, status in (("somebody", code), ("proxy-2", 403)):
            async with session.post(url, ssl=tls_context, json={"server": proxy_document(name)}) as response:
                assert response.status == status


async def test_only_console_deletes_other_proxies(plane: Plane, tmp_path: Path) -> None:
    """A proxy cannot delete another proxy or the whole list."""
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    url = f"https://{auth.http_address}/v2/proxies"
    async with aiohttp.ClientSession() as session:
        for role, path, code in (
            ("proxy", "/p-9", 403),
            ("proxy", "", 403),
            ("console", "/p-9", 404),
            ("console", "", 200),
        ):
            certificate_files = certificates.of(f"a-{role}", role)
            assert certificate_files.certificate is not None
            tls_context = ssl.create_default_context(cafile=str(certificate_files.authority))
            tls_context.load_cert_chain(certificate_files.certificate, certificate_files.key)
            async with session.delete(f"{url}{path}", ssl=tls_context) as response:
                assert response.status == code


@pytest.mark.parametrize(("allow_anonymous", "code"), [(False, 403), (True, 200)])
async def test_write_without_certificate_off_loopback_needs_flag(
    plane: Plane, *, allow_anonymous: bool, code: int
) -> None:
    """From another machine a client without a certificate cannot delete the proxies, unless a flag allows it."""
    running_proxy = await plane.proxy()
    auth = await plane.auth(http=HTTPFlags(("0.0.0.0", 0)), allow_anonymous=allow_anonymous)
    port = auth.http_address.rpartition(":")[2]
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/v2/proxies"
        for call in (session.post(url, json={"server": proxy_document("p")}), session.delete(url)):
            async with call as response:
                assert response.status == code
        async with session.get(url) as response:
            proxy_names = [document["metadata"]["name"] for document in await response.json()]
    assert proxy_names == ([] if allow_anonymous else [running_proxy.instance.flags.id])
