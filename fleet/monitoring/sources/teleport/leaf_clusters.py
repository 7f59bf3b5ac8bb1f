"""Leaf clusters of a Teleport cluster as agents: they reach its proxies by tunnels too, and can be cut off like them.

PresenceService/ListRemoteClusters has their last heartbeats, and the HTTP API of auths the proxies of their tunnels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError

from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.changes import read_pages
from fleet.monitoring.sources.presence import ListedAgent, attributes_of
from fleet.monitoring.sources.source import SourceContext
from fleet.monitoring.sources.teleport.auth_http import get_resources
from fleet.monitoring.sources.teleport.refusals import describe_refusal
from fleet.protocol.text_limits import LONGEST_ID, cut
from fleet.wire import presence_pb2, presence_pb2_grpc, resources_pb2

#: Kinds of these resources in a role.
LEAF_CLUSTER_KIND, TUNNEL_KIND = "remote_cluster", "tunnel_connection"
#: Seconds after its last heartbeat until Teleport calls a leaf cluster offline: keep_alive_interval times
#: keep_alive_count_max, by default 5 min times 3.
OFFLINE_AFTER_SECONDS = 900.0
#: Label of leaf clusters, so that they can be filtered: `label.kind:leaf-cluster`.
KIND_LABEL = ("kind", "leaf-cluster")
_OFFLINE = "offline"
_RESOURCES, _VERBS = "resources of the kind {}", "list and read for {}"
_TUNNELS_PATH = "/v2/tunnelconnections"
#: Share of the remaining seconds for the HTTP API: a relay before an auth may carry gRPC only, and must delay no list.
_TUNNELS_TIME_SHARE = 0.5
_PAGE_SIZE = 1000


class LeafTunnel(NamedTuple):
    """A tunnel of a leaf cluster to a proxy."""

    leaf_cluster: str
    proxy_id: str
    #: Seconds since the epoch.
    seen_at: float


class LeafClusters(NamedTuple):
    """The leaf clusters as agents by name."""

    agents: Mapping[str, ListedAgent]
    #: Why the role or the version does not allow a kind, as a sentence, by kind.
    refused_kinds: Mapping[str, str]


async def read_leaf_clusters(context: SourceContext) -> LeafClusters:
    """Return the leaf clusters. Raises SourceError.

    Without the list of tunnels, leaf clusters have no proxy as cause.
    """
    leaf_clusters, tunnels = await asyncio.gather(_list_leaf_clusters(context), _list_tunnels(context))
    refused_kinds = {
        kind: reason
        for kind, reason in ((LEAF_CLUSTER_KIND, leaf_clusters), (TUNNEL_KIND, tunnels))
        if isinstance(reason, str)
    }
    if isinstance(leaf_clusters, str):
        return LeafClusters({}, refused_kinds)
    listed_tunnels = () if isinstance(tunnels, str) else tunnels
    return LeafClusters(agents_of(leaf_clusters, listed_tunnels, context.clock()), refused_kinds)


def agents_of(
    leaf_clusters: Iterable[resources_pb2.RemoteClusterV3], tunnels: Iterable[LeafTunnel], now: float
) -> dict[str, ListedAgent]:
    """Return the leaf clusters as agents by name; `now`: seconds since the epoch.

    A leaf cluster whose tunnels all end at one proxy depends on it. With several, the loss of one cuts nothing off.
    """
    proxies_by_leaf_cluster: dict[str, set[str]] = {}
    for tunnel in tunnels:
        if now - tunnel.seen_at < OFFLINE_AFTER_SECONDS:
            proxies_by_leaf_cluster.setdefault(tunnel.leaf_cluster, set()).add(tunnel.proxy_id)
    agents: dict[str, ListedAgent] = {}
    for leaf_cluster in leaf_clusters:
        name = leaf_cluster.metadata.name
        if 0 < len(name) <= LONGEST_ID:
            agents[name] = _agent_of(leaf_cluster, proxies_by_leaf_cluster.get(name, set()), now)
    return agents


def _agent_of(leaf_cluster: resources_pb2.RemoteClusterV3, proxies: set[str], now: float) -> ListedAgent:
    heartbeat = leaf_cluster.status.last_heartbeat
    # An auth whose clock is ahead must not keep a leaf cluster online for longer.
    seen_at = min(max(heartbeat.seconds + heartbeat.nanos / 1e9, 0.0), now)
    is_offline = leaf_cluster.status.connection == _OFFLINE
    return ListedAgent(
        name=cut(leaf_cluster.metadata.name),
        auth_id="",
        expires_at=seen_at if is_offline else seen_at + OFFLINE_AFTER_SECONDS,
        ttl=OFFLINE_AFTER_SECONDS,
        via_proxy_id=next(iter(proxies)) if len(proxies) == 1 else "",
        mode=ReconnectMode.UNKNOWN,
        health_check=False,
        policy_read_at=0.0,
        desired_count=0,
        claimed_count=0,
        tracked_count=0,
        ttl_seen=0.0,
        attributes=attributes_of("", dict([KIND_LABEL]) | dict(leaf_cluster.metadata.labels)),
    )


async def _list_leaf_clusters(context: SourceContext) -> list[resources_pb2.RemoteClusterV3] | str:
    """Return the leaf clusters, or why the role or the version does not allow it."""
    stub = presence_pb2_grpc.PresenceServiceStub(context.channel)
    leaf_clusters: list[resources_pb2.RemoteClusterV3] = []

    async def read_page(
        previous_page: presence_pb2.ListRemoteClustersResponse | None, seconds: float
    ) -> presence_pb2.ListRemoteClustersResponse:
        token = "" if previous_page is None else previous_page.next_page_token
        request = presence_pb2.ListRemoteClustersRequest(page_size=_PAGE_SIZE, page_token=token)
        page: presence_pb2.ListRemoteClustersResponse = await stub.ListRemoteClusters(
            request, timeout=seconds
        )
        return page

    try:
        pages = read_pages(read_page, attrgetter("next_page_token"), context.remaining_seconds)
        async for page in pages:
            leaf_clusters += page.remote_clusters
    except SourceError as error:
        reason = describe_refusal(
            error, _RESOURCES.format(LEAF_CLUSTER_KIND), _VERBS.format(LEAF_CLUSTER_KIND)
        )
        if reason is None:
            raise
        return reason
    return leaf_clusters


async def _list_tunnels(context: SourceContext) -> Sequence[LeafTunnel] | str:
    """Return the tunnels of all leaf clusters, or why the role or the version does not allow it."""
    try:
        async with asyncio.timeout(context.remaining_seconds() * _TUNNELS_TIME_SHARE):
            documents = await get_resources(context, _TUNNELS_PATH)
    except TimeoutError:
        return "Auths do not return tunnels of leaf clusters in time."
    except SourceError as error:
        # Only the proxy of a leaf cluster is not known then, which must not hide the list.
        return describe_refusal(error, _RESOURCES.format(TUNNEL_KIND), _VERBS.format(TUNNEL_KIND)) or (
            f"Auths do not return tunnels of leaf clusters: {error}."
        )
    return tuple(filter(None, map(_parse_tunnel, documents)))


def _parse_tunnel(document: Any) -> LeafTunnel | None:
    """Return the tunnel of a document; None if it is no such resource."""
    try:
        spec = document["spec"]
        fields = {name: spec[name] for name in ("cluster_name", "proxy_name", "last_heartbeat")}
        tunnel = ParseDict(fields, resources_pb2.TunnelConnectionSpecV2())
    except (TypeError, KeyError, ParseError):
        return None
    seen_at = tunnel.last_heartbeat.seconds + tunnel.last_heartbeat.nanos / 1e9
    return LeafTunnel(tunnel.cluster_name, tunnel.proxy_name, seen_at)
