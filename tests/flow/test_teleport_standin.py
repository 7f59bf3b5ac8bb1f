"""The stand-in for a Teleport cluster: Teleport's own client as the judge of its wire, and our stubs as readers.

What the stand-in refuses, and what a sick auth serves, is our reading of Teleport's documentation: these tests say that
each case can be produced, for the tests of the source, not that Teleport behaves so.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.transport.identity_file import (
    ClientIdentity,
    IdentityExpired,
    parse_identity_file,
    parse_tls_files,
)
from fleet.wire import (
    authservice_pb2,
    authservice_pb2_grpc,
    clusterconfig_pb2,
    clusterconfig_pb2_grpc,
    presence_pb2,
    presence_pb2_grpc,
    resources_pb2,
)
from tests.fakes import teleport
from tests.fakes.programs import skip_without
from tests.fakes.teleport import TeleportCluster, teleport_cluster
from tests.fakes.waiting import eventually_sync

pytestmark = pytest.mark.slow

KINDS = ("node", "app_server", "db_server", "kube_server", "windows_desktop_service")
TIMEOUT = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TeleportCluster]:
    skip_without(teleport.missing_reason())
    with teleport_cluster(tmp_path) as standin:
        yield standin


def read_identity(cluster: TeleportCluster) -> ClientIdentity:
    return parse_identity_file(cluster.identity.read_bytes(), now=datetime.now(UTC))


@contextlib.contextmanager
def auth_stub(cluster: TeleportCluster, number: int = 1) -> Iterator[authservice_pb2_grpc.AuthServiceStub]:
    with teleport.open_channel(cluster.auth_address(number), read_identity(cluster)) as channel:
        yield authservice_pb2_grpc.AuthServiceStub(channel)


def list_resources(stub: authservice_pb2_grpc.AuthServiceStub, kind: str, limit: int = 1000) -> list[Any]:
    """Return all resources of a kind, as the one field of each that is set."""
    resources: list[Any] = []
    start = ""
    while True:
        request = authservice_pb2.ListResourcesRequest(resource_type=kind, limit=limit, start_key=start)
        page = stub.ListResources(request, timeout=TIMEOUT)
        resources += [getattr(resource, resource.WhichOneof("resource")) for resource in page.resources]
        start = page.next_key
        if not start:
            return resources


def count_unified(stub: authservice_pb2_grpc.AuthServiceStub, limit: int) -> Counter[str]:
    """Return the number of unified resources by kind, each counted once."""
    encoded = []
    start = ""
    while True:
        request = authservice_pb2.ListUnifiedResourcesRequest(limit=limit, start_key=start)
        page = stub.ListUnifiedResources(request, timeout=TIMEOUT)
        assert len(page.resources) <= limit
        encoded += [resource.SerializeToString() for resource in page.resources]
        start = page.next_key
        if not start:
            break
    kinds = (
        authservice_pb2.PaginatedResource.FromString(resource).WhichOneof("resource")
        for resource in set(encoded)
    )
    assert len(set(encoded)) == len(encoded)
    return Counter(str(kind) for kind in kinds)


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """Return the code and text of a refused call; a stream is read to its end."""
    with pytest.raises(grpc.RpcError) as caught:
        consume(call())
    return caught.value.code(), caught.value.details()


def consume(outcome: object) -> None:
    if isinstance(outcome, Iterator):
        deque(outcome, maxlen=0)


def read_diag(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=TIMEOUT) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def read_metric(address: str, name: str) -> float:
    lines = read_diag(address, "/metrics")[1].splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


@pytest.mark.parametrize("credential", ["identity file", "TLS files"])
def test_teleports_client_agrees_with_every_call(cluster: TeleportCluster, credential: str) -> None:
    """Teleport's own client connects with its default server name, and finds what was put in."""
    for kind in KINDS:
        cluster.change("agents", kind=kind, count=3)
    cluster.change("leaves/leaf-1", online=True, proxies=["proxy-1"])
    whole = (
        {"identity": cluster.identity} if credential == "identity file" else {"tls_files": cluster.tls_files}
    )
    calls = teleport.run_client(cluster.auth_address(), **whole)
    refusals = {name: (outcome.kind, outcome.error) for name, outcome in calls.items() if not outcome.ok}
    assert refusals == {
        "GetInventoryStatus": (
            "AccessDenied",
            "this request can be only executed by the builtin Admin role",
        ),
        "UpdateClusterNetworkingConfig/old": (
            "CompareFailed",
            refusals["UpdateClusterNetworkingConfig/old"][1],
        ),
    }
    assert calls["Ping"].value == {"cluster": "root.example.com", "version": "18.1.0"}
    assert [len(calls[f"ListResources/{kind}"].value) for kind in KINDS] == [3] * 5
    assert calls["ListUnifiedResources"].value == 12
    assert Counter(calls["GetInstances"].value.values()) == {"auth-1": 10, "auth-2": 9}
    assert calls["ListRemoteClusters"].value == {"leaf-1": "online"}
    assert calls["Health"].value == "SERVING"
    assert calls["UpsertClusterNetworkingConfig"].value == 5
    assert calls["ResetClusterNetworkingConfig"].value == 3


