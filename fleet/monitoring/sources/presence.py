"""Evidence H, from an auth: agents by fleet.v1.AgentFeed, incrementally; instances by Teleport's PresenceService."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.evidence import LISTS, PRESENCE, ReconnectMode
from fleet.monitoring.sources.changes import FeedChanges, read_changes, read_pages
from fleet.monitoring.sources.source import EvidenceSource, SourceContext
from fleet.protocol import durations
from fleet.protocol.instance_labels import (
    DIAG_LABEL,
    GENERATION_LABEL,
    GROUP_ID_LABEL,
    HEARTBEAT_AUTH_LABEL,
    REGION_LABEL,
    TTL_LABEL,
)
from fleet.protocol.text_limits import LONGEST_ID, LONGEST_TEXT, MOST_LABELS, cut
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind, InstanceResource
from fleet.wire import fleet_pb2, fleet_pb2_grpc, presence_pb2, presence_pb2_grpc, types_pb2

#: Agents per response, and instances per response (Teleport's limit).
PAGE_SIZE = 2000
_INSTANCES_PAGE_SIZE = 1000
_Page: TypeAlias = presence_pb2.ListAuthServersResponse | presence_pb2.ListProxyServersResponse


class ListedAgent(NamedTuple):
    """An agent's resource. Instances by id; times in seconds since the epoch, durations in seconds."""

    name: str
    auth_id: str
    expires_at: float
    ttl: float
    via_proxy_id: str
    mode: ReconnectMode
    health_check: bool
    policy_read_at: float
    desired_count: int
    claimed_count: int
    tracked_count: int
    ttl_seen: float
    attributes: AgentAttributes


#: Entry of the feed; None for an agent whose resource was deleted.
AgentChanges = FeedChanges[ListedAgent]


@dataclass(frozen=True, slots=True)
class ListedInstance:
    """The resource of an auth or proxy."""

    id: str
    kind: InstanceKind
    resource: InstanceResource


async def list_agents(context: SourceContext) -> AgentChanges:
    """Request all pages. Raises SourceError."""
    feed = fleet_pb2_grpc.AgentFeedStub(context.channel)
    create_request = partial(fleet_pb2.ListAgentsRequest, limit=PAGE_SIZE)
    return await read_changes(context, feed.ListAgents, create_request, _read_entries)


def _read_entries(page: fleet_pb2.ListAgentsResponse, now: float) -> Iterator[tuple[str, ListedAgent | None]]:
    yield from dict.fromkeys(page.removed).items()
    for entry in page.agents:
        if len(entry.agent.agent_id) <= LONGEST_ID:
            yield entry.agent.agent_id, listed_agent_of(entry, now)


def listed_agent_of(entry: fleet_pb2.AgentEntry, now: float) -> ListedAgent:
    """Return the agent of an entry that came at `now`: ages in it count from then."""
    agent = entry.agent
    policy, tracker = agent.policy, agent.tracker
    return ListedAgent(
        name=cut(agent.name),
        auth_id=cut(entry.auth_id, LONGEST_ID),
        expires_at=now + durations.from_milliseconds(entry.expires_in_ms),
        ttl=durations.from_milliseconds(agent.ttl_ms),
        via_proxy_id=cut(agent.via_proxy_id, LONGEST_ID),
        mode=ReconnectMode.from_slug(policy.mode),
        health_check=policy.health_check,
        policy_read_at=now - durations.from_milliseconds(policy.read_age_ms) if policy.mode else 0.0,
        desired_count=tracker.desired_count,
        claimed_count=len(tracker.claimed),
        tracked_count=tracker.tracked,
        ttl_seen=durations.from_milliseconds(tracker.ttl_seen_ms),
        attributes=attributes_of(agent.version, agent.labels),
    )


def attributes_of(version: str, labels: Mapping[str, str]) -> AgentAttributes:
    """Return version and labels: the first 64 labels by key. A label without a key is left out.

    Auths of Refloat refuse what is changed here; others may not.
    """
    if not labels:
        return AgentAttributes(_clean(version))
    pairs = {_clean(key): _clean(text) for key, text in labels.items() if key}
    return AgentAttributes(_clean(version), tuple(sorted(pairs.items())[:MOST_LABELS]))


def _clean(text: str) -> str:
    """Return a text cut to its longest length, with a replacement character for each unprintable one."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return cut(text, LONGEST_TEXT)


async def list_instances(context: SourceContext) -> tuple[ListedInstance, ...]:
    """Request all auths and proxies: only the complete list tells which are missing. Raises SourceError."""
    stub = presence_pb2_grpc.PresenceServiceStub(context.channel)
    instances: list[ListedInstance] = []
    for kind, call, create_request in (
        (InstanceKind.AUTH, stub.ListAuthServers, presence_pb2.ListAuthServersRequest),
        (InstanceKind.PROXY, stub.ListProxyServers, presence_pb2.ListProxyServersRequest),
    ):
        read_page = partial(_read_page, call, partial(create_request, page_size=_INSTANCES_PAGE_SIZE))
        async for page in read_pages(read_page, attrgetter("next_page_token"), context.remaining_seconds):
            instances += _listed_instances_of(kind, page.servers)
    return tuple(instances)


async def _read_page(
    call: Callable[..., Awaitable[_Page]],
    create_request: Callable[..., object],
    previous_page: _Page | None,
    seconds: float,
) -> _Page:
    token = "" if previous_page is None else previous_page.next_page_token
    return await call(create_request(page_token=token), timeout=seconds)


def _listed_instances_of(kind: InstanceKind, servers: Sequence[types_pb2.ServerV2]) -> list[ListedInstance]:
    return [
        listed_instance_of(kind, server) for server in servers if 0 < len(server.metadata.name) <= LONGEST_ID
    ]


def listed_instance_of(kind: InstanceKind, server: types_pb2.ServerV2) -> ListedInstance:
    """Return the instance of a resource; missing or invalid values are empty."""
    metadata, labels = server.metadata, server.metadata.labels
    expires_at = (
        metadata.expires.seconds + metadata.expires.nanos / 1e9 if metadata.HasField("expires") else None
    )
    generation = labels.get(GENERATION_LABEL, "")
    resource = InstanceResource(
        name=cut(server.spec.hostname or metadata.name),
        address=cut(server.spec.addr),
        diag_address=cut(labels.get(DIAG_LABEL, "")),
        version=cut(server.spec.version),
        ttl=_parse_seconds(labels.get(TTL_LABEL, "")),
        expires_at=expires_at,
        group=cut(labels.get(GROUP_ID_LABEL, "")),
        generation=int(generation) if generation.isdecimal() and len(generation) <= 18 else 0,
        region=cut(labels.get(REGION_LABEL, "")),
        heartbeat_auth=cut(labels.get(HEARTBEAT_AUTH_LABEL, ""), LONGEST_ID),
    )
    return ListedInstance(metadata.name, kind, resource)


def _parse_seconds(text: str) -> float | None:
    try:
        return durations.parse(text) if text else None
    except durations.DurationError:
        return None


AGENTS = EvidenceSource(
    PRESENCE,
    list_agents,
    is_retried=True,
    capabilities=frozenset(
        {Capability.AGENTS, Capability.LAST_SEEN, Capability.AGENT_TO_AUTH, Capability.WATCH}
    ),
)
INSTANCES = EvidenceSource(
    LISTS, list_instances, is_retried=True, capabilities=frozenset({Capability.INSTANCES})
)
