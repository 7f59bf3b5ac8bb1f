"""A proxy that heartbeats through auths: real auths over HTTP, kept alive, left when they are sick."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from fleet.nodes.auth.server import Auth
from fleet.nodes.auth.site import HTTPFlags
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.proxy.heartbeat import AuthPresence, HeartbeatFlags
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.shared import addresses
from fleet.nodes.shared.instance import AuthsUnavailable
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.protocol.instance_labels import HEARTBEAT_AUTH_LABEL, HTTP_LABEL
from fleet.protocol.recovery.announce import ComponentState
from fleet.transport.backend import BackendUnavailableError
from fleet.transport.tls import TLSFiles
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane
from tests.fakes.tcp import serving
from tests.fakes.waiting import eventually


async def through(plane: Plane, *auths: str, **more: Any) -> Proxy:
    """Start a proxy that heartbeats through auths at these HTTP addresses, or those it finds in the backend."""
    flags = HeartbeatFlags(auths=tuple(addresses.parse(address) for address in auths))
    return await plane.proxy(heartbeat=flags, **more)


def presence_of(proxy: Proxy) -> AuthPresence:
    presence = proxy.instance.presence
    assert isinstance(presence, AuthPresence)
    return presence


async def beat(proxy: Proxy) -> None:
    """Heartbeat once more. Raises BackendUnavailable."""
    await presence_of(proxy).put(proxy.instance._resource(time.time()))


async def written_by(proxy: Proxy) -> list[str]:
    """The auths that wrote the resources of proxies, as the resources say."""
    found = await proxy.instance.backend.instances("proxy")
    return [server.metadata.labels.get(HEARTBEAT_AUTH_LABEL, "") for server in found]


def count(node: Auth | Proxy, metric: str, **labels: str) -> float:
    return node.instance.registry.get_sample_value(metric, labels) or 0.0


def used(proxy: Proxy, *auths: Auth) -> tuple[Auth, Auth]:
    """Of two auths the one that has the proxy's connection, and the other."""
    first, second = auths
    return (first, second) if presence_of(proxy).auth == first.http_address else (second, first)


async def test_heartbeat_through_an_auth_of_the_backend(plane: Plane) -> None:
    """The proxy finds the auth in the backend; the auth writes the resource, and its own id into it."""
    auth = await plane.auth()
    (listed,) = await auth.instance.backend.instances("auth")
    assert listed.metadata.labels[HTTP_LABEL] == auth.http_address
    proxy = await through(plane)
    direct = await plane.proxy("proxy-2")
    resources = {one.spec.hostname: one for one in await auth.instance.backend.instances("proxy")}
    labels = dict(resources["proxy-1"].metadata.labels)
    assert labels.pop(HEARTBEAT_AUTH_LABEL) == auth.instance.flags.id
    assert set(labels) == set(resources["proxy-2"].metadata.labels)
    assert resources["proxy-1"].spec.addr == proxy.instance.grpc_address
    assert resources["proxy-1"].metadata.name == proxy.instance.flags.id
    assert proxy.instance.process.state is ComponentState.OK
    assert count(auth, "refloat_auth_http_requests_total", call="UpsertProxy", code="200") == 1
    assert count(proxy, "backend_write_requests_total", component="heartbeat") == 0
    assert count(direct, "backend_write_requests_total", component="heartbeat") == 1
    assert count(proxy, "refloat_proxy_heartbeats_total", outcome="accepted") == 1


async def test_resource_lives_for_the_announce_ttl(plane: Plane) -> None:
    """As when the proxy writes it itself."""
    auth = await plane.auth()
    before = time.time()
    await through(plane, auth.http_address, ttl=90.0)
    (resource,) = await auth.instance.backend.instances("proxy")
    expires = resource.metadata.expires.ToNanoseconds() / 1e9
    assert before + 90 <= expires <= time.time() + 90


