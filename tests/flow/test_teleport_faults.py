"""Faults in the stand-in for a Teleport cluster: what a reader of its API sees of each.

What a sick auth serves is our reading of Teleport's documentation (tests/fakes/go/teleport/standin).
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.transport.client_identity import IdentityExpired
from fleet.wire import authservice_pb2, authservice_pb2_grpc, resources_pb2
from tests.fakes import teleport
from tests.fakes.programs import skip_without
from tests.fakes.teleport import TeleportCluster, teleport_cluster
from tests.fakes.teleport_reader import TIMEOUT, auth_stub, list_resources, read_identity, refusal
from tests.fakes.waiting import eventually_sync

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TeleportCluster]:
    skip_without(teleport.missing_reason())
    with teleport_cluster(tmp_path) as standin:
        yield standin


def read_diag(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=TIMEOUT) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def read_metric(address: str, name: str) -> float:
    lines = read_diag(address, "/metrics")[1].splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def test_watch_sends_changes_until_it_is_lost(cluster: TeleportCluster) -> None:
    """INIT names the kinds that are watched; a lost watch ends as unavailable."""
    cluster.change("settings", agent_ttl_seconds=1.0, rules={"node": ["list", "read"]})
    kinds = [resources_pb2.WatchKind(kind=kind) for kind in ("node", "app_server")]
    with auth_stub(cluster) as stub:
        code, text = refusal(lambda: stub.WatchEvents(authservice_pb2.Watch(kinds=kinds), timeout=TIMEOUT))
        assert (code, text) == (
            grpc.StatusCode.PERMISSION_DENIED,
            'access denied to perform action "read" on "app_server"',
        )
        watch = stub.WatchEvents(
            authservice_pb2.Watch(kinds=kinds, allow_partial_success=True), timeout=TIMEOUT
        )
        first = next(watch)
        assert first.type == authservice_pb2.INIT
        assert [resource.kind for resource in first.watch_status.spec.kinds] == ["node"]
        cluster.change("agents", kind="node", count=1)
        put_event = next(watch)
        assert (put_event.type, put_event.server.spec.hostname) == (authservice_pb2.PUT, "node-00001")
        cluster.change(f"agents/{put_event.server.metadata.name}", stopped=True)
        delete_event = next(event for event in watch if event.type == authservice_pb2.DELETE)
        assert delete_event.resource_header.metadata.name == put_event.server.metadata.name
        cluster.change("watches", drop="auth-1")
        assert refusal(lambda: watch)[0] == grpc.StatusCode.UNAVAILABLE


def test_stalled_watch_looks_open(cluster: TeleportCluster) -> None:
    """Nothing on the stream tells that changes are lost: only a list does."""
    kinds = [resources_pb2.WatchKind(kind="node")]
    with auth_stub(cluster) as stub:
        watch = stub.WatchEvents(authservice_pb2.Watch(kinds=kinds), timeout=TIMEOUT)
        assert next(watch).type == authservice_pb2.INIT
        cluster.change("watches", stalled=True)
        cluster.change("agents", kind="node", count=1)
        cluster.change("watches", stalled=False)
        cluster.change("agents", kind="node", count=1)
        assert next(watch).server.spec.hostname == "node-00002"
        assert len(list_resources(stub, "node")) == 2


def test_auth_whose_backend_fails(cluster: TeleportCluster) -> None:
    """It stays reachable and says that it is not ready; what it lists is frozen, and its agents expire elsewhere."""
    cluster.change("settings", agent_ttl_seconds=1.0)
    cluster.change("agents", kind="node", count=10)
    cluster.change("auths/auth-1", backend="failed")
    assert read_diag(cluster.diag_address("auths"), "/readyz")[0] == 503
    assert read_metric(cluster.diag_address("auths"), "process_state") == 2
    with teleport.open_channel(cluster.auth_address(1), read_identity(cluster)) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
        assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
        with auth_stub(cluster, 2) as healthy:
            eventually_sync(lambda: len(list_resources(healthy, "node")) == 5)
            assert len(list_resources(authservice_pb2_grpc.AuthServiceStub(channel), "node")) == 10
            cluster.change("auths/auth-1", backend="ok")
            eventually_sync(lambda: len(list_resources(healthy, "node")) == 10)


def test_stopped_auth_and_stopped_proxy(cluster: TeleportCluster) -> None:
    """Agents of a stopped auth find another one; those of a stopped proxy, too, unless they are told not to."""
    cluster.change("settings", agent_ttl_seconds=1.0, peering=True, reconnect=False)
    cluster.change("agents", kind="node", count=10)
    cluster.change("auths/auth-1", running=False)
    with auth_stub(cluster, 2) as stub:
        eventually_sync(
            lambda: (
                {
                    resource.spec.auth_id
                    for resource in stub.GetInstances(
                        resources_pb2.InstanceFilter(services=["Node"]), timeout=TIMEOUT
                    )
                }
                == {"auth-2"}
            )
        )
        cluster.change("proxies/proxy-1", running=False)
        with pytest.raises(OSError, match="refused"):
            read_diag(cluster.diag_address("proxies"), "/readyz")
        eventually_sync(
            lambda: {tuple(node.spec.proxy_ids) for node in list_resources(stub, "node")} == {("proxy-2",)}
        )
        cluster.change("proxies/proxy-1", running=True)
        eventually_sync(lambda: len(list_resources(stub, "node")) == 10)
    assert read_diag(cluster.diag_address("proxies"), "/readyz")[0] == 200


def test_missing_tunnels_are_counted_not_named(cluster: TeleportCluster) -> None:
    """In agent mesh only the metrics of a proxy say that tunnels are missing."""
    cluster.change("agents", kind="node", count=40)
    cluster.change("proxies/proxy-2", missing_tunnels={"node": 3})
    gauge = 'teleport_reverse_tunnels_connected{type="node"}'
    diags = [cluster.diag_address("proxies", number) for number in (1, 2)]
    assert [read_metric(diag, gauge) for diag in diags] == [40, 37]
    assert [read_metric(diag, "proxy_missing_ssh_tunnels") for diag in diags] == [0, 3]
    with auth_stub(cluster) as stub:
        assert {len(node.spec.proxy_ids) for node in list_resources(stub, "node")} == {0}


def test_clock_of_an_auth_is_wrong(cluster: TeleportCluster) -> None:
    """The expiry is of the auth's clock."""
    cluster.change("auths/auth-2", clock_skew_seconds=7200)
    cluster.change("agents", kind="node", count=2)
    with auth_stub(cluster) as stub:
        lifetimes = sorted(
            node.metadata.expires.ToDatetime(UTC) - datetime.now(UTC) for node in list_resources(stub, "node")
        )
    assert lifetimes[0] < timedelta(minutes=11)
    assert lifetimes[1] > timedelta(hours=2)


def test_identity_is_renewed_and_expires(tmp_path: Path) -> None:
    """A bot writes the file anew; with an expired certificate there is no connection."""
    skip_without(teleport.missing_reason())
    with teleport_cluster(tmp_path, identity_ttl="2s") as cluster:
        old = read_identity(cluster)
        renewed = cluster.change("identity", ttl_seconds=600)
        assert renewed["identity"] == str(cluster.identity)
        new = read_identity(cluster)
        assert new.expires_at - old.expires_at > timedelta(minutes=9)
        assert new.certificate != old.certificate
        eventually_sync(lambda: datetime.now(UTC) > old.expires_at)
        with teleport.open_channel(cluster.auth_address(), old) as channel:
            stub = authservice_pb2_grpc.AuthServiceStub(channel)
            code, _ = refusal(lambda: stub.Ping(authservice_pb2.PingRequest(), timeout=TIMEOUT))
        assert code == grpc.StatusCode.UNAVAILABLE
        with auth_stub(cluster) as stub:
            assert (
                stub.Ping(authservice_pb2.PingRequest(), timeout=TIMEOUT).cluster_name == "root.example.com"
            )
        cluster.change("identity", ttl_seconds=-60)
        with pytest.raises(IdentityExpired):
            read_identity(cluster)
