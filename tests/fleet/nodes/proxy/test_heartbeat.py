"""A proxy that sends heartbeats through auths: over HTTP, with kept connections, away from unhealthy auths."""

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
from fleet.nodes.shared.instance import AuthsUnavailableError
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.protocol.instance_labels import HEARTBEAT_AUTH_LABEL, HTTP_LABEL
from fleet.protocol.recovery.announce import ComponentState
from fleet.transport.backend import BackendUnavailableError
from fleet.transport.tls import TLSFiles
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane
from tests.fakes.tcp import serve_tcp
from tests.fakes.waiting import eventually


async def start_proxy(plane: Plane, *auths: str, **proxy_flags: Any) -> Proxy:
    """Start a proxy that sends heartbeats to auths at these HTTP addresses, or to those in the backend."""
    flags = HeartbeatFlags(auth_addresses=tuple(addresses.parse(address) for address in auths))
    return await plane.proxy(heartbeat=flags, **proxy_flags)


def presence_of(proxy: Proxy) -> AuthPresence:
    presence = proxy.instance.presence
    assert isinstance(presence, AuthPresence)
    return presence


async def send_heartbeat(proxy: Proxy) -> None:
    """Send one more heartbeat. Raises BackendUnavailable."""
    await presence_of(proxy).put(proxy.instance._make_resource(time.time()))


async def list_heartbeat_auths(proxy: Proxy) -> list[str]:
    """Return the auths that wrote the resources of proxies, by their labels."""
    resources = await proxy.instance.backend.list_instances("proxy")
    return [server.metadata.labels.get(HEARTBEAT_AUTH_LABEL, "") for server in resources]


def read_metric(node: Auth | Proxy, metric: str, **labels: str) -> float:
    return node.instance.registry.get_sample_value(metric, labels) or 0.0


def sort_by_connection(proxy: Proxy, *auths: Auth) -> tuple[Auth, Auth]:
    """Return the auth that has the proxy's connection, and the other auth."""
    first, second = auths
    return (first, second) if presence_of(proxy).auth == first.http_address else (second, first)


async def test_heartbeat_goes_to_an_auth_in_the_backend(plane: Plane) -> None:
    """The proxy finds the auth in the backend; the auth writes the resource with its own id."""
    auth = await plane.auth()
    (auth_resource,) = await auth.instance.backend.list_instances("auth")
    assert auth_resource.metadata.labels[HTTP_LABEL] == auth.http_address
    proxy = await start_proxy(plane)
    direct_proxy = await plane.proxy("proxy-2")
    resources = {
        resource.spec.hostname: resource for resource in await auth.instance.backend.list_instances("proxy")
    }
    labels = dict(resources["proxy-1"].metadata.labels)
    assert labels.pop(HEARTBEAT_AUTH_LABEL) == auth.instance.flags.id
    assert set(labels) == set(resources["proxy-2"].metadata.labels)
    assert resources["proxy-1"].spec.addr == proxy.instance.grpc_address
    assert resources["proxy-1"].metadata.name == proxy.instance.flags.id
    assert proxy.instance.process.state is ComponentState.OK
    assert read_metric(auth, "refloat_auth_http_requests_total", call="UpsertProxy", code="200") == 1
    assert read_metric(proxy, "backend_write_requests_total", component="heartbeat") == 0
    assert read_metric(direct_proxy, "backend_write_requests_total", component="heartbeat") == 1
    assert read_metric(proxy, "refloat_proxy_heartbeats_total", outcome="accepted") == 1


async def test_resource_expires_after_the_announce_ttl(plane: Plane) -> None:
    """The expiry is the same as when the proxy writes its resource."""
    auth = await plane.auth()
    started_at = time.time()
    await start_proxy(plane, auth.http_address, ttl=90.0)
    (resource,) = await auth.instance.backend.list_instances("proxy")
    expires = resource.metadata.expires.ToNanoseconds() / 1e9
    assert started_at + 90 <= expires <= time.time() + 90


async def test_heartbeats_use_one_connection(plane: Plane) -> None:
    """The proxy keeps the connection open."""
    auth = await plane.auth()
    forward = await plane.forward(auth.http_address)
    proxy = await start_proxy(plane, addresses.join(*forward.listen))
    for _ in range(3):
        await send_heartbeat(proxy)
    assert forward.accepted_count == 1