async def test_connection_is_kept_alive(plane: Plane) -> None:
    """Heartbeats go over one connection."""
    auth = await plane.auth()
    way = await plane.forward(auth.http_address)
    proxy = await through(plane, addresses.join(*way.listen))
    for _ in range(3):
        await beat(proxy)
    assert way.accepted_count == 1


async def test_connection_close_moves_the_proxy(plane: Plane) -> None:
    """RFD 226: the unhealthy auth takes the heartbeat and ends the connection; the next one goes to the other auth."""
    http = HTTPFlags(close_unhealthy=True)
    auths = [await plane.auth(name, http=http) for name in ("auth-1", "auth-2")]
    proxy = await through(plane, *(auth.http_address for auth in auths))
    sick, well = used(proxy, *auths)
    await beat(proxy)
    assert await written_by(proxy) == [sick.instance.flags.id]
    sick.instance.process.record_failure("auth")
    await beat(proxy)
    assert await written_by(proxy) == [sick.instance.flags.id]
    assert count(sick, "refloat_auth_http_connections_closed_total") == 1
    for _ in range(2):
        await beat(proxy)
        assert await written_by(proxy) == [well.instance.flags.id]
    assert presence_of(proxy).auth == well.http_address
    assert count(proxy, "refloat_proxy_heartbeats_total", outcome="closed") == 1
    assert count(proxy, "refloat_proxy_heartbeats_total", outcome="failed") == 0


async def test_frozen_auth_is_left_within_bounded_time(plane: Plane) -> None:
    """It accepts and answers nothing: after one time limit the same heartbeat goes to the other auth."""
    auths = [await plane.auth(name) for name in ("auth-1", "auth-2")]
    ways = [await plane.forward(auth.http_address) for auth in auths]
    proxy = await through(plane, *(addresses.join(*way.listen) for way in ways), ttl=10.0)
    (frozen,) = (n for n, way in enumerate(ways) if addresses.join(*way.listen) == presence_of(proxy).auth)
    await ways[frozen].change(mode=ForwardMode.HOLD)
    well = auths[1 - frozen].instance.flags.id

    async def moved() -> bool:
        with contextlib.suppress(AuthsUnavailable):  # the other one may be late on a busy machine
            await beat(proxy)
        return await written_by(proxy) == [well]

    await eventually(moved)
    assert count(proxy, "refloat_proxy_heartbeats_total", outcome="failed") >= 1


