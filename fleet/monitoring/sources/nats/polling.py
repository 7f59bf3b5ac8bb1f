"""What is polled at NATS hubs: /varz for the list of hubs, /leafz for tunnels, /healthz and leaf port for health."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar
from weakref import WeakKeyDictionary

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.health import HEALTH, HealthResponse
from fleet.monitoring.sources.nats.documents import (
    Document,
    HubDocument,
    NATSDocumentError,
    describe_old_version,
    find_health_problem,
    make_id,
    parse_hub,
    parse_leaves,
)
from fleet.monitoring.sources.nats.leaf_port import MIN_SECONDS, check_leaf_ports, find_leaf_address
from fleet.monitoring.sources.nats.monitoring_port import LARGEST_LEAF_LIST, get_document
from fleet.monitoring.sources.presence import INSTANCES, ListedInstance
from fleet.monitoring.sources.source import SourceContext, SourcePolling
from fleet.monitoring.sources.tunnels import TUNNELS, TunnelChanges
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind, InstanceResource, ServingStatus

#: Seconds that a good check of a leaf port counts while no leaf node leaf_list: a hub logs each connection to it.
PORT_CHECK_SECONDS = 30.0
#: /leafz has no time at which a connection began.
_UNKNOWN_TIME = 0.0
#: Digits of the digest of a list that are its revision: the record reads rows again when it differs.
_REVISION_DIGITS = 12
LEAF_CAPABILITIES = frozenset({Capability.AGENTS, Capability.TUNNELS_BY_AGENT, Capability.TUNNEL_COUNTS})
ParsedT = TypeVar("ParsedT")


@dataclass(frozen=True, slots=True)
class _GoodPortCheck:
    at: float
    leaf_count: int


#: By the connections of a cluster, which a worker process keeps between rounds, and by monitoring address.
_good_port_checks: WeakKeyDictionary[Connections, dict[str, _GoodPortCheck]] = WeakKeyDictionary()


async def list_hubs(context: SourceContext) -> tuple[ListedInstance, ...]:
    """Return the hubs behind all addresses of the cluster: each hub knows only itself.

    A hub that does not respond stays known. Raises SourceError when none responds.
    """
    responses = await asyncio.gather(
        *(read_hub(context, address) for address in context.addresses), return_exceptions=True
    )
    hubs: dict[str, HubDocument] = {}
    failures: list[SourceError] = []
    for address, response in zip(context.addresses, responses, strict=True):
        if isinstance(response, HubDocument):
            hubs[address] = response
        elif isinstance(response, SourceError):
            failures.append(SourceError(f"{address}: {response}", has_response=response.has_response))
        else:
            raise response
    if not hubs:
        raise failures[0] if failures else SourceError("the cluster has no addresses", has_response=False)
    if not any(hub.names_leaves for hub in hubs.values()):
        version = next(iter(hubs.values())).version
        reason = f"{describe_old_version(f'nats-server {version}')}."
        context.missing_capabilities.update(dict.fromkeys(LEAF_CAPABILITIES, reason))
    return list_instances_of(hubs)


async def read_hub(context: SourceContext, address: str) -> HubDocument:
    """Return what the hub with a monitoring address reports about itself. Raises SourceError."""
    response = await get_document(
        context.connections.session, address, "/varz", timeout=context.remaining_seconds()
    )
    return _parse("/varz", parse_hub, response.document)


def list_instances_of(hubs: dict[str, HubDocument]) -> tuple[ListedInstance, ...]:
    """Return the instances of hubs by monitoring address: a server with several addresses is one instance.

    Its id is its name, which stays the same when the server restarts or moves; without a name, and where several
    servers have the same name, the monitoring address.
    """
    distinct_hubs: dict[str, tuple[str, HubDocument]] = {}
    for address, hub in hubs.items():
        distinct_hubs.setdefault(hub.server_id, (address, hub))
    name_counts = Counter(hub.name for _, hub in distinct_hubs.values())
    instances = []
    for address, hub in distinct_hubs.values():
        if not hub.has_name:
            identity = name = address
        elif name_counts[hub.name] > 1:
            identity = name = f"{hub.name} ({address})"
        else:
            identity = name = hub.name
        leaf_address = find_leaf_address(address, hub)
        resource = InstanceResource(
            name=name,
            address=address if leaf_address is None else str(leaf_address),
            diag_address=address,
            version=hub.version,
        )
        instances.append(ListedInstance(make_id(identity), InstanceKind.PROXY, resource))
    return tuple(instances)


async def list_leaves(context: SourceContext) -> TunnelChanges:
    """Return the leaf nodes of a hub: a full list when it differs from that of the last round. Raises SourceError."""
    response = await get_document(
        *(context.connections.session, context.target.diag_address, "/leafz"),
        timeout=context.remaining_seconds(),
        max_bytes=LARGEST_LEAF_LIST,
    )
    leaf_list = _parse("/leafz", parse_leaves, response.document)
    changes = TunnelChanges(leaf_list.digest, int(leaf_list.digest[:_REVISION_DIGITS], 16), complete=True)
    if leaf_list.digest != context.target.feed_epoch:
        changes.full = True
        changes.agents.update(
            {connection.agent_id: (connection.name, _UNKNOWN_TIME) for connection in leaf_list.connections}
        )
    return changes


async def check_hub(context: SourceContext) -> HealthResponse:
    """Return whether a hub is healthy: it says so, and the port to which its leaf nodes connect responds.

    Raises SourceError.
    """
    address, session = context.target.diag_address, context.connections.session
    health, hub = await asyncio.gather(
        get_document(session, address, "/healthz", timeout=context.remaining_seconds()),
        read_hub(context, address),
    )
    try:
        problem = find_health_problem(health.status, health.document)
    except NATSDocumentError as error:
        raise SourceError(f"/healthz: {error}", has_response=True) from None
    problem = problem or await _find_port_problem(context, hub)
    return HealthResponse(ServingStatus.NOT_SERVING if problem else ServingStatus.SERVING, problem=problem)


async def _find_port_problem(context: SourceContext, hub: HubDocument) -> str:
    """Return the problem of the leaf port as a clause. Raises SourceError without time to find out."""
    monitoring_address = context.target.diag_address
    listener = find_leaf_address(monitoring_address, hub)
    if listener is None:
        return ""
    good_checks = _good_port_checks.setdefault(context.connections, {})
    last_check, now = good_checks.get(monitoring_address), context.clock()
    if (
        last_check is not None
        and 0 <= now - last_check.at < PORT_CHECK_SECONDS
        and hub.leaf_count >= last_check.leaf_count
    ):
        good_checks[monitoring_address] = replace(last_check, leaf_count=hub.leaf_count)
        return ""
    if context.remaining_seconds() < MIN_SECONDS:
        raise SourceError("no time left to check the leaf node port", has_response=True)
    problem = await check_leaf_ports(listener, context.remaining_seconds, has_tls=hub.has_leaf_tls)
    if problem:
        good_checks.pop(monitoring_address, None)
    else:
        good_checks[monitoring_address] = _GoodPortCheck(now, hub.leaf_count)
    return problem


def _parse(path: str, parse: Callable[[Document], ParsedT], document: Document) -> ParsedT:
    try:
        return parse(document)
    except NATSDocumentError as error:
        raise SourceError(f"{path}: {error}", has_response=True) from None


POLLING = SourcePolling(
    instance_sources=(
        replace(HEALTH, query=check_hub),
        replace(TUNNELS, query=list_leaves, capabilities=LEAF_CAPABILITIES),
    ),
    list_sources=(replace(INSTANCES, query=list_hubs, is_retried=False),),
    has_instances_by_address=True,
)
