"""Heartbeats of an instance, and what it says of itself while they fail."""

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
from fleet.protocol.recovery.announce import readyz
from fleet.transport import backend
from tests.fakes.plane import Plane, get, serving
from tests.fakes.waiting import eventually
from tests.fleet.conftest import HASTY


async def test_healthy_instance(plane: Plane) -> None:
    """It serves, its ports say so with Teleport's codes and names, and its resource is in the backend."""
    auth = (await plane.auth()).instance
    assert await serving(auth)
    assert await get(auth, "/healthz") == (200, '{"status":"ok"}')
    code, body = await get(auth, "/readyz")
    assert (code, json.loads(body)["status"]) == (200, "ok")
    metrics = (await get(auth, "/metrics"))[1].splitlines()
    assert "process_state 0.0" in metrics
    assert any(line.startswith("teleport_build_info{") for line in metrics)
    assert any(line.startswith('backend_write_requests_total{component="heartbeat"}') for line in metrics)
    (resource,) = await auth.backend.instances("auth")
    assert resource.metadata.name == auth.flags.id
    assert dict(resource.metadata.labels) == {
        "refloat.dev/diag-addr": auth.diag_address,
        "refloat.dev/announce-ttl": "10m0s",
        "refloat.dev/http-addr": auth.labels["refloat.dev/http-addr"],
    }
    assert (resource.spec.hostname, resource.spec.addr) == ("auth-1", auth.grpc_address)


async def test_advertised_addresses(plane: Plane) -> None:
    """What stands before its ports is what others are told."""
    auth = await plane.auth(advertise=("10.0.0.1", 1), advertise_diag=("::1", 2), region="eu-west")
    (resource,) = await auth.instance.backend.instances("auth")
    assert resource.spec.addr == "10.0.0.1:1"
    assert resource.metadata.labels["refloat.dev/diag-addr"] == "[::1]:2"
    assert resource.metadata.labels["refloat.dev/region"] == "eu-west"


async def test_resource_stays_alive(plane: Plane) -> None:
    """It heartbeats before its TTL ends, again and again."""
    auth = (await plane.auth(ttl=1.0)).instance
    seen = set()

    async def renewed() -> bool:
        found = await auth.backend.instances("auth")
        seen.update(resource.metadata.expires.ToNanoseconds() for resource in found)
        return len(seen) > 3

    await eventually(renewed)


@pytest.mark.parametrize("fault", [ForwardMode.CUT, ForwardMode.HOLD])
async def test_backend_lost_and_back(
    plane: Plane, fault: ForwardMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its next heartbeat: NOT_SERVING and 503. Back: recovering with 400, then ok by a second heartbeat."""
    link, url = await plane.backend_forward()
    auth = (await plane.auth(backend=url, ttl=1.0)).instance
    await link.change(mode=fault)
    monkeypatch.setattr(backend, "TIMEOUT", HASTY)

    async def degraded() -> bool:
        return (await get(auth, "/readyz"))[0] == 503 and not await serving(auth)

    await eventually(degraded)
    assert "process_state 2.0" in (await get(auth, "/metrics"))[1].splitlines()
    codes: list[int] = []
    auth.process.listen(lambda state: codes.append(readyz(state)[0]))
    monkeypatch.setattr(backend, "TIMEOUT", 40.0)
    await link.change(mode=ForwardMode.PASS)

    async def ok() -> bool:
        return (await get(auth, "/readyz"))[0] == 200

    await eventually(ok)
    assert codes[-3:] == [503, 400, 200]
    assert await serving(auth)


async def test_orderly_end_deletes_the_resource(plane: Plane, valkey_url: str, prefix: str) -> None:
    """Gone from the backend at once, not after a TTL."""
    first = await plane.auth("auth-1", ttl=600.0)
    second = await plane.auth("auth-2", ttl=600.0)
    await plane.stop(first)
    (left,) = await second.instance.backend.instances("auth")
    assert left.spec.hostname == "auth-2"


async def test_backend_down_at_start(plane: Plane) -> None:
    """One sentence that names the backend, and nothing is left listening."""
    link, url = await plane.backend_forward()
    await link.change(mode=ForwardMode.CUT)
    instance = Instance("auth", plane.instance_flags("auth", "auth-1", backend=url))
    with pytest.raises(lifecycle.NodeStartError, match=r"the backend at 127\.0\.0\.1:\d+"):
        await instance.start()
    host, port = instance.grpc_address.split(":")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port))):
        pass


@pytest.mark.parametrize("which", ["listen", "diag_listen"])
async def test_port_in_use(plane: Plane, which: str) -> None:
    """A port somebody has is a start that fails, with the port in the sentence."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = taken.getsockname()
        instance = Instance("auth", plane.instance_flags("auth", "auth-1", **{which: address}))
        with pytest.raises(lifecycle.NodeStartError, match=f"cannot listen on 127.0.0.1:{address[1]}"):
            await instance.start()


def test_backend_is_no_url(plane: Plane) -> None:
    """A wrong flag is named."""
    with pytest.raises(lifecycle.NodeStartError, match="--backend 'nonsense'"):
        Instance("auth", plane.instance_flags("auth", "auth-1", backend="nonsense"))


async def test_draining_is_in_its_resource(plane: Plane) -> None:
    """Other instances read it within moments, not with the next heartbeat, and read as soon that it is over."""
    proxy = (await plane.proxy(ttl=600.0)).instance

    async def said() -> str | None:
        (resource,) = await proxy.backend.instances("proxy")
        return resource.metadata.labels.get(DRAINING_LABEL)

    async def drains() -> bool:
        return await said() == "kernel update"

    async def takes() -> bool:
        return await said() is None

    assert await takes()
    proxy.declared_status.drain("kernel update")
    await eventually(drains)
    proxy.declared_status.undrain()
    await eventually(takes)


async def test_password_of_the_backend_from_a_file(plane: Plane, tmp_path: Path) -> None:
    """It is used for an address that has none; without it the backend refuses, and a file that is gone is named."""
    url = urlsplit(plane.backend_url)
    assert url.password is not None
    bare, file = f"redis://{url.hostname}:{url.port}/0", tmp_path / "password"
    file.write_text(f"{url.password}\n")
    auth = await plane.auth(backend=bare, backend_password_file=file)
    assert len(await auth.instance.backend.instances("auth")) == 1
    with pytest.raises(lifecycle.NodeStartError, match="the backend at"):
        await plane.auth("auth-2", backend=bare)
    with pytest.raises(lifecycle.NodeStartError, match=r"cannot read --backend-password-file "):
        Instance("auth", plane.instance_flags("auth", "auth-3", backend_password_file=tmp_path / "none"))