async def test_unhealthy_auth_moves_the_proxy_by_closing_the_connection(plane: Plane) -> None:
    """As in RFD 226: the auth accepts a heartbeat and closes the connection, and the next goes to the other auth."""
    http = HTTPFlags(close_unhealthy=True)
    auths = [await plane.auth(name, http=http) for name in ("auth-1", "auth-2")]
    proxy = await start_proxy(plane, *(auth.http_address for auth in auths))
    unhealthy, healthy = sort_by_connection(proxy, *auths)
    await send_heartbeat(proxy)
    assert await list_heartbeat_auths(proxy) == [unhealthy.instance.flags.id]
    unhealthy.instance.process.record_failure("auth")
    await send_heartbeat(proxy)
    assert await list_heartbeat_auths(proxy) == [unhealthy.instance.flags.id]
    assert read_metric(unhealthy, "refloat_auth_http_connections_closed_total") == 1
    for _ in range(2):
        await send_heartbeat(proxy)
        assert await list_heartbeat_auths(proxy) == [healthy.instance.flags.id]
    assert presence_of(proxy).auth == healthy.http_address
    assert read_metric(proxy, "refloat_proxy_heartbeats_total", outcome="closed") == 1
    assert read_metric(proxy, "refloat_proxy_heartbeats_total", outcome="failed") == 0


async def test_heartbeat_leaves_frozen_auth_after_the_time_limit(plane: Plane) -> None:
    """The auth accepts connections and never responds; the same heartbeat goes to the other auth."""
    auths = [await plane.auth(name) for name in ("auth-1", "auth-2")]
    forwards = [await plane.forward(auth.http_address) for auth in auths]
    proxy = await start_proxy(plane, *(addresses.join(*forward.listen) for forward in forwards), ttl=10.0)
    (frozen,) = (
        n for n, forward in enumerate(forwards) if addresses.join(*forward.listen) == presence_of(proxy).auth
    )
    await forwards[frozen].change(mode=ForwardMode.HOLD)
    healthy_id = auths[1 - frozen].instance.flags.id

    async def has_moved() -> bool:
        with contextlib.suppress(AuthsUnavailableError):  # the other auth may be late on a busy machine
            await send_heartbeat(proxy)
        return await list_heartbeat_auths(proxy) == [healthy_id]

    await eventually(has_moved)
    assert read_metric(proxy, "refloat_proxy_heartbeats_total", outcome="failed") >= 1


