"""Heartbeats of an instance, and its status while they fail."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.shared import lifecycle
from fleet.nodes.shared.instance import Instance
from fleet.protocol.instance_labels import DRAINING_LABEL
from fleet.protocol.recovery.announce import readyz_response
from fleet.transport import backend
from tests.fakes.plane import Plane, get_diag, is_serving
from tests.fakes.waiting import eventually
from tests.fleet.conftest import HASTY


async def test_healthy_instance_reports_ok_and_has_a_resource(plane: Plane) -> None:
    """The health service, `/readyz` and the metrics agree, and the backend has the resource."""
    auth = (await plane.auth()).instance
    assert await is_serving(auth)
    assert await get_diag(auth, "/healthz") == (200, '{"status":"ok"}')
    code, body = await get_diag(auth, "/readyz")
    assert (code, json.loads(body)["status"]) == (200, "ok")
    metrics = (await get_diag(auth, "/metrics"))[1].splitlines()
    assert "process_state 0.0" in metrics
    assert any(line.startswith("teleport_build_info{") for line in metrics)
    assert any(line.startswith('backend_write_requests_total{component="heartbeat"}') for line in metrics)
    (resource,) = await auth.backend.list_instances("auth")
    assert resource.metadata.name == auth.flags.id
    assert dict(resource.metadata.labels) == {
        "refloat.dev/diag-addr": auth.diag_address,
        "refloat.dev/announce-ttl": "10m0s",
        "refloat.dev/http-addr": auth.labels["refloat.dev/http-addr"],
    }
    assert (resource.spec.hostname, resource.spec.addr) == ("auth-1", auth.grpc_address)


async def test_resource_has_the_advertised_addresses(plane: Plane) -> None:
    """Other instances use these addresses instead of the listening ports."""
    auth = await plane.auth(advertise=("10.0.0.1", 1), advertise_diag=("::1", 2), region="eu-west")
    (resource,) = await auth.instance.backend.list_instances("auth")
    assert resource.spec.addr == "10.0.0.1:1"
    assert resource.metadata.labels["refloat.dev/diag-addr"] == "[::1]:2"
    assert resource.metadata.labels["refloat.dev/region"] == "eu-west"


async def test_heartbeats_renew_the_resource_before_its_ttl(plane: Plane) -> None:
    """The expiry of the resource changes again and again."""
    auth = (await plane.auth(ttl=1.0)).instance
    expiries = set()

    async def is_renewed() -> bool:
        resources = await auth.backend.list_instances("auth")
        expiries.update(resource.metadata.expires.ToNanoseconds() for resource in resources)
        return len(expiries) > 3

    await eventually(is_renewed)


@pytest.mark.parametrize("fault", [ForwardMode.CUT, ForwardMode.HOLD])
async def test_instance_without_backend_is_not_serving_and_recovers(
    plane: Plane, fault: ForwardMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the backend `/readyz` is 503; with it 400 (recovering), and 200 after a second heartbeat."""
    forward, url = await plane.backend_forward()
    auth = (await plane.auth(backend=url, ttl=1.0)).instance
    await forward.change(mode=fault)
    monkeypatch.setattr(backend, "TIMEOUT", HASTY)

    async def is_degraded() -> bool:
        return (await get_diag(auth, "/readyz"))[0] == 503 and not await is_serving(auth)

    await eventually(is_degraded)
    assert "process_state 2.0" in (await get_diag(auth, "/metrics"))[1].splitlines()
    codes: list[int] = []
    auth.process.add_listener(lambda state: codes.append(readyz_response(state)[0]))
    monkeypatch.setattr(backend, "TIMEOUT", 40.0)
    await forward.change(mode=ForwardMode.PASS)

    async def is_ready() -> bool:
        return (await get_diag(auth, "/readyz"))[0] == 200

    await eventually(is_ready)
    assert codes[-3:] == [503, 400, 200]
    assert await is_serving(auth)


async def test_stopped_instance_deletes_its_resource(plane: Plane, valkey_url: str, prefix: str) -> None:
    """The resource is deleted at once and not after its TTL."""
    first = await plane.auth("auth-1", ttl=600.0)
    second = await plane.auth("auth-2", ttl=600.0)
    await plane.stop(first)
    (resource,) = await second.instance.backend.list_instances("auth")
    assert resource.spec.hostname == "auth-2"


async def test_start_without_backend_fails_and_closes_ports(plane: Plane) -> None:
    """The error names the backend, and no port stays open."""
    forward, url = await plane.backend_forward()
    await forward.change(mode=ForwardMode.CUT)
    instance = Instance("auth", plane.instance_flags("auth", "auth-1", backend=url))
    with pytest.raises(lifecycle.NodeStartError, match=r"the backend at 127\.0\.0\.1:\d+"):
        await instance.start()
    host, port = instance.grpc_address.split(":")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port))):
        pass


@pytest.mark.parametrize("flag", ["listen", "diag_listen"])
async def test_port_in_use_stops_the_start(plane: Plane, flag: str) -> None:
    """The error names the port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = listener.getsockname()
        instance = Instance("auth", plane.instance_flags("auth", "auth-1", **{flag: address}))
        with pytest.raises(lifecycle.NodeStartError, match=f"cannot listen on 127.0.0.1:{address[1]}"):
            await instance.start()


def test_invalid_backend_url_is_named(plane: Plane) -> None:
    """The error names the flag."""
    with pytest.raises(lifecycle.NodeStartError, match="--backend 'nonsense'"):
        Instance("auth", plane.instance_flags("auth", "auth-1", backend="nonsense"))


async def test_draining_label_is_updated_at_once(plane: Plane) -> None:
    """Other instances see the start and the end of the drain before the next heartbeat."""
    proxy = (await plane.proxy(ttl=600.0)).instance

    async def read_draining_label() -> str | None:
        (resource,) = await proxy.backend.list_instances("proxy")
        return resource.metadata.labels.get(DRAINING_LABEL)

    async def is_draining() -> bool:
        return await read_draining_label() == "kernel update"

    async def is_accepting() -> bool:
        return await read_draining_label() is None

    assert await is_accepting()
    proxy.declared_status.drain("kernel update")
    await eventually(is_draining)
    proxy.declared_status.undrain()
    await eventually(is_accepting)


async def test_backend_password_is_read_from_a_file(plane: Plane, tmp_path: Path) -> None:
    """The password is used for a URL without a password; a missing file is named."""
    url = urlsplit(plane.backend_url)
    assert url.password is not None
    url_without_password, file = f"redis://{url.hostname}:{url.port}/0", tmp_path / "password"
    file.write_text(f"{url.password}\n")
    auth = await plane.auth(backend=url_without_password, backend_password_file=file)
    assert len(await auth.instance.backend.list_instances("auth")) == 1
    with pytest.raises(lifecycle.NodeStartError, match="the backend at"):
        await plane.auth("auth-2", backend=url_without_password)
    with pytest.raises(lifecycle.NodeStartError, match=r"cannot read --backend-password-file "):
        Instance("auth", plane.instance_flags("auth", "auth-3", backend_password_file=tmp_path / "none"))
