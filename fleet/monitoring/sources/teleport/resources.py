"""Agents of a Teleport cluster: the hosts of its resources, by proto.AuthService/ListResources.

One host may serve many resources, such as one per application: they are one agent, with the latest expiry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.changes import complete_list, read_pages
from fleet.monitoring.sources.presence import AgentChanges, ListedAgent, attributes_of
from fleet.monitoring.sources.source import SourceContext
from fleet.monitoring.sources.teleport.instances import ANNOUNCE_TTL
from fleet.monitoring.sources.teleport.inventory import read_auth_by_host
from fleet.monitoring.sources.teleport.leaf_clusters import LeafClusters, read_leaf_clusters
from fleet.monitoring.sources.teleport.refusals import describe_refusal
from fleet.protocol.text_limits import LONGEST_ID, LONGEST_TEXT, cut
from fleet.vocabulary.capabilities import Capability
from fleet.wire import authservice_pb2, authservice_pb2_grpc, types_pb2

#: Kinds of resources whose hosts are agents, as ListResources names them.
KINDS = ("node", "app_server", "db_server", "kube_server", "windows_desktop_service")
#: Teleport's maximum.
PAGE_SIZE = 1000
#: Expiries after this time from now are faults of an auth: Teleport's own are 10 min ahead.
_LATEST_EXPIRY = 366 * 24 * 3600.0
#: Nodes without an agent: OpenSSH servers that Teleport only registers.
_AGENTLESS_PREFIX = "openssh"
#: Kinds of resources in the field of nodes: events have auths and proxies in it, too.
_NODE_KINDS = frozenset({"", "node"})
#: Kind by the field of a list or an event.
_KIND_BY_FIELD = {
    "app_server": "app_server",
    "database_server": "db_server",
    "kubernetes_server": "kube_server",
}
#: Proxies of an agent that are read: proxy peering has few.
_MAX_PROXIES = 100
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HostResource:
    """What one resource tells about the host that serves it."""

    #: One of `KINDS`, and its name among those of its kind and host.
    kind: str
    resource_name: str
    host_id: str
    name: str
    version: str
    #: Seconds since the epoch; 0 without an expiry.
    expires_at: float
    #: Proxies that it has a tunnel to; empty in agent mesh, where Teleport does not report them.
    proxy_ids: tuple[str, ...]
    labels: Mapping[str, str]


class AgentLists(NamedTuple):
    """All agents as a full list, and the kinds that are not in it."""

    changes: AgentChanges
    #: Why the role or the version does not allow a kind, as a sentence, by kind.
    refused_kinds: Mapping[str, str]
    leaf_clusters: LeafClusters


class ResourceLists(NamedTuple):
    """The resources of all kinds that the role may list, the auth of each host, and the leaf clusters."""

    resources: Sequence[HostResource]
    auth_by_host: Mapping[str, str]
    refused_kinds: Mapping[str, str]
    leaf_clusters: LeafClusters


async def list_agents(context: SourceContext) -> AgentChanges:
    """Return all agents as a full list. Raises SourceError."""
    return (await read_agent_lists(context)).changes


async def read_agent_lists(context: SourceContext) -> AgentLists:
    """Return all agents. Raises SourceError.

    Kinds that the role may not list are left out; without any kind the cluster has no list of agents.
    """
    resources, auth_by_host, refused_kinds, leaf_clusters = await read_resource_lists(context)
    resources_by_host: dict[str, HostResource] = {}
    for resource in resources:
        earlier_resource = resources_by_host.get(resource.host_id, resource)
        resources_by_host[resource.host_id] = merge_resources(earlier_resource, resource)
    now = context.clock()
    agents = {
        host_id: agent_of(resource, auth_by_host.get(host_id, ""), now)
        for host_id, resource in resources_by_host.items()
    }
    agents |= leaf_clusters.agents
    return AgentLists(complete_list(agents, sorted(agents.items())), refused_kinds, leaf_clusters)


async def read_resource_lists(context: SourceContext) -> ResourceLists:
    """Return all resources with a host. Raises SourceError. Refused kinds: see `read_agent_lists`."""
    lists, auth_by_host, leaf_clusters = await asyncio.gather(
        _list_kinds(context), read_auth_by_host(context), read_leaf_clusters(context)
    )
    refused_kinds = {
        kind: reason for kind, reason in zip(KINDS, lists, strict=True) if isinstance(reason, str)
    }
    if len(refused_kinds) == len(KINDS):
        for capability in (Capability.AGENTS, Capability.LAST_SEEN, Capability.AGENT_TO_AUTH):
            context.missing_capabilities[capability] = refused_kinds[KINDS[0]]
    resources = [resource for kind_list in lists if not isinstance(kind_list, str) for resource in kind_list]
    return ResourceLists(resources, auth_by_host, refused_kinds, leaf_clusters)


async def _list_kinds(context: SourceContext) -> list[list[HostResource] | str]:
    """Return the agents of each kind in `KINDS`, or why the role or the version does not allow the kind."""
    return await asyncio.gather(*(_list_kind(context, kind) for kind in KINDS))


async def _list_kind(context: SourceContext, kind: str) -> list[HostResource] | str:
    """Return the agents of one kind of resources, or why the role or the version does not allow it."""
    stub = authservice_pb2_grpc.AuthServiceStub(context.channel)
    resources: list[HostResource] = []
    try:
        async for page in read_pages(
            partial(_read_page, stub, kind), attrgetter("next_key"), context.remaining_seconds
        ):
            resources += filter(None, map(host_resource_of, page.resources))
    except SourceError as error:
        reason = describe_refusal(error, f"resources of the kind {kind}", f"list and read for {kind}")
        if reason is None:
            raise
        return reason
    return resources


async def _read_page(
    stub: Any, kind: str, previous_page: authservice_pb2.ListResourcesResponse | None, seconds: float
) -> authservice_pb2.ListResourcesResponse:
    start_key = "" if previous_page is None else previous_page.next_key
    request = authservice_pb2.ListResourcesRequest(resource_type=kind, limit=PAGE_SIZE, start_key=start_key)
    page: authservice_pb2.ListResourcesResponse = await stub.ListResources(request, timeout=seconds)
    return page


def host_resource_of(
    entry: authservice_pb2.PaginatedResource | authservice_pb2.Event,
) -> HostResource | None:
    """Return what an entry of a list or an event tells about a host; None if no agent with a tunnel serves it."""
    match entry.WhichOneof("resource"):
        case "node" | "server" as field:
            node = getattr(entry, field)
            if node.kind not in _NODE_KINDS or not node.spec.use_tunnel:
                return None
            if node.sub_kind.startswith(_AGENTLESS_PREFIX):
                return None
            host, spec = node.metadata.name, node.spec
            return _make(
                "node", host, spec.hostname, spec.version, node.metadata, spec.proxy_ids, _labels_of(node)
            )
        case "windows_desktop_service" as field:
            service = getattr(entry, field)
            spec, metadata = service.spec, service.header.metadata
            return _make(field, metadata.name, spec.hostname, spec.teleport_version, metadata, spec.proxy_ids)
        case "app_server" | "database_server" | "kubernetes_server" as field:
            server = getattr(entry, field)
            spec = server.spec
            return _make(
                _KIND_BY_FIELD[field],
                *(spec.host_id, spec.hostname, spec.version),
                server.metadata,
                spec.proxy_ids,
            )
    return None


def _make(
    kind: str,
    host_id: str,
    hostname: str,
    version: str,
    metadata: types_pb2.Metadata,
    proxy_ids: Iterable[str],
    labels: Mapping[str, str] = _NO_LABELS,
) -> HostResource | None:
    if not 0 < len(host_id) <= LONGEST_ID:
        return None
    expires = metadata.expires
    expires_at = expires.seconds + expires.nanos / 1e9 if metadata.HasField("expires") else 0.0
    name = cut(metadata.name, LONGEST_TEXT)
    return HostResource(
        kind,
        *(name, host_id, hostname or host_id, version),
        max(expires_at, 0.0),
        tuple(cut(proxy_id, LONGEST_ID) for proxy_id in islice(proxy_ids, _MAX_PROXIES)),
        labels,
    )


def _labels_of(node: types_pb2.ServerV2) -> dict[str, str]:
    """Return static labels and the results of command labels."""
    commands = {key: label.result for key, label in node.spec.cmd_labels.items()}
    return {**commands, **node.metadata.labels}


def merge_resources(first: HostResource, second: HostResource) -> HostResource:
    """Return one host of two resources: the names and labels of the first, and the latest expiry.

    The proxies are those of the newer resource: an agent may have moved since the older one.
    """
    return HostResource(
        first.kind,
        first.resource_name,
        first.host_id,
        first.name if first.name != first.host_id else second.name,
        first.version or second.version,
        max(first.expires_at, second.expires_at),
        max(first, second, key=attrgetter("expires_at")).proxy_ids,
        first.labels or second.labels,
    )


def agent_of(resource: HostResource, auth_id: str, now: float) -> ListedAgent:
    """Return the agent of a host; `now`: when the resource was read, seconds since the epoch.

    An agent whose tunnels all end at one proxy reaches its auth through it. With several, the loss of one cuts nothing
    off.
    """
    proxies = set(resource.proxy_ids)
    return ListedAgent(
        name=cut(resource.name),
        auth_id=auth_id,
        expires_at=min(resource.expires_at, now + _LATEST_EXPIRY),
        ttl=ANNOUNCE_TTL,
        via_proxy_id=proxies.pop() if len(proxies) == 1 else "",
        mode=ReconnectMode.UNKNOWN,
        health_check=False,
        policy_read_at=0.0,
        desired_count=0,
        claimed_count=0,
        tracked_count=0,
        ttl_seen=0.0,
        attributes=attributes_of(resource.version, resource.labels),
    )
