"""ClusterConfigService of real auths: revisions, origins and refusals."""

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
from tests.fakes.plane import Plane, channel_to, get_diag

Stub = Any
GET_REQUEST = clusterconfig_pb2.GetClusterNetworkingConfigRequest()
RESET_REQUEST = clusterconfig_pb2.ResetClusterNetworkingConfigRequest()


def update_request(config: types_pb2.ClusterNetworkingConfigV2) -> Any:
    return clusterconfig_pb2.UpdateClusterNetworkingConfigRequest(cluster_network_config=config)


def upsert_request(config: types_pb2.ClusterNetworkingConfigV2) -> Any:
    return clusterconfig_pb2.UpsertClusterNetworkingConfigRequest(cluster_network_config=config)


def origin(config: types_pb2.ClusterNetworkingConfigV2) -> str:
    return config.metadata.labels["teleport.dev/origin"]


@pytest.fixture
async def stub(plane: Plane) -> AsyncIterator[Stub]:
    """Yield a client of one auth."""
    auth = await plane.auth()
    async with channel_to(auth.instance.grpc_address) as channel:
        yield clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)


async def expect_refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_defaults_have_one_revision_on_every_auth(plane: Plane, stub: Stub) -> None:
    """Get returns the defaults with the same revision from every auth."""
    first_config = await stub.GetClusterNetworkingConfig(GET_REQUEST)
    assert (first_config.kind, first_config.version) == ("cluster_networking_config", "v2")
    assert first_config.metadata.name == "cluster-networking-config"
    assert (origin(first_config), bool(first_config.metadata.revision)) == ("defaults", True)
    assert first_config.spec.tunnel_strategy.WhichOneof("strategy") == "agent_mesh"
    other_auth = await plane.auth("auth-2")
    async with channel_to(other_auth.instance.grpc_address) as channel:
        other_config = await clusterconfig_pb2_grpc.ClusterConfigServiceStub(
            channel
        ).GetClusterNetworkingConfig(GET_REQUEST)
    assert other_config == first_config


