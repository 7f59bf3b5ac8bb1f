"""Recording of an auth's lists: instances with their expiries, agents with their heartbeats."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import HEALTH_CHECK, HEARTBEAT, LIST_PARITY, NO_INSTANCE
from fleet.monitoring.evidence import LISTS, PRESENCE, FeedFreshness
from fleet.monitoring.pollers.loaded_source import LoadedSource
from fleet.monitoring.pollers.record_sightings import RecordHandle, note_feed_reset
from fleet.monitoring.pollers.shard_poll import PollResult, ShardResult
from fleet.monitoring.sources.diag_addresses import (
    KnownInstance,
    find_diag_address,
    find_missing_by_diag_addresses,
)
from fleet.monitoring.sources.presence import AGENTS, INSTANCES, AgentChanges, ListedAgent, ListedInstance
from fleet.monitoring.sources.source import EvidenceSource
from fleet.monitoring.state.codec import FeedState, Rows, blank_rows, rows_of
from fleet.monitoring.state.list_notices import ListNoticeStore
from fleet.monitoring.state.missing_capabilities import MissingCapabilityStore
from fleet.monitoring.state.roster import clean_text
from fleet.source_plugins.declaration import list_missing
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceResource, extract_part

logger = logging.getLogger(__name__)

#: What a list has, by the name of its source, for the log.
_LIST_CONTENTS = {LISTS: "auths and proxies", PRESENCE: "agents"}
#: A resource that disappears with more than this share of its TTL left was deleted; with less it expired, and the
#: clocks differ.
_DELETED_SHARE = 0.25
#: TTL in seconds of an instance that does not report one (Teleport's ServerAnnounceTTL).
_DEFAULT_TTL = 600.0
#: Seconds without a response until an instance without an address of its cluster is removed: a DNS name may leave out
#: an instance that restarts.
_REMOVED_AFTER_SECONDS = 600.0


def record_lists(
    handle: RecordHandle,
    shard_result: ShardResult,
    loaded_source: LoadedSource,
    diag_addresses: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the lists and the missing capabilities, or that no auth responded.

    `diag_addresses`: those that people entered, by instance. Raises RecordLostError, StateUnavailableError.
    """
    list_result = shard_result.list_result
    if list_result is None:
        if shard_result.probe_succeeded:
            _record_failure(handle, shard_result.at, loaded_source.polling.list_sources)
        return
    has_diag_addresses = loaded_source.source.form.has_diag_addresses
    instances, agents = list_result.response_of(INSTANCES), list_result.response_of(AGENTS)
    findings = dict(list_result.missing_capabilities)
    if has_diag_addresses:
        findings |= _find_missing_by_diag_addresses(handle, instances or (), diag_addresses, loaded_source)
    missing_capabilities = list_missing(loaded_source.source, findings)
    MissingCapabilityStore(handle.writer.redis, handle.writer.prefix).write(
        handle.cluster, missing_capabilities
    )
    ListNoticeStore(handle.writer.redis, handle.writer.prefix).write(
        handle.cluster, _describe_old_lists(list_result)
    )
    _record_failure(handle, list_result.at, list_result.failed_sources)
    _log_recoveries(handle, list_result.responses.keys() - list_result.failed_sources)
    if instances is not None:
        addresses = list_result.addresses if loaded_source.polling.has_instances_by_address else None
        _record_instances(
            handle, instances, list_result.at, addresses, diag_addresses if has_diag_addresses else None
        )
    if agents is not None:
        _record_agents(handle, list_result, agents)


def _describe_old_lists(list_result: PollResult) -> str:
    """Return that the lists may be old, and what to do, as sentences; empty for those of an auth that is serving."""
    if not list_result.is_old:
        return ""
    return (
        f"The lists of this cluster may be old: the auth at {list_result.target.address} reports that it is not "
        "ready, and no other address of the cluster returned lists. Enter the address of another auth."
    )


def _record_failure(handle: RecordHandle, at: float, sources: Iterable[EvidenceSource[Any]]) -> None:
    feeds = {}
    for source in sources:
        before, state = handle.feed(source.name)
        feeds[source.name] = (before, state.after_failed_attempt(at))
        if state.freshness.attempted_at == state.freshness.responded_at:
            # Once per outage: each round tries again.
            contents = _LIST_CONTENTS.get(source.name, source.name)
            logger.warning("cluster %s: the list of %s could not be read", handle.cluster, contents)
    handle.writer.write_feeds(handle.cluster, handle.epoch, feeds)


def _log_recoveries(handle: RecordHandle, sources: Iterable[EvidenceSource[Any]]) -> None:
    for source in sources:
        freshness = handle.feed(source.name)[1].freshness
        if freshness.attempted_at != freshness.responded_at:
            contents = _LIST_CONTENTS.get(source.name, source.name)
            logger.info("cluster %s: the list of %s is read again", handle.cluster, contents)