def test_teleports_client_reads_its_builtin_admin_calls(cluster: TeleportCluster) -> None:
    """The inventory of an auth has the agents that are connected to that auth only."""
    cluster.change("agents", kind="node", count=5)
    cluster.change("settings", builtin_admin=True)
    counts = [
        teleport.run_client(cluster.auth_address(number), identity=cluster.identity)[
            "GetInventoryStatus"
        ].value
        for number in (1, 2)
    ]
    assert sorted(counts) == [2, 3]


def test_our_stubs_list_agents_with_both_kinds_of_identity(cluster: TeleportCluster) -> None:
    """One agent serves many resources: its id is the node's name, or `host_id`."""
    for kind in KINDS:
        cluster.change("agents", kind=kind, count=20, resources=2)
    now = datetime.now(UTC)
    key, certificate, authority = (path.read_bytes() for path in cluster.tls_files)
    for identity in (read_identity(cluster), parse_tls_files(key, certificate, authority, now=now)):
        with teleport.open_channel(cluster.auth_address(), identity) as channel:
            stub = authservice_pb2_grpc.AuthServiceStub(channel)
            resources = {kind: list_resources(stub, kind, limit=7) for kind in KINDS}
            instances = list(stub.GetInstances(resources_pb2.InstanceFilter(), timeout=TIMEOUT))
            unified = [count_unified(stub, limit) for limit in (7, 40, 1000)]
        assert {kind: len(resource) for kind, resource in resources.items()} == {
            "node": 20, "app_server": 40, "db_server": 40, "kube_server": 40, "windows_desktop_service": 20,
        }  # fmt: skip
        by_kind = {"node": 20, "app_server": 40, "database_server": 40, "kubernetes_server": 40}
        assert unified == [by_kind] * 3
        hosts = {resource.spec.host_id for kind in KINDS[1:4] for resource in resources[kind]}
        hosts |= {resource.metadata.name for resource in resources["node"]}
        hosts |= {resource.header.metadata.name for resource in resources["windows_desktop_service"]}
        assert len(hosts) == 100
        assert hosts < {resource.header.metadata.name for resource in instances}
        expiry = resources["node"][0].metadata.expires.ToDatetime(UTC)
        assert timedelta(minutes=9) < expiry - now < timedelta(minutes=11)
        assert resources["node"][0].spec.cmd_labels["kernel"].result == "6.1.0"


def test_ten_thousand_agents_with_their_proxies(cluster: TeleportCluster) -> None:
    """In proxy peering each names the proxy of its tunnel; in agent mesh none is named."""
    cluster.change("settings", peering=True)
    cluster.change("agents", kind="node", count=10_000)
    with auth_stub(cluster) as stub:
        nodes = list_resources(stub, "node")
    assert len({uuid.UUID(node.metadata.name) for node in nodes}) == 10_000
    assert Counter(tuple(node.spec.proxy_ids) for node in nodes) == {("proxy-1",): 5_000, ("proxy-2",): 5_000}


def test_two_hundred_thousand_resources_by_pages(cluster: TeleportCluster) -> None:
    cluster.change("agents", kind="node", count=200_000)
    with auth_stub(cluster) as stub:
        count = sum(1 for _ in iterate_page_sizes(stub))
        assert count == 200
    assert cluster.state()["calls"]["/proto.AuthService/ListResources"] == 200


