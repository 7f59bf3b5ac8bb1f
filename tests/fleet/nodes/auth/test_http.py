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
from tests.fakes.plane import Plane, get

SECOND = 1_000_000_000


class Client:
    """Asks one auth."""

    def __init__(self, auth: Auth, session: aiohttp.ClientSession) -> None:
        self.auth = auth
        self.session = session

    async def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        url = f"http://{self.auth.http_address}{path}"
        async with self.session.request(method, url, data=data) as answer:
            assert answer.headers["content-type"] == "application/json"
            return answer.status, await answer.json()


@pytest.fixture
async def ask(plane: Plane) -> AsyncIterator[Client]:
    """A client of a running auth."""
    auth = await plane.auth()
    async with aiohttp.ClientSession() as session:
        yield Client(auth, session)


def proxy(name: str, **metadata: Any) -> dict[str, Any]:
    """A proxy as Teleport writes it, with a key nobody here knows."""
    return {
        "kind": "proxy",
        "version": "v2",
        "metadata": {"name": name, "labels": {"a": "b"}, **metadata},
        "spec": {"addr": "10.0.0.8:3080", "hostname": name, "version": "18.0.0", "rotation": {"state": ""}},
    }


def connection(cluster: str, name: str, **metadata: Any) -> dict[str, Any]:
    """A tunnel connection as Teleport writes it."""
    return {
        "kind": "tunnel_connection",
        "version": "v2",
        "metadata": {"name": name, **metadata},
        "spec": {"cluster_name": cluster, "proxy_name": "p", "last_heartbeat": now_text(), "type": "proxy"},
    }


def now_text(later: float = 0.0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=later)).isoformat().replace("+00:00", "Z")


def lives_for(document: dict[str, Any], ttl: float, began: datetime) -> bool:
    """Whether it was written between then and now, to live for so long."""
    written = datetime.fromisoformat(document["metadata"]["expires"]) - timedelta(seconds=ttl)
    slack = timedelta(milliseconds=10)  # what is rounded on the way
    return began - slack <= written <= datetime.now(UTC) + slack


async def names(ask: Client, path: str) -> list[str]:
    code, found = await ask("GET", path)
    assert code == 200
    return sorted(one["metadata"]["name"] for one in found)


async def test_upsert_and_get_proxies(plane: Plane, ask: Client) -> None:
    """What UpsertProxy wrote GetProxies lists, on another auth too, in Teleport's JSON, with its expiry."""
    began = datetime.now(UTC)
    assert await ask("POST", "/v2/proxies", {"server": proxy("p-1"), "ttl": 60 * SECOND}) == (
        200,
        {"message": "ok"},
    )
    assert (await ask("POST", "/v1/proxies", {"server": proxy("p-2", expires=now_text(30))}))[0] == 200
    assert (await ask("POST", "/v2/proxies", {"server": proxy("p-3")}))[0] == 200
    ask.auth = await plane.auth("auth-2")
    code, found = await ask("GET", "/v2/proxies")
    assert code == 200
    first, second, third = sorted(found, key=lambda one: str(one["metadata"]["name"]))
    assert first["spec"] == {"addr": "10.0.0.8:3080", "hostname": "p-1", "version": "18.0.0"}
    assert (first["kind"], first["version"]) == ("proxy", "v2")
    assert first["metadata"]["labels"]["a"] == "b"
    assert first["metadata"]["namespace"] == "default"
    for one, ttl in ((first, 60), (second, 30), (third, 600)):
        assert lives_for(one, ttl, began)


async def test_running_instances_are_listed(plane: Plane, ask: Client) -> None:
    """GetAuthServers and GetProxies show the same presence as gRPC does."""
    running = await plane.proxy()
    assert await names(ask, "/v2/proxies") == [running.instance.flags.id]
    assert await names(ask, "/v2/authservers") == [ask.auth.instance.flags.id]
    server = {"metadata": {"name": "a-9"}, "spec": {"addr": "10.0.0.9:3025"}}
    assert (await ask("POST", "/v2/authservers", {"server": server, "ttl": SECOND * 9}))[0] == 200
    assert "a-9" in await names(ask, "/v2/authservers")


async def test_auth_writes_its_id_into_the_resource_of_a_proxy(plane: Plane, ask: Client) -> None:
    """The one that took the newest heartbeat, whatever the sender says; not into that of an auth."""
    forged = proxy("p-1", labels={HEARTBEAT_AUTH_LABEL: "somebody"})
    own = ask.auth.instance.flags.id
    for auth in (ask.auth, await plane.auth("auth-2")):
        ask.auth = auth
        assert (await ask("POST", "/v2/proxies", {"server": forged}))[0] == 200
        (found,) = (await ask("GET", "/v2/proxies"))[1]
        assert found["metadata"]["labels"][HEARTBEAT_AUTH_LABEL] == auth.instance.flags.id
    assert own != ask.auth.instance.flags.id
    server = {**forged, "kind": "auth_server"}
    assert (await ask("POST", "/v2/authservers", {"server": server}))[0] == 200
    labels = {
        one["metadata"]["name"]: one["metadata"].get("labels", {})
        for one in (await ask("GET", "/v2/authservers"))[1]
    }
    assert HEARTBEAT_AUTH_LABEL not in labels["p-1"]