async def test_update_with_outdated_revision_is_refused(stub: Stub) -> None:
    """The second of two writers gets FAILED_PRECONDITION, and the stored config does not change."""
    config = await stub.GetClusterNetworkingConfig(GET_REQUEST)
    config.spec.keep_alive_count_max = 5
    stored_config = await stub.UpdateClusterNetworkingConfig(update_request(config))
    assert (origin(stored_config), stored_config.spec.keep_alive_count_max) == ("dynamic", 5)
    assert stored_config.metadata.revision != config.metadata.revision
    assert await stub.GetClusterNetworkingConfig(GET_REQUEST) == stored_config
    config.spec.keep_alive_count_max = 7
    code, details = await expect_refusal(stub.UpdateClusterNetworkingConfig(update_request(config)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert details.startswith("metadata.revision: ")
    assert stored_config.metadata.revision in details
    config.metadata.revision = ""
    assert (await expect_refusal(stub.UpdateClusterNetworkingConfig(update_request(config))))[0] is code
    assert await stub.GetClusterNetworkingConfig(GET_REQUEST) == stored_config


async def test_one_of_ten_concurrent_updates_succeeds(plane: Plane, stub: Stub) -> None:
    """Ten updates through two auths have the same revision; nine are refused."""
    other_auth = await plane.auth("auth-2")
    config = await stub.GetClusterNetworkingConfig(GET_REQUEST)
    async with channel_to(other_auth.instance.grpc_address) as channel:
        stubs = [stub, clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)]
        responses = await asyncio.gather(
            *(stubs[n % 2].UpdateClusterNetworkingConfig(update_request(config)) for n in range(10)),
            return_exceptions=True,
        )
    assert sum(not isinstance(response, BaseException) for response in responses) == 1


async def test_upsert_overwrites_without_revision(stub: Stub) -> None:
    """Upsert fills in defaults and sets the origin to dynamic, whatever the request's label is."""
    config = types_pb2.ClusterNetworkingConfigV2(metadata={"revision": "none", "labels": {"a": "b"}})
    config.metadata.labels["teleport.dev/origin"] = "config-file"
    config.spec.graceful_tunnel_closing = True
    stored_config = await stub.UpsertClusterNetworkingConfig(upsert_request(config))
    assert (origin(stored_config), stored_config.metadata.labels["a"]) == ("dynamic", "b")
    assert (stored_config.spec.graceful_tunnel_closing, stored_config.spec.keep_alive_count_max) == (True, 3)
    assert await stub.GetClusterNetworkingConfig(GET_REQUEST) == stored_config


async def test_unknown_fields_are_stored_and_returned(stub: Stub) -> None:
    """A newer client gets back the fields that this auth does not know."""
    default_config = await stub.GetClusterNetworkingConfig(GET_REQUEST)
    unknown_field = b"\x9a\x06\x01?"  # field 99, bytes
    config = types_pb2.ClusterNetworkingConfigV2.FromString(
        default_config.SerializeToString() + unknown_field
    )
    config.spec.MergeFromString(unknown_field)
    await stub.UpdateClusterNetworkingConfig(update_request(config))
    stored_config = await stub.GetClusterNetworkingConfig(GET_REQUEST)
    assert stored_config.SerializeToString().endswith(unknown_field)
    assert stored_config.spec.SerializeToString().endswith(unknown_field)


async def test_reset_restores_defaults_with_new_revision(stub: Stub) -> None:
    """The origin is "defaults" again, and the revision is new."""
    config = types_pb2.ClusterNetworkingConfigV2()
    config.spec.graceful_tunnel_closing = True
    changed_config = await stub.UpsertClusterNetworkingConfig(upsert_request(config))
    reset_config = await stub.ResetClusterNetworkingConfig(RESET_REQUEST)
    assert (origin(reset_config), reset_config.spec.graceful_tunnel_closing) == ("defaults", False)
    assert reset_config.metadata.revision not in ("", changed_config.metadata.revision)
    assert await stub.GetClusterNetworkingConfig(GET_REQUEST) == reset_config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"spec": {"keep_alive_interval": -1}},
            "keep_alive_interval: -1ns is out of range. Use 1s to 1h, or 0 for the default of 5 min",
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
async def test_invalid_field_is_named_and_nothing_is_stored(
    stub: Stub, change: dict[str, Any], message: str
) -> None:
    """Update and upsert return INVALID_ARGUMENT with the name of the field."""
    config_before = await stub.GetClusterNetworkingConfig(GET_REQUEST)
    config = types_pb2.ClusterNetworkingConfigV2(**change)
    for call in (
        stub.UpdateClusterNetworkingConfig(update_request(config)),
        stub.UpsertClusterNetworkingConfig(upsert_request(config)),
    ):
        code, details = await expect_refusal(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert message in details
    assert await stub.GetClusterNetworkingConfig(GET_REQUEST) == config_before


async def test_upsert_without_config_is_refused(stub: Stub) -> None:
    """The error names the missing field."""
    code, details = await expect_refusal(
        stub.UpsertClusterNetworkingConfig(clusterconfig_pb2.UpsertClusterNetworkingConfigRequest())
    )
    assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "cluster_network_config: missing")