def iterate_page_sizes(stub: authservice_pb2_grpc.AuthServiceStub) -> Iterator[int]:
    start = ""
    while True:
        request = authservice_pb2.ListResourcesRequest(resource_type="node", start_key=start)
        page = stub.ListResources(request, timeout=TIMEOUT)
        yield len(page.resources)
        start = page.next_key
        if not start:
            return


def test_instances_by_grpc_and_by_the_older_http_routes(cluster: TeleportCluster) -> None:
    """One port serves both, by ALPN; the JSON has the keys that our messages are named by."""
    cluster.change("leaves/leaf-1", online=True, proxies=["proxy-1", "proxy-2"])
    with teleport.open_channel(cluster.auth_address(), read_identity(cluster)) as channel:
        stub = presence_pb2_grpc.PresenceServiceStub(channel)
        auths = stub.ListAuthServers(presence_pb2.ListAuthServersRequest(), timeout=TIMEOUT).servers
        proxies = stub.ListProxyServers(presence_pb2.ListProxyServersRequest(), timeout=TIMEOUT).servers
        leaf_clusters = stub.ListRemoteClusters(presence_pb2.ListRemoteClustersRequest(), timeout=TIMEOUT)
    assert [resource.metadata.name for resource in auths] == ["auth-1", "auth-2"]
    assert auths[0].spec.addr == cluster.auth_address(1)
    assert [resource.metadata.name for resource in proxies] == ["proxy-1", "proxy-2"]
    assert [resource.status.connection for resource in leaf_clusters.remote_clusters] == ["online"]
    assert [resource["metadata"]["name"] for resource in read_json(cluster, "/v2/authservers")] == [
        "auth-1",
        "auth-2",
    ]
    by_http = read_json(cluster, "/v2/proxies")[0]
    assert (by_http["kind"], by_http["spec"]["hostname"]) == ("proxy", "proxy-1")
    tunnels = read_json(cluster, "/v2/tunnelconnections")
    assert [(resource["spec"]["cluster_name"], resource["spec"]["proxy_name"]) for resource in tunnels] == [
        ("leaf-1", "proxy-1"), ("leaf-1", "proxy-2"),
    ]  # fmt: skip


def read_json(cluster: TeleportCluster, path: str) -> Any:
    """Read a route of the auth's HTTP API; a refusal is its status and text."""
    key, certificate, authority = cluster.tls_files
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(certificate, key)
    host, _, port = cluster.auth_address().rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=TIMEOUT)
    raw = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT)
    raw.connect()
    connection.sock = context.wrap_socket(raw.sock, server_hostname="teleport.cluster.local")
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        body = json.loads(response.read())
        return body if response.status == 200 else (response.status, body["error"]["message"])


def test_each_missing_verb_is_named(cluster: TeleportCluster) -> None:
    """A refusal names the verb and the kind; labels that do not match refuse nothing, the list is empty."""
    cluster.change("agents", kind="node", count=3)
    cluster.change("settings", rules={"node": ["list"], "instance": ["read"], "proxy": []})
    with teleport.open_channel(cluster.auth_address(), read_identity(cluster)) as channel:
        stub = authservice_pb2_grpc.AuthServiceStub(channel)
        presence = presence_pb2_grpc.PresenceServiceStub(channel)
        config = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        calls: dict[tuple[str, str], Callable[[], object]] = {
            ("read", "node"): lambda: list_resources(stub, "node"),
            ("list", "app_server"): lambda: list_resources(stub, "app_server"),
            ("list", "instance"): lambda: stub.GetInstances(resources_pb2.InstanceFilter(), timeout=TIMEOUT),
            ("list", "proxy"): lambda: presence.ListProxyServers(presence_pb2.ListProxyServersRequest()),
            ("list", "remote_cluster"): lambda: presence.ListRemoteClusters(
                presence_pb2.ListRemoteClustersRequest()
            ),
            ("read", "cluster_networking_config"): lambda: config.GetClusterNetworkingConfig(
                clusterconfig_pb2.GetClusterNetworkingConfigRequest()
            ),
        }
        for (verb, kind), call in calls.items():
            text = f'access denied to perform action "{verb}" on "{kind}"'
            assert refusal(call) == (grpc.StatusCode.PERMISSION_DENIED, text)
        assert stub.Ping(authservice_pb2.PingRequest(), timeout=TIMEOUT).server_version == "18.1.0"
        cluster.change("settings", rules=None, hidden_kinds=["node"])
        assert list_resources(stub, "node") == []
    cluster.change("settings", rules={})
    assert read_json(cluster, "/v2/proxies") == (403, 'access denied to perform action "list" on "proxy"')