async def test_delete_proxies(ask: Client) -> None:
    """One by name, NotFound the second time; then all."""
    for name in ("p-1", "p-2", "p-3"):
        await ask("POST", "/v2/proxies", {"server": proxy(name)})
    assert await ask("DELETE", "/v2/proxies/p-1") == (200, {"message": "ok"})
    code, said = await ask("DELETE", "/v2/proxies/p-1")
    assert (code, said) == (404, {"error": {"message": "proxy 'p-1' was not found"}})
    assert await names(ask, "/v2/proxies") == ["p-2", "p-3"]
    assert await ask("DELETE", "/v2/proxies") == (200, {"message": "ok"})
    assert await names(ask, "/v2/proxies") == []


async def test_tunnel_connections(ask: Client) -> None:
    """Upsert, of one cluster, of all, delete one, delete a cluster's; documents come back as they were."""
    began = datetime.now(UTC)
    for cluster, name in (("leaf", "c-1"), ("leaf", "c-2"), ("other", "c-3")):
        body = {"tunnel_connection": connection(cluster, name, extra="kept")}
        assert await ask("POST", "/v2/tunnelconnections", body) == (200, {"message": "ok"})
    assert await names(ask, "/v2/tunnelconnections") == ["c-1", "c-2", "c-3"]
    assert await names(ask, "/v2/tunnelconnections/leaf") == ["c-1", "c-2"]
    (other,) = (await ask("GET", "/v2/tunnelconnections/other"))[1]
    assert (other["sub_kind"], other["spec"]["type"], other["metadata"]["extra"]) == (
        "other",
        "proxy",
        "kept",
    )
    assert lives_for(other, 600, began)
    assert await ask("DELETE", "/v2/tunnelconnections/leaf/c-1") == (200, {"message": "ok"})
    assert (await ask("DELETE", "/v2/tunnelconnections/leaf/c-1"))[0] == 404
    assert await names(ask, "/v2/tunnelconnections/leaf") == ["c-2"]
    assert await ask("DELETE", "/v2/tunnelconnections/leaf") == (200, {"message": "ok"})
    assert await names(ask, "/v2/tunnelconnections") == ["c-3"]


async def test_tunnel_connection_that_expired(ask: Client) -> None:
    """One whose time is over is not listed, and ends the one that stood under its name."""
    for expires in (now_text(60), now_text(-5)):
        body = {"tunnel_connection": connection("leaf", "c-1", expires=expires)}
        assert (await ask("POST", "/v2/tunnelconnections", body))[0] == 200
    assert await names(ask, "/v2/tunnelconnections") == []


async def test_proxy_that_expired(ask: Client) -> None:
    """A server's resource likewise."""
    for expires in (now_text(60), now_text(-5)):
        assert (await ask("POST", "/v2/proxies", {"server": proxy("p-1", expires=expires)}))[0] == 200
    assert await names(ask, "/v2/proxies") == []


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "said"),
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
            {"server": proxy("p", labels={CONNECT_LABEL: "nowhere"})},
            400,
            "server.metadata.labels[refloat.dev/connect-addr]: 'nowhere' is not host:port",
        ),
        ("POST", "/v2/proxies", {"server": proxy("p", labels={DIAG_LABEL: ":1"})}, 400, "diag-addr]: ':1'"),
        ("POST", "/v2/proxies", {"server": proxy("p", labels={HTTP_LABEL: "x"})}, 400, "http-addr]: 'x'"),
        ("POST", "/v2/proxies", {"server": {}}, 400, "server.metadata.name"),
        ("POST", "/v2/proxies", {"server": proxy("a/b")}, 400, "server.metadata.name"),
        ("POST", "/v2/proxies", {"server": proxy("a" * 129)}, 400, "server.metadata.name"),
        ("POST", "/v2/proxies", {"server": proxy("p"), "ttl": "1m"}, 400, "ttl: "),
        ("POST", "/v2/proxies", {"server": proxy("p"), "ttl": -1}, 400, "ttl: "),
        ("POST", "/v2/proxies", {"server": proxy("p"), "ttl": 1 << 62}, 400, "ttl: "),
        ("POST", "/v2/tunnelconnections", {}, 400, "tunnel_connection: missing"),
        ("POST", "/v2/tunnelconnections", {"tunnel_connection": {"metadata": 5}}, 400, "must be objects"),
        ("POST", "/v2/tunnelconnections", {"tunnel_connection": {"kind": "x"}}, 400, "kind: "),
        ("POST", "/v2/tunnelconnections", {"tunnel_connection": {}}, 400, "version: missing"),
        ("POST", "/v2/tunnelconnections", {"tunnel_connection": connection("", "n")}, 400, "cluster_name"),
        (
            "POST",
            "/v2/tunnelconnections",
            {"tunnel_connection": connection("c", "n", expires="soon")},
            400,
            "metadata.expires",
        ),
        ("GET", "/v2/tunnelconnections/a%2Fb", None, 400, "the path"),
        ("GET", "/v2/nodes", None, 404, "was not found"),
        ("GET", "/proxies", None, 404, "was not found"),
        ("PUT", "/v2/proxies", b"", 405, "method PUT is not allowed for this path"),
    ],
)
async def test_requests_that_are_wrong(
    ask: Client, method: str, path: str, body: Any, code: int, said: str
) -> None:
    """A code and a sentence in Teleport's shape, nothing stored, and the auth goes on."""
    found, answer = await ask(method, path, body)
    assert found == code
    assert said in answer["error"]["message"]
    assert await names(ask, "/v2/proxies") == []
    assert await names(ask, "/v2/tunnelconnections") == []