async def test_answer_without_an_end_is_cut(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers in the place of an auth, and never stops, costs a bounded read."""
    monkeypatch.setattr(AuthPresence, "patience", 0.0)

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
            await writer.drain()

    async with serving(endless) as port:
        with pytest.raises(NodeStartError, match="the response is larger than 64 KiB"):
            await through(plane, f"127.0.0.1:{port}")


async def test_auth_without_its_backend_is_left(plane: Plane) -> None:
    """It answers 503 and keeps the connection: the same heartbeat goes to the other auth."""
    link, url = await plane.backend_forward()
    cut, well = await plane.auth("auth-1", backend=url), await plane.auth("auth-2")
    await link.change(mode=ForwardMode.CUT)
    proxy = await through(plane, cut.http_address, well.http_address)
    for _ in range(3):
        await beat(proxy)
        assert await written_by(proxy) == [well.instance.flags.id]


async def test_proxy_with_no_other_auth_is_unhealthy_until_that_recovers(plane: Plane) -> None:
    """As RFD 226 has it: it cannot heartbeat, so it says so; the sentence has what the auth answered."""
    link, url = await plane.backend_forward()
    auth = await plane.auth(backend=url)
    proxy = await through(plane, auth.http_address, ttl=1.0)
    await link.change(mode=ForwardMode.CUT)
    await eventually(lambda: proxy.instance.process.state is ComponentState.DEGRADED)
    with pytest.raises(AuthsUnavailable, match=rf"auth {auth.http_address}: HTTP 503: the backend at "):
        await beat(proxy)
    await link.change(mode=ForwardMode.PASS)
    await eventually(lambda: proxy.instance.process.state is ComponentState.OK)


async def test_proxy_that_cannot_read_the_backend_does_not_heartbeat(plane: Plane) -> None:
    """Its agents hear of no other proxy: its resource must not keep them on it, however well the auth is."""
    auth = await plane.auth()
    link, url = await plane.backend_forward()
    proxy = await through(plane, auth.http_address, backend=url, ttl=1.0)
    await link.change(mode=ForwardMode.CUT)
    with pytest.raises(BackendUnavailableError, match="the backend at"):
        await beat(proxy)
    await eventually(lambda: proxy.instance.process.state is ComponentState.DEGRADED)


async def test_orderly_end_deletes_the_resource_through_an_auth(plane: Plane) -> None:
    """Gone at once; a resource that is not there any more is as good."""
    auth = await plane.auth()
    first, second = await through(plane), await through(plane, name="proxy-2")
    await plane.stop(first)
    assert count(auth, "refloat_auth_http_requests_total", call="DeleteProxy", code="200") == 1
    (left,) = await auth.instance.backend.instances("proxy")
    assert left.spec.hostname == "proxy-2"
    await auth.instance.backend.delete_instance("proxy", second.instance.flags.id)
    await presence_of(second).delete()
    assert count(auth, "refloat_auth_http_requests_total", call="DeleteProxy", code="404") == 1


async def test_auth_that_starts_again_takes_the_next_heartbeat(plane: Plane) -> None:
    """The connection that was kept is dead, and the request is sent again over a new one."""
    auth = await plane.auth()
    proxy = await through(plane, auth.http_address)
    await plane.stop(auth)
    again = await plane.auth(http=HTTPFlags(addresses.parse(auth.http_address)))
    await beat(proxy)
    assert count(again, "refloat_auth_http_requests_total", call="UpsertProxy", code="200") == 1
    assert count(proxy, "refloat_proxy_heartbeats_total", outcome="failed") == 0


async def test_proxy_waits_for_the_first_auth(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of a fleet start in any order; without any auth for too long it says what is missing."""
    monkeypatch.setattr(AuthPresence, "patience", 0.0)
    with pytest.raises(
        NodeStartError,
        match=r"no auth in the backend advertises an HTTP port \(check that an auth is running",
    ):
        await through(plane)


async def test_certificate_names_the_proxy(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With mutual TLS a proxy writes its own resource and no other; its auth must have a certificate of an auth."""
    monkeypatch.setattr(AuthPresence, "patience", 0.0)
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    await through(plane, auth.http_address, tls=certificates.of("proxy-1", "proxy"))
    for name, role, why in (
        ("proxy-2", "proxy", "HTTP 403: the certificate is for proxy-2, not for proxy"),
        (
            "auth-2",
            "auth",
            "HTTP 403: not allowed: a client needs a certificate with the role 'proxy' to call UpsertProxy",
        ),
    ):
        with pytest.raises(NodeStartError, match=why):
            await through(plane, auth.http_address, name="proxy-3", tls=certificates.of(name, role))
    impostor = await plane.auth("auth-3", tls=certificates.of("proxy-9", "proxy"))
    with pytest.raises(NodeStartError, match="CERTIFICATE_VERIFY_FAILED"):
        await through(plane, impostor.http_address, name="proxy-4", tls=certificates.of("proxy-4", "proxy"))


async def test_files_of_tls_that_are_none(plane: Plane, tmp_path: Path) -> None:
    """One sentence, before anything listens."""
    nonsense = tmp_path / "x.pem"
    nonsense.write_text("nonsense")
    tls = Certificates(tmp_path / "keys").of("proxy-1", "proxy")
    with pytest.raises(NodeStartError, match=r"cannot use .*x\.pem"):
        await through(plane, "127.0.0.1:1", tls=TLSFiles(tls.certificate, tls.key, nonsense))
