"""The stand-in for a Teleport cluster: Teleport's own client as the judge of its wire, and our stubs as readers.

What the stand-in refuses, and what a sick auth serves, is our reading of Teleport's documentation: these tests say that
each case can be produced, for the tests of the source, not that Teleport behaves so.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.transport.identity_file import (
    parse_tls_files,
    server_name_of_cluster,
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
from tests.fakes.teleport_reader import TIMEOUT, auth_stub, list_resources, read_identity, refusal

pytestmark = pytest.mark.slow

KINDS = ("node", "app_server", "db_server", "kube_server", "windows_desktop_service")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TeleportCluster]:
    skip_without(teleport.missing_reason())
    with teleport_cluster(tmp_path) as standin:
        yield standin


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
    assert calls["GetServiceConfig"].value == {"mode": 1, "health_check": False}
    assert list(calls["ListProxyServers"].value) == ["proxy-1", "proxy-2"]
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
    request = authservice_pb2.InventoryConnectedServiceCountsRequest()
    with auth_stub(cluster) as stub:
        response = stub.GetInventoryConnectedServiceCounts(request, timeout=TIMEOUT)
    assert response.service_counts["Node"] == counts[0]


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


def test_auths_are_known_by_teleports_names_only(cluster: TeleportCluster) -> None:
    """The general name and the cluster's own are in the certificate of an auth; its address is not."""
    identity = read_identity(cluster)
    for name in (identity.server_name, server_name_of_cluster("root.example.com")):
        with teleport.open_channel(cluster.auth_address(), replace(identity, server_name=name)) as channel:
            stub = authservice_pb2_grpc.AuthServiceStub(channel)
            assert stub.Ping(authservice_pb2.PingRequest(), timeout=TIMEOUT).server_features.cloud is False
    with teleport.open_channel(cluster.auth_address(), replace(identity, server_name="localhost")) as channel:
        stub = authservice_pb2_grpc.AuthServiceStub(channel)
        code, _ = refusal(lambda: stub.Ping(authservice_pb2.PingRequest(), timeout=TIMEOUT))
    assert code == grpc.StatusCode.UNAVAILABLE


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


def test_service_config_of_a_cluster_that_reconnects(cluster: TeleportCluster) -> None:
    """Upstream's form has the mode as a number."""
    cluster.change("settings", reconnect_mode=True)
    calls = teleport.run_client(cluster.auth_address(), identity=cluster.identity)
    assert calls["GetServiceConfig"].value == {"mode": 2, "health_check": True}
