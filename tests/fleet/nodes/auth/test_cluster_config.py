"""ClusterConfigService of real auths: revisions, origins, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.nodes.auth import cluster_config
from fleet.nodes.auth.server import Auth
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.wire import clusterconfig_pb2, clusterconfig_pb2_grpc, types_pb2
from tests.fakes.certificates import Certificates, channel_with
from tests.fakes.plane import Plane, channel_to, get

Stub = Any
GET = clusterconfig_pb2.GetClusterNetworkingConfigRequest()
RESET = clusterconfig_pb2.ResetClusterNetworkingConfigRequest()


def update(config: types_pb2.ClusterNetworkingConfigV2) -> Any:
    return clusterconfig_pb2.UpdateClusterNetworkingConfigRequest(cluster_network_config=config)


def upsert(config: types_pb2.ClusterNetworkingConfigV2) -> Any:
    return clusterconfig_pb2.UpsertClusterNetworkingConfigRequest(cluster_network_config=config)


def origin(config: types_pb2.ClusterNetworkingConfigV2) -> str:
    return config.metadata.labels["teleport.dev/origin"]


@pytest.fixture
async def stub(plane: Plane) -> AsyncIterator[Stub]:
    """A client of one auth."""
    auth = await plane.auth()
    async with channel_to(auth.instance.grpc_address) as channel:
        yield clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_defaults_are_there_from_the_beginning(plane: Plane, stub: Stub) -> None:
    """Get answers the defaults with a revision, the same from every auth, and every time."""
    first = await stub.GetClusterNetworkingConfig(GET)
    assert (first.kind, first.version) == ("cluster_networking_config", "v2")
    assert first.metadata.name == "cluster-networking-config"
    assert (origin(first), bool(first.metadata.revision)) == ("defaults", True)
    assert first.spec.tunnel_strategy.WhichOneof("strategy") == "agent_mesh"
    other = await plane.auth("auth-2")
    async with channel_to(other.instance.grpc_address) as channel:
        found = await clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel).GetClusterNetworkingConfig(GET)
    assert found == first


async def test_update_needs_the_stored_revision(stub: Stub) -> None:
    """Who read first and writes second is refused with FAILED_PRECONDITION, and nothing of his is stored."""
    read = await stub.GetClusterNetworkingConfig(GET)
    read.spec.keep_alive_count_max = 5
    written = await stub.UpdateClusterNetworkingConfig(update(read))
    assert (origin(written), written.spec.keep_alive_count_max) == ("dynamic", 5)
    assert written.metadata.revision != read.metadata.revision
    assert await stub.GetClusterNetworkingConfig(GET) == written
    read.spec.keep_alive_count_max = 7
    code, why = await refusal(stub.UpdateClusterNetworkingConfig(update(read)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert why.startswith("metadata.revision: ")
    assert written.metadata.revision in why
    read.metadata.revision = ""
    assert (await refusal(stub.UpdateClusterNetworkingConfig(update(read))))[0] is code
    assert await stub.GetClusterNetworkingConfig(GET) == written


async def test_updates_at_once(plane: Plane, stub: Stub) -> None:
    """Of ten that read the same revision exactly one wins, over two auths too."""
    other = await plane.auth("auth-2")
    read = await stub.GetClusterNetworkingConfig(GET)
    async with channel_to(other.instance.grpc_address) as channel:
        stubs = [stub, clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)]
        answers = await asyncio.gather(
            *(stubs[n % 2].UpdateClusterNetworkingConfig(update(read)) for n in range(10)),
            return_exceptions=True,
        )
    assert sum(not isinstance(answer, BaseException) for answer in answers) == 1


async def test_upsert_asks_for_no_revision(stub: Stub) -> None:
    """It writes over what is there, fills in defaults, and makes it dynamic, whatever the label said."""
    config = types_pb2.ClusterNetworkingConfigV2(metadata={"revision": "none", "labels": {"a": "b"}})
    config.metadata.labels["teleport.dev/origin"] = "config-file"
    config.spec.graceful_tunnel_closing = True
    written = await stub.UpsertClusterNetworkingConfig(upsert(config))
    assert (origin(written), written.metadata.labels["a"]) == ("dynamic", "b")
    assert (written.spec.graceful_tunnel_closing, written.spec.keep_alive_count_max) == (True, 3)
    assert await stub.GetClusterNetworkingConfig(GET) == written


async def test_unknown_fields_are_stored(stub: Stub) -> None:
    """What a newer client writes and this auth does not know comes back to it."""
    read = await stub.GetClusterNetworkingConfig(GET)
    strange = b"\x9a\x06\x01?"  # field 99, bytes
    config = types_pb2.ClusterNetworkingConfigV2.FromString(read.SerializeToString() + strange)
    config.spec.MergeFromString(strange)
    await stub.UpdateClusterNetworkingConfig(update(config))
    found = await stub.GetClusterNetworkingConfig(GET)
    assert found.SerializeToString().endswith(strange)
    assert found.spec.SerializeToString().endswith(strange)


async def test_reset(stub: Stub) -> None:
    """Back to the defaults and their origin, under a new revision."""
    config = types_pb2.ClusterNetworkingConfigV2()
    config.spec.graceful_tunnel_closing = True
    written = await stub.UpsertClusterNetworkingConfig(upsert(config))
    found = await stub.ResetClusterNetworkingConfig(RESET)
    assert (origin(found), found.spec.graceful_tunnel_closing) == ("defaults", False)
    assert found.metadata.revision not in ("", written.metadata.revision)
    assert await stub.GetClusterNetworkingConfig(GET) == found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"spec": {"keep_alive_interval": -1}},
            "keep_alive_interval: -1ns is out of range. Use 1s to 1h0m0s",
        ),
        ({"spec": {"keep_alive_count_max": 101}}, "keep_alive_count_max: 101 is out of range. Use 1 to 100"),
        ({"spec": {"proxy_listener_mode": 9}}, "proxy_listener_mode: '9' is not a valid choice"),
        (
            {"spec": {"tunnel_strategy": {"proxy_peering": {"agent_connection_count": -1}}}},
            "tunnel_strategy.agent_connection_count: -1",
        ),
        ({"kind": "role"}, "kind: must be 'cluster_networking_config', not 'role'"),
        ({"version": "v1"}, "version: must be 'v2', not 'v1'"),
        ({"metadata": {"name": "mine"}}, "metadata.name: must be 'cluster-networking-config', not 'mine'"),
        ({"metadata": {"description": "x" * 65_536}}, "65536 bytes"),
    ],
)
async def test_what_is_out_of_range_is_named(stub: Stub, change: dict[str, Any], said: str) -> None:
    """INVALID_ARGUMENT with the field's name, for update and upsert; what was stored stays."""
    before = await stub.GetClusterNetworkingConfig(GET)
    config = types_pb2.ClusterNetworkingConfigV2(**change)
    for call in (
        stub.UpdateClusterNetworkingConfig(update(config)),
        stub.UpsertClusterNetworkingConfig(upsert(config)),
    ):
        code, why = await refusal(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert said in why
    assert await stub.GetClusterNetworkingConfig(GET) == before


async def test_no_config_in_the_request(stub: Stub) -> None:
    """A request without a config is refused."""
    code, why = await refusal(
        stub.UpsertClusterNetworkingConfig(clusterconfig_pb2.UpsertClusterNetworkingConfigRequest())
    )
    assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "cluster_network_config: missing")