async def test_endless_response_is_limited(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy reads at most 64 KiB of a response."""
    monkeypatch.setattr(AuthPresence, "first_heartbeat_timeout", 0.0)

    async def respond_endlessly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
            await writer.drain()

    async with serve_tcp(respond_endlessly) as port:
        with pytest.raises(NodeStartError, match="the response is larger than 64 KiB"):
            await start_proxy(plane, f"127.0.0.1:{port}")


async def test_heartbeat_leaves_auth_without_backend(plane: Plane) -> None:
    """The auth responds with 503 and keeps the connection; the same heartbeat goes to the other auth."""
    forward, url = await plane.backend_forward()
    unhealthy, healthy = await plane.auth("auth-1", backend=url), await plane.auth("auth-2")
    await forward.change(mode=ForwardMode.CUT)
    proxy = await start_proxy(plane, unhealthy.http_address, healthy.http_address)
    for _ in range(3):
        await send_heartbeat(proxy)
        assert await list_heartbeat_auths(proxy) == [healthy.instance.flags.id]


async def test_proxy_is_degraded_until_its_only_auth_recovers(plane: Plane) -> None:
    """As in RFD 226; the error contains the response of the auth."""
    forward, url = await plane.backend_forward()
    auth = await plane.auth(backend=url)
    proxy = await start_proxy(plane, auth.http_address, ttl=1.0)
    await forward.change(mode=ForwardMode.CUT)
    await eventually(lambda: proxy.instance.process.state is ComponentState.DEGRADED)
    with pytest.raises(AuthsUnavailableError, match=rf"auth {auth.http_address}: HTTP 503: the backend at "):
        await send_heartbeat(proxy)
    await forward.change(mode=ForwardMode.PASS)
    await eventually(lambda: proxy.instance.process.state is ComponentState.OK)


async def test_proxy_without_backend_sends_no_heartbeat(plane: Plane) -> None:
    """The proxy's agents learn of no other proxy, so its resource must expire even if the auth is healthy."""
    auth = await plane.auth()
    forward, url = await plane.backend_forward()
    proxy = await start_proxy(plane, auth.http_address, backend=url, ttl=1.0)
    await forward.change(mode=ForwardMode.CUT)
    with pytest.raises(BackendUnavailableError, match="the backend at"):
        await send_heartbeat(proxy)
    await eventually(lambda: proxy.instance.process.state is ComponentState.DEGRADED)


async def test_stopped_proxy_deletes_its_resource_through_an_auth(plane: Plane) -> None:
    """A resource that is already deleted is no error."""
    auth = await plane.auth()
    first, second = await start_proxy(plane), await start_proxy(plane, name="proxy-2")
    await plane.stop(first)
    assert read_metric(auth, "refloat_auth_http_requests_total", call="DeleteProxy", code="200") == 1
    (resource,) = await auth.instance.backend.list_instances("proxy")
    assert resource.spec.hostname == "proxy-2"
    await auth.instance.backend.delete_instance("proxy", second.instance.flags.id)
    await presence_of(second).delete()
    assert read_metric(auth, "refloat_auth_http_requests_total", call="DeleteProxy", code="404") == 1


async def test_heartbeat_is_repeated_to_restarted_auth(plane: Plane) -> None:
    """The kept connection is dead, and the request is sent again over a new connection."""
    auth = await plane.auth()
    proxy = await start_proxy(plane, auth.http_address)
    await plane.stop(auth)
    restarted_auth = await plane.auth(http=HTTPFlags(addresses.parse(auth.http_address)))
    await send_heartbeat(proxy)
    assert (
        read_metric(restarted_auth, "refloat_auth_http_requests_total", call="UpsertProxy", code="200") == 1
    )
    assert read_metric(proxy, "refloat_proxy_heartbeats_total", outcome="failed") == 0


async def test_start_without_any_auth_fails_with_a_hint(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of a fleet start in any order; after its start timeout the proxy reports what is missing."""
    monkeypatch.setattr(AuthPresence, "first_heartbeat_timeout", 0.0)
    with pytest.raises(
        NodeStartError,
        match=r"no auth in the backend advertises an HTTP port \(check that an auth is running",
    ):
        await start_proxy(plane)


async def test_proxy_and_auth_check_each_others_certificate(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With mutual TLS a proxy writes only its own resource, and its auth needs a certificate of an auth."""
    monkeypatch.setattr(AuthPresence, "first_heartbeat_timeout", 0.0)
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    await start_proxy(plane, auth.http_address, tls=certificates.of("proxy-1", "proxy"))
    for name, role, message in (
        ("proxy-2", "proxy", "HTTP 403: the certificate is for proxy-2, not for proxy"),
        (
            "auth-2",
            "auth",
            "HTTP 403: not allowed: a client needs a certificate with the role 'proxy' to call UpsertProxy",
        ),
    ):
        with pytest.raises(NodeStartError, match=message):
            await start_proxy(plane, auth.http_address, name="proxy-3", tls=certificates.of(name, role))
    auth_with_proxy_certificate = await plane.auth("auth-3", tls=certificates.of("proxy-9", "proxy"))
    with pytest.raises(NodeStartError, match="CERTIFICATE_VERIFY_FAILED"):
        await start_proxy(
            plane,
            auth_with_proxy_certificate.http_address,
            name="proxy-4",
            tls=certificates.of("proxy-4", "proxy"),
        )


async def test_invalid_tls_file_stops_the_start(plane: Plane, tmp_path: Path) -> None:
    """The error names the file, before the proxy listens."""
    invalid_file = tmp_path / "x.pem"
    invalid_file.write_text("nonsense")
    tls = Certificates(tmp_path / "keys").of("proxy-1", "proxy")
    with pytest.raises(NodeStartError, match=r"cannot use .*x\.pem"):
        await start_proxy(plane, "127.0.0.1:1", tls=TLSFiles(tls.certificate, tls.key, invalid_file))