def _record_instances(
    handle: RecordHandle,
    listed_instances: Sequence[ListedInstance],
    at: float,
    addresses: Sequence[str] | None,
    diag_addresses: Mapping[str, str] | None,
) -> None:
    """Write the resources.

    `addresses`: those of the cluster if an instance without one of them was removed. `diag_addresses`: those that
    people entered, in place of those of the list; None: those of the list count.
    """
    writer, cluster = handle.writer, handle.cluster
    identities = [
        (clean_text(instance.id), instance.kind.value, clean_text(instance.resource.name))
        for instance in listed_instances
    ]
    indices = writer.intern_instances(cluster, handle.epoch, identities).tolist()
    resources = {
        index: _clean_resource(instance) for index, instance in zip(indices, listed_instances, strict=True)
    }
    for index, facts in handle.instances.items():
        is_unlisted = index not in resources and facts.gone_at is None
        if is_unlisted and (is_deleted(facts, at) or is_removed(facts, addresses, at)):
            resources[index] = replace(extract_part(InstanceResource, facts), gone_at=at)
        elif is_unlisted and diag_addresses is not None:
            # An instance that failed is not listed for long, and its address may be corrected meanwhile.
            resources[index] = extract_part(InstanceResource, facts)
    if diag_addresses is not None:
        resources |= _with_diag_addresses(handle, identities, indices, resources, diag_addresses)
    previous_resources = {
        index: extract_part(InstanceResource, facts) for index, facts in handle.instances.items()
    }
    changed_resources = {
        index: resource for index, resource in resources.items() if previous_resources.get(index) != resource
    }
    writer.write_instances(cluster, handle.epoch, resources=changed_resources)
    before, _ = handle.feed(LISTS)
    writer.write_feed(
        cluster,
        handle.epoch,
        LISTS,
        feed_before=before,
        feed_after=FeedState(freshness=FeedFreshness(at, at)),
    )


def _with_diag_addresses(
    handle: RecordHandle,
    identities: Sequence[tuple[str, str, str]],
    indices: Sequence[int],
    resources: Mapping[int, InstanceResource],
    diag_addresses: Mapping[str, str],
) -> dict[int, InstanceResource]:
    """Return resources with the diag addresses that people entered for them."""
    ids = {index: facts.id for index, facts in handle.instances.items()}
    ids |= {index: identity for index, (identity, _, _) in zip(indices, identities, strict=True)}
    return {
        index: replace(resource, diag_address=find_diag_address(diag_addresses, ids[index], resource.name))
        for index, resource in resources.items()
    }


def _find_missing_by_diag_addresses(
    handle: RecordHandle,
    listed_instances: Sequence[ListedInstance],
    diag_addresses: Mapping[str, str],
    loaded_source: LoadedSource,
) -> dict[Capability, str]:
    """Return the capabilities that the cluster lacks without diag addresses of its instances, with the reason."""
    known_instances = {
        *(KnownInstance(facts.id, facts.name, facts.kind) for facts in handle.instances.values()),
        *(KnownInstance(instance.id, instance.resource.name, instance.kind) for instance in listed_instances),
    }
    return find_missing_by_diag_addresses(
        diag_addresses, known_instances, loaded_source.polling.instance_capabilities
    )


def is_deleted(facts: InstanceFacts, at: float) -> bool:
    """Return whether a resource that is no longer listed was deleted before it expired."""
    if facts.expires_at is None:
        # The instance never had a resource: an agent's resource names it.
        return False
    return facts.expires_at - at > _DELETED_SHARE * (facts.ttl or _DEFAULT_TTL)


def is_removed(facts: InstanceFacts, addresses: Sequence[str] | None, at: float) -> bool:
    """Return whether an instance has no address of its cluster any more, and has not responded for 10 min.

    `addresses`: None if the instances do not follow from the addresses.
    """
    if addresses is None or facts.expires_at is not None or facts.diag_address in addresses:
        return False
    is_responding = any(attempt.ok for attempt in facts.attempts)
    return (
        not is_responding and facts.sick_since is not None and at - facts.sick_since >= _REMOVED_AFTER_SECONDS
    )


def _clean_resource(instance: ListedInstance) -> InstanceResource:
    resource = instance.resource
    return replace(
        resource,
        name=clean_text(resource.name),
        region=clean_text(resource.region),
        heartbeat_auth=clean_text(resource.heartbeat_auth),
    )