def test_calls_that_a_version_lacks(cluster: TeleportCluster) -> None:
    lists = [f"/teleport.presence.v1.PresenceService/List{kind}Servers" for kind in ("Auth", "Proxy")]
    cluster.change("settings", version="16.4.0", missing=[*lists, "/v2/tunnelconnections"])
    with teleport.open_channel(cluster.auth_address(), read_identity(cluster)) as channel:
        presence = presence_pb2_grpc.PresenceServiceStub(channel)
        code, _ = refusal(lambda: presence.ListAuthServers(presence_pb2.ListAuthServersRequest()))
    assert code == grpc.StatusCode.UNIMPLEMENTED
    assert read_json(cluster, "/v2/tunnelconnections")[0] == 404
    assert len(read_json(cluster, "/v2/authservers")) == 2


def test_nobody_without_a_certificate(cluster: TeleportCluster) -> None:
    """Health is for everybody; the rest needs a certificate of the cluster's users."""
    credentials = grpc.ssl_channel_credentials(read_identity(cluster).authorities)
    options = [("grpc.ssl_target_name_override", "teleport.cluster.local")]
    with grpc.secure_channel(cluster.auth_address(), credentials, options) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
        stub = authservice_pb2_grpc.AuthServiceStub(channel)
        code, _ = refusal(lambda: stub.Ping(authservice_pb2.PingRequest(), timeout=TIMEOUT))
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert code == grpc.StatusCode.PERMISSION_DENIED


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


def test_resources_that_lie(cluster: TeleportCluster) -> None:
    """A client has to bear them all: moments outside of any calendar, twins, long texts, markup."""
    cluster.change("agents", kind="node", count=2)
    lies = ["far-expiry", "negative-expiry", "duplicate-names", "long-labels", "markup"]
    cluster.change("settings", lies=lies)
    with auth_stub(cluster) as stub:
        nodes = list_resources(stub, "node")
    by_name = {node.metadata.name: node for node in nodes}
    assert (len(nodes), len(by_name)) == (8, 7)
    assert by_name["lie-far"].metadata.expires.seconds == 253_402_300_799
    assert by_name["lie-negative"].metadata.expires.seconds < -62_135_596_000
    assert len(next(iter(by_name["lie-long"].metadata.labels))) == 300
    assert by_name["lie-markup"].spec.hostname.startswith("<script>")


def test_pages_that_never_end(cluster: TeleportCluster) -> None:
    cluster.change("agents", kind="node", count=10)
    cluster.change("settings", endless_pages=True)
    with auth_stub(cluster) as stub:
        pages = iterate_page_sizes(stub)
        assert [next(pages) for _ in range(50)] == [10] * 50


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


def test_networking_config_needs_mfa(cluster: TeleportCluster) -> None:
    """A program cannot do MFA: reads go on, writes are refused, by Teleport's client as by our stubs."""
    cluster.change("settings", mfa_required=True)
    text = "admin-level API request requires MFA verification"
    with teleport.open_channel(cluster.auth_address(), read_identity(cluster)) as channel:
        stub = clusterconfig_pb2_grpc.ClusterConfigServiceStub(channel)
        read = stub.GetClusterNetworkingConfig(clusterconfig_pb2.GetClusterNetworkingConfigRequest())
        request = clusterconfig_pb2.UpdateClusterNetworkingConfigRequest(cluster_network_config=read)
        assert refusal(lambda: stub.UpdateClusterNetworkingConfig(request)) == (
            grpc.StatusCode.PERMISSION_DENIED,
            text,
        )
    calls = teleport.run_client(cluster.auth_address(), identity=cluster.identity)
    assert text in calls["UpdateClusterNetworkingConfig"].error


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
