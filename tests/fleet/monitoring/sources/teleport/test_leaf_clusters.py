from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from fleet.monitoring.sources.teleport.leaf_clusters import (
    OFFLINE_AFTER_SECONDS,
    LeafTunnel,
    agents_of,
    read_leaf_clusters,
)
from fleet.wire import resources_pb2, types_pb2
from tests.fakes.teleport_auth import FakeTeleportAuth
from tests.fakes.teleport_http import http_auth

_NOW = 10_000.0


def _leaf_cluster(
    name: str = "leaf.example", *, seen_at: int = 9_990, connection: str = "online"
) -> resources_pb2.RemoteClusterV3:
    leaf_cluster = resources_pb2.RemoteClusterV3(metadata=types_pb2.Metadata(name=name, labels={"env": "eu"}))
    leaf_cluster.status.connection = connection
    leaf_cluster.status.last_heartbeat.seconds = seen_at
    return leaf_cluster


def test_leaf_cluster_is_an_agent_until_teleport_calls_it_offline() -> None:
    agents = agents_of([_leaf_cluster()], [], _NOW)
    (agent,) = agents.values()
    assert list(agents) == ["leaf.example"]
    assert agent.expires_at == 9_990 + OFFLINE_AFTER_SECONDS
    assert agent.attributes.labels == (("env", "eu"), ("kind", "leaf-cluster"))
    (offline,) = agents_of([_leaf_cluster(connection="offline")], [], _NOW).values()
    assert offline.expires_at == 9_990


@pytest.mark.parametrize(
    ("tunnels", "proxy_id"),
    [
        ([], ""),
        ([("leaf.example", "p1", 9_990)], "p1"),
        ([("leaf.example", "p1", 9_990), ("leaf.example", "p2", 9_990)], ""),
        # A proxy that is gone leaves its tunnels behind.
        ([("leaf.example", "p1", 9_990), ("leaf.example", "p2", 9_000)], "p1"),
        ([("other.example", "p1", 9_990)], ""),
    ],
)
def test_leaf_cluster_depends_on_its_only_proxy(tunnels: list[tuple[str, str, float]], proxy_id: str) -> None:
    leaf_tunnels = [LeafTunnel(*tunnel) for tunnel in tunnels]
    (agent,) = agents_of([_leaf_cluster()], leaf_tunnels, _NOW).values()
    assert agent.via_proxy_id == proxy_id


def test_values_of_a_faulty_auth_do_no_harm() -> None:
    """A heartbeat of the future counts as now, one before 1970 as 1970; names must fit the record."""
    leaf_clusters = [
        _leaf_cluster("future", seen_at=99_999),
        _leaf_cluster("past", seen_at=-5),
        _leaf_cluster(""),
        _leaf_cluster("x" * 1000),
    ]
    agents = agents_of(leaf_clusters, [], _NOW)
    assert {name: agent.expires_at for name, agent in agents.items()} == {
        "future": _NOW + OFFLINE_AFTER_SECONDS,
        "past": OFFLINE_AFTER_SECONDS,
    }


async def test_refused_lists_are_reasons(teleport_auth: FakeTeleportAuth, tmp_path: Path) -> None:
    """The version has no list of leaf clusters, and the role may not list tunnels."""

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=403)

    teleport_auth.leaf_clusters = None
    async with http_auth({"/v2/tunnelconnections": refuse}, teleport_auth, tmp_path) as context:
        leaf_clusters = await read_leaf_clusters(context)
    assert not leaf_clusters.agents
    assert leaf_clusters.refused_kinds == {
        "remote_cluster": "This version of Teleport does not have resources of the kind remote_cluster.",
        "tunnel_connection": "The role of Refloat's identity lacks the verbs list and read for tunnel_connection.",
    }


@pytest.mark.parametrize("text", ["[", "{}", '[5, "x", {}, {"spec": {"cluster_name": 5}}]'])
async def test_tunnels_that_cannot_be_read_hide_no_leaf_cluster(
    teleport_auth: FakeTeleportAuth, tmp_path: Path, text: str
) -> None:
    """Without them, only the proxy is not known."""

    async def respond(_: web.Request) -> web.Response:
        return web.Response(text=text)

    teleport_auth.leaf_clusters = [_leaf_cluster()]
    async with http_auth({"/v2/tunnelconnections": respond}, teleport_auth, tmp_path) as context:
        leaf_clusters = await read_leaf_clusters(context)
    assert [agent.via_proxy_id for agent in leaf_clusters.agents.values()] == [""]


async def test_tunnels_name_the_proxy(teleport_auth: FakeTeleportAuth, tmp_path: Path) -> None:
    spec = {"cluster_name": "leaf.example", "proxy_name": "p1", "last_heartbeat": "1970-01-01T00:01:30Z"}

    async def respond(_: web.Request) -> web.Response:
        return web.json_response([{"kind": "tunnel_connection", "spec": spec}])

    teleport_auth.leaf_clusters = [_leaf_cluster(seen_at=90)]
    async with http_auth({"/v2/tunnelconnections": respond}, teleport_auth, tmp_path) as context:
        leaf_clusters = await read_leaf_clusters(context)
    assert [agent.via_proxy_id for agent in leaf_clusters.agents.values()] == ["p1"]