async def test_writes_are_counted_and_refusals_logged_once(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    """Writes are counted by call and outcome; repeated refusals of a client are logged once."""
    auth = await plane.auth()
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        await stub.ResetClusterNetworkingConfig(RESET_REQUEST)
        for _ in range(2):
            await expect_refusal(
                stub.UpdateClusterNetworkingConfig(update_request(types_pb2.ClusterNetworkingConfigV2()))
            )
        await expect_refusal(
            stub.UpsertClusterNetworkingConfig(clusterconfig_pb2.UpsertClusterNetworkingConfigRequest())
        )
    log_lines = [line for line in caplog.messages if line.startswith("networking-config.refused")]
    assert [line.partition(" from ")[0] for line in log_lines] == [
        "networking-config.refused: update",
        "networking-config.refused: upsert",
    ]
    lines = (await get_diag(auth.instance, "/metrics"))[1].splitlines()
    assert 'refloat_networking_config_writes_total{call="reset",outcome="written"} 1.0' in lines
    assert 'refloat_networking_config_writes_total{call="update",outcome="refused"} 2.0' in lines


async def test_calls_without_backend_are_unavailable(plane: Plane) -> None:
    """The error names the address of the backend."""
    forward, url = await plane.backend_forward()
    auth = await plane.auth(backend=url, ttl=600.0)
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        await stub.GetClusterNetworkingConfig(GET_REQUEST)
        await forward.change(mode=ForwardMode.CUT)
        for call in (
            stub.GetClusterNetworkingConfig(GET_REQUEST),
            stub.UpsertClusterNetworkingConfig(upsert_request(types_pb2.ClusterNetworkingConfigV2())),
            stub.ResetClusterNetworkingConfig(RESET_REQUEST),
        ):
            code, details = await expect_refusal(call)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "the backend at 127.0.0.1" in details


async def start_auth_with_config(
    plane: Plane, name: str, tmp_path: Path, text: str, *, bootstrap: bool
) -> Auth:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    initial_config = (
        cluster_config.read_initial_networking_config(None, path)
        if bootstrap
        else cluster_config.read_initial_networking_config(path, None)
    )
    return await plane.auth(name, networking=initial_config)


async def test_config_file_overwrites_stored_config_at_start(plane: Plane, tmp_path: Path) -> None:
    """Every start stores the file again, and the config cannot be reset; an update makes it dynamic."""
    text = "spec: {keep_alive_count_max: 7}"
    auth = await start_auth_with_config(plane, "auth-1", tmp_path, text, bootstrap=False)
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        config = await stub.GetClusterNetworkingConfig(GET_REQUEST)
        assert (origin(config), config.spec.keep_alive_count_max) == ("config-file", 7)
        code, details = await expect_refusal(stub.ResetClusterNetworkingConfig(RESET_REQUEST))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "file" in details
        config.spec.keep_alive_count_max = 8
        assert origin(await stub.UpdateClusterNetworkingConfig(update_request(config))) == "dynamic"
        await start_auth_with_config(plane, "auth-2", tmp_path, text, bootstrap=False)
        assert (await stub.GetClusterNetworkingConfig(GET_REQUEST)).spec.keep_alive_count_max == 7


async def test_bootstrap_config_is_stored_only_if_none_is_stored(plane: Plane, tmp_path: Path) -> None:
    """The second auth's bootstrap config does not replace the first."""
    auth = await start_auth_with_config(
        plane, "auth-1", tmp_path, "spec: {keep_alive_count_max: 7}", bootstrap=True
    )
    await start_auth_with_config(plane, "auth-2", tmp_path, "spec: {keep_alive_count_max: 9}", bootstrap=True)
    async with channel_to(auth.instance.grpc_address) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        config = await stub.GetClusterNetworkingConfig(GET_REQUEST)
    assert (origin(config), config.spec.keep_alive_count_max) == ("dynamic", 7)


@pytest.mark.parametrize("text", ["spec: {keep_alive_count_max: 700}", "spec: {x: 1}", "\xff"])
def test_invalid_config_file_stops_the_start(tmp_path: Path, text: str) -> None:
    """The error names the file and the field."""
    path = tmp_path / "networking.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(NodeStartError, match=r"networking\.yaml: "):
        cluster_config.read_initial_networking_config(path, None)


@pytest.mark.parametrize(
    ("role", "is_allowed"),
    [*((role, False) for role in ("agent", "proxy", "auth", "gateway", "", "Console")), ("console", True)],
)
async def test_only_console_certificate_may_write(
    plane: Plane, tmp_path: Path, role: str, *, is_allowed: bool
) -> None:
    """With mutual TLS every other certificate reads, and its writes get PERMISSION_DENIED."""
    certificates = Certificates(tmp_path)
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    async with channel_with(auth.instance.grpc_address, certificates.of("somebody", role)) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        config = await stub.GetClusterNetworkingConfig(GET_REQUEST)
        calls = (
            lambda: stub.UpdateClusterNetworkingConfig(update_request(config)),
            lambda: stub.ResetClusterNetworkingConfig(RESET_REQUEST),
        )
        for call in calls:
            if is_allowed:
                await call()
            else:
                code, details = await expect_refusal(call())
                assert code is grpc.StatusCode.PERMISSION_DENIED
                assert f"role {role!r}" in details or (not role and "no role" in details)


@pytest.mark.parametrize(("allow_anonymous", "is_allowed"), [(False, False), (True, True)])
async def test_write_without_certificate_off_loopback_needs_flag(
    plane: Plane, *, allow_anonymous: bool, is_allowed: bool
) -> None:
    """An auth on a public address accepts writes without a certificate only with the flag."""
    auth = await plane.auth(listen=("0.0.0.0", 0), allow_anonymous=allow_anonymous)
    port = auth.instance.grpc_address.rpartition(":")[2]
    async with channel_to(f"127.0.0.1:{port}") as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        await stub.GetClusterNetworkingConfig(GET_REQUEST)
        if is_allowed:
            await stub.ResetClusterNetworkingConfig(RESET_REQUEST)
        else:
            code, details = await expect_refusal(stub.ResetClusterNetworkingConfig(RESET_REQUEST))
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert "a client needs a certificate with the role 'console'" in details