async def test_writes_are_counted(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    """By call and outcome; who is refused again and again is told of once."""
    auth = await plane.auth()
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        await stub.ResetClusterNetworkingConfig(RESET)
        for _ in range(2):
            await refusal(stub.UpdateClusterNetworkingConfig(update(types_pb2.ClusterNetworkingConfigV2())))
        await refusal(
            stub.UpsertClusterNetworkingConfig(clusterconfig_pb2.UpsertClusterNetworkingConfigRequest())
        )
    refused = [line for line in caplog.messages if line.startswith("networking-config.refused")]
    assert [line.partition(" from ")[0] for line in refused] == [
        "networking-config.refused: update",
        "networking-config.refused: upsert",
    ]
    lines = (await get(auth.instance, "/metrics"))[1].splitlines()
    assert 'refloat_networking_config_writes_total{call="reset",outcome="written"} 1.0' in lines
    assert 'refloat_networking_config_writes_total{call="update",outcome="refused"} 2.0' in lines


async def test_backend_lost(plane: Plane) -> None:
    """Without its backend an auth answers UNAVAILABLE with a sentence."""
    link, url = await plane.backend_forward()
    auth = await plane.auth(backend=url, ttl=600.0)
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        await stub.GetClusterNetworkingConfig(GET)
        await link.change(mode=ForwardMode.CUT)
        for call in (
            stub.GetClusterNetworkingConfig(GET),
            stub.UpsertClusterNetworkingConfig(upsert(types_pb2.ClusterNetworkingConfigV2())),
            stub.ResetClusterNetworkingConfig(RESET),
        ):
            code, why = await refusal(call)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "the backend at 127.0.0.1" in why


async def begun(plane: Plane, name: str, tmp_path: Path, text: str, *, bootstrap: bool) -> Auth:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    given = (
        cluster_config.read_initial_config(None, path)
        if bootstrap
        else cluster_config.read_initial_config(path, None)
    )
    return await plane.auth(name, networking=given)


async def test_config_of_a_file(plane: Plane, tmp_path: Path) -> None:
    """It overwrites what is stored at every start, and cannot be reset; an update makes it dynamic."""
    text = "spec: {keep_alive_count_max: 7}"
    auth = await begun(plane, "auth-1", tmp_path, text, bootstrap=False)
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        found = await stub.GetClusterNetworkingConfig(GET)
        assert (origin(found), found.spec.keep_alive_count_max) == ("config-file", 7)
        code, why = await refusal(stub.ResetClusterNetworkingConfig(RESET))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "file" in why
        found.spec.keep_alive_count_max = 8
        assert origin(await stub.UpdateClusterNetworkingConfig(update(found))) == "dynamic"
        await begun(plane, "auth-2", tmp_path, text, bootstrap=False)
        assert (await stub.GetClusterNetworkingConfig(GET)).spec.keep_alive_count_max == 7


async def test_bootstrap(plane: Plane, tmp_path: Path) -> None:
    """It is stored where nothing is, and only there."""
    auth = await begun(plane, "auth-1", tmp_path, "spec: {keep_alive_count_max: 7}", bootstrap=True)
    await begun(plane, "auth-2", tmp_path, "spec: {keep_alive_count_max: 9}", bootstrap=True)
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        found = await stub.GetClusterNetworkingConfig(GET)
    assert (origin(found), found.spec.keep_alive_count_max) == ("dynamic", 7)


@pytest.mark.parametrize("text", ["spec: {keep_alive_count_max: 700}", "spec: {x: 1}", "\xff"])
def test_file_that_is_wrong(tmp_path: Path, text: str) -> None:
    """An auth does not start with it; the sentence names file and field."""
    path = tmp_path / "networking.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(NodeStartError, match=r"networking\.yaml: "):
        cluster_config.read_initial_config(path, None)


@pytest.mark.parametrize(
    ("role", "allowed"),
    [*((role, False) for role in ("agent", "proxy", "auth", "gateway", "", "Console")), ("console", True)],
)
async def test_who_may_write(plane: Plane, tmp_path: Path, role: str, *, allowed: bool) -> None:
    """With mutual TLS a console writes; every other certificate reads and does not write: PERMISSION_DENIED."""
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    async with channel_with(auth.instance.grpc_address, certificates.of("somebody", role)) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        read = await stub.GetClusterNetworkingConfig(GET)
        calls = (
            lambda: stub.UpdateClusterNetworkingConfig(update(read)),
            lambda: stub.ResetClusterNetworkingConfig(RESET),
        )
        for call in calls:
            if allowed:
                await call()
            else:
                code, why = await refusal(call())
                assert code is grpc.StatusCode.PERMISSION_DENIED
                assert f"role {role!r}" in why or (not role and "no role" in why)


@pytest.mark.parametrize(("anybody", "allowed"), [(False, False), (True, True)])
async def test_without_certificates_off_loopback(plane: Plane, *, anybody: bool, allowed: bool) -> None:
    """An auth that other machines reach takes writes from nobody, unless a flag says from everybody."""
    auth = await plane.auth(listen=("0.0.0.0", 0), anybody=anybody)
    port = auth.instance.grpc_address.rpartition(":")[2]
    async with channel_to(f"127.0.0.1:{port}") as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        await stub.GetClusterNetworkingConfig(GET)
        if allowed:
            await stub.ResetClusterNetworkingConfig(RESET)
        else:
            code, why = await refusal(stub.ResetClusterNetworkingConfig(RESET))
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert "a client needs a certificate with the role 'console'" in why