def _record_agents(handle: RecordHandle, list_result: PollResult, changes: AgentChanges) -> None:
    """Write the agents' rows. A complete full list expires the rows of agents that are not in it."""
    before, state = handle.feed(PRESENCE)
    is_listing = changes.full or state.is_listing
    parity = state.parity ^ int(changes.full)
    after = FeedState(
        # A resource that expired meanwhile may be renewed on a page that has not arrived, so no row is expired yet.
        freshness=FeedFreshness(
            list_result.at, list_result.at if changes.complete else state.freshness.responded_at
        ),
        epoch=changes.epoch,
        revision=changes.revision,
        is_listing=is_listing and not changes.complete,
        parity=parity,
        last_auth=list_result.target.index,
    )
    writer, cluster, epoch = handle.writer, handle.cluster, handle.epoch
    listed_agents = {
        clean_text(agent): entry for agent, entry in changes.agents.items() if entry is not None and agent
    }
    indices = writer.intern_agents(
        cluster, epoch, [(agent, clean_text(entry.name)) for agent, entry in listed_agents.items()]
    )
    rows, tracked_counts = _build_heartbeat_rows(handle, list(listed_agents.values()), parity)
    removed_agents = writer.find_agents(
        cluster, epoch, (a for a, entry in changes.agents.items() if entry is None)
    )
    if is_listing and changes.complete:
        removed_agents = np.union1d(
            removed_agents, _find_unlisted_agents(handle, indices, parity, list_result.at)
        ).astype(np.uint32)
    row_count = len(writer.heartbeats(cluster)) // HEARTBEAT.itemsize if len(removed_agents) else 0
    is_written = writer.write_heartbeats(
        *(cluster, epoch),
        feed_before=before,
        feed_after=after,
        indices=indices,
        rows=rows,
        # An agent that only tunnels ever named has no row to expire.
        removed_agents=removed_agents[removed_agents < row_count],
        removed_at=list_result.at,
        tracked_counts=tracked_counts,
        attributes=[entry.attributes for entry in listed_agents.values()],
    )
    note_feed_reset(handle, PRESENCE, state, changes, list_result.at, is_written=is_written)


def _find_unlisted_agents(
    handle: RecordHandle, listed_agents: npt.NDArray[np.uint32], parity: int, at: float
) -> npt.NDArray[np.uint32]:
    """Return the agents whose resource is unexpired, and on no page of the full list."""
    blob = handle.writer.heartbeats(handle.cluster)
    column = rows_of(blob, HEARTBEAT, len(blob) // HEARTBEAT.itemsize)
    is_unlisted = ((column["flags"] & LIST_PARITY) != 0) != bool(parity)
    is_unlisted &= column["expires_at"] > at
    is_unlisted[listed_agents[listed_agents < len(is_unlisted)]] = False
    return np.flatnonzero(is_unlisted).astype(np.uint32)


def _build_heartbeat_rows(
    handle: RecordHandle, agents: Sequence[ListedAgent], parity: int
) -> tuple[Rows, npt.NDArray[np.uint8]]:
    """Return HEARTBEAT rows, and the number of proxies that each agent tracks."""
    rows = blank_rows(HEARTBEAT, len(agents))
    if not agents:
        return rows, np.zeros(0, np.uint8)
    columns = ListedAgent(*zip(*agents, strict=True))  # type: ignore[arg-type]  # a tuple of columns, by the same names
    rows["expires_at"], rows["ttl"], rows["ttl_seen"] = columns.expires_at, columns.ttl, columns.ttl_seen
    rows["policy_read_at"], rows["mode"] = columns.policy_read_at, columns.mode
    rows["flags"] = np.array(columns.health_check, np.uint8) * HEALTH_CHECK | LIST_PARITY * parity
    for name in ("desired_count", "claimed_count"):
        rows[name] = _clip_to_bytes(getattr(columns, name))
    rows["auth"] = _intern_auths(handle, columns.auth_id)
    rows["via_proxy"] = _find_proxies(handle, columns.via_proxy_id)
    return rows, _clip_to_bytes(columns.tracked_count)  # type: ignore[arg-type]  # a column


def _clip_to_bytes(numbers: Sequence[int]) -> npt.NDArray[np.uint8]:
    return np.minimum(np.array(numbers, np.uint32), 0xFF).astype(np.uint8)


def _intern_auths(handle: RecordHandle, ids: Sequence[str]) -> npt.NDArray[np.uint16]:
    """Return the indices of the auths that wrote the agents' resources; unlisted auths are added to the roster."""
    distinct_ids = sorted({clean_text(identity) for identity in ids if identity})
    facts_by_id = {facts.id: facts for facts in handle.instances.values()}
    identities = [
        (i, InstanceKind.AUTH.value, facts_by_id[i].name if i in facts_by_id else i) for i in distinct_ids
    ]
    indices = handle.writer.intern_instances(handle.cluster, handle.epoch, identities).tolist()
    return _indices_of(dict(zip(distinct_ids, indices, strict=True)), ids)


def _find_proxies(handle: RecordHandle, ids: Sequence[str]) -> npt.NDArray[np.uint16]:
    """Return the indices of the proxies that agents name, without those that no auth ever listed.

    An agent may name any id. The roster keeps every id as long as the record exists, and has room for 65,534.
    """
    instances = handle.writer.instance_identities(handle.cluster)
    index_by_id = {i: number for number, (i, kind, _) in enumerate(instances) if kind == InstanceKind.PROXY}
    return _indices_of(index_by_id, ids)


def _indices_of(index_by_id: Mapping[str, int], ids: Sequence[str]) -> npt.NDArray[np.uint16]:
    return np.array([index_by_id.get(clean_text(identity), NO_INSTANCE) for identity in ids], np.uint16)