async def test_requests_are_counted(ask: Client) -> None:
    """By call and code."""
    await ask("GET", "/v2/proxies")
    await ask("GET", "/nothing")
    lines = (await get(ask.auth.instance, "/metrics"))[1].splitlines()
    assert 'refloat_auth_http_requests_total{call="GetProxies",code="200"} 1.0' in lines
    assert 'refloat_auth_http_requests_total{call="unknown",code="404"} 1.0' in lines


async def test_backend_lost(plane: Plane) -> None:
    """503 with a sentence."""
    link, url = await plane.backend_forward()
    auth = await plane.auth(backend=url, ttl=600.0)
    await link.change(mode=ForwardMode.CUT)
    async with aiohttp.ClientSession() as session:
        for method, path, body in (
            ("GET", "/v2/proxies", None),
            ("POST", "/v2/proxies", {"server": proxy("p")}),
            ("DELETE", "/v2/tunnelconnections/leaf", None),
        ):
            code, said = await Client(auth, session)(method, path, body)
            assert (code, "the backend at" in said["error"]["message"]) == (503, True)


@pytest.mark.parametrize(
    ("role", "code"),
    [
        *((role, 403) for role in ("agent", "gateway", "", "Proxy", "auth", "console")),
        ("proxy", 200),
    ],
)
async def test_who_may_write(plane: Plane, tmp_path: Path, role: str, code: int) -> None:
    """With mutual TLS a proxy writes its own resource, and no other; every other certificate reads."""
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    theirs = certificates.of("somebody", role)
    assert theirs.certificate is not None
    showing = ssl.create_default_context(cafile=str(theirs.authority))
    showing.load_cert_chain(theirs.certificate, theirs.key)
    url = f"https://{auth.http_address}/v2/proxies"
    async with aiohttp.ClientSession() as session:
        async with session.get(url, ssl=showing) as answer:
            assert answer.status == 200
        for name, status in (("somebody", code), ("proxy-2", 403)):
            async with session.post(url, ssl=showing, json={"server": proxy(name)}) as answer:
                assert answer.status == status


async def test_operators_delete_any_proxy(plane: Plane, tmp_path: Path) -> None:
    """A proxy deletes its own resource alone, and empties no list."""
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
            theirs = certificates.of(f"a-{role}", role)
            assert theirs.certificate is not None
            showing = ssl.create_default_context(cafile=str(theirs.authority))
            showing.load_cert_chain(theirs.certificate, theirs.key)
            async with session.delete(f"{url}{path}", ssl=showing) as answer:
                assert answer.status == code


@pytest.mark.parametrize(("anybody", "code"), [(False, 403), (True, 200)])
async def test_without_certificates_off_loopback(plane: Plane, *, anybody: bool, code: int) -> None:
    """Nobody without a certificate empties the list of proxies from another machine, unless a flag says so."""
    running = await plane.proxy()
    auth = await plane.auth(http=HTTPFlags(("0.0.0.0", 0)), anybody=anybody)
    port = auth.http_address.rpartition(":")[2]
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/v2/proxies"
        for call in (session.post(url, json={"server": proxy("p")}), session.delete(url)):
            async with call as answer:
                assert answer.status == code
        async with session.get(url) as answer:
            names = [one["metadata"]["name"] for one in await answer.json()]
    assert names == ([] if anybody else [running.instance.flags.id])
