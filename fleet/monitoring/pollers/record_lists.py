"""Record what an auth listed: instances with their expiries, agents with their heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import HEALTH_CHECK, HEARTBEAT, LIST_PARITY, NO_INSTANCE
from fleet.monitoring.evidence import LISTS, PRESENCE, Feed
from fleet.monitoring.pollers.record_sightings import Place
from fleet.monitoring.pollers.shard_poll import Seen, Sighting
from fleet.monitoring.sources.presence import AGENTS, INSTANCES, AgentChanges, ListedAgent, ListedInstance
from fleet.monitoring.sources.registry import LIST_SOURCES
from fleet.monitoring.sources.source import EvidenceSource
from fleet.monitoring.state.codec import FeedState, Rows, blank, rows_of
from fleet.monitoring.state.roster import fit
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, Resource, part

#: A resource that vanishes with more than this share of its TTL left was deleted; with less it ran out, and our
#: clocks merely differ.
_DELETED_SHARE = 0.25
#: For an instance that does not say its TTL (Teleport's ServerAnnounceTTL), seconds.
_DEFAULT_TTL = 600.0


def record_lists(place: Place, seen: Seen) -> None:
    """Write what the lists said, or that nobody answered. Raises RecordLost, StateUnavailable."""
    lists = seen.lists
    if lists is None:
        if seen.probe_good:
            _record_failure(place, seen.at, LIST_SOURCES)
        return
    _record_failure(place, lists.at, lists.failed)
    instances, agents = lists.answer(INSTANCES), lists.answer(AGENTS)
    if instances is not None:
        _record_instances(place, instances, lists.at)
    if agents is not None:
        _record_agents(place, lists, agents)


def _record_failure(place: Place, at: float, sources: Iterable[EvidenceSource[Any]]) -> None:
    feeds = {}
    for source in sources:
        before, state = place.feed(source.name)
        feeds[source.name] = (before, state.attempted(at))
    place.writer.write_feeds(place.cluster, place.epoch, feeds)


def _record_instances(place: Place, listed: Sequence[ListedInstance], at: float) -> None:
    writer, cluster = place.writer, place.cluster
    names = [(fit(instance.id), instance.kind.value, fit(instance.resource.name)) for instance in listed]
    indices = writer.instances(cluster, place.epoch, names).tolist()
    told = {index: _resource(instance) for index, instance in zip(indices, listed, strict=True)}
    for index, facts in place.instances.items():
        if index not in told and facts.gone_at is None and is_deleted(facts, at):
            told[index] = replace(part(Resource, facts), gone_at=at)
    known = {index: part(Resource, facts) for index, facts in place.instances.items()}
    changed = {index: resource for index, resource in told.items() if known.get(index) != resource}
    writer.write_instances(cluster, place.epoch, resources=changed)
    before, _ = place.feed(LISTS)
    writer.write_feed(cluster, place.epoch, LISTS, before=before, after=FeedState(feed=Feed(at, at)))


def is_deleted(facts: InstanceFacts, at: float) -> bool:
    """Tell whether a resource that is no longer listed was deleted before it ran out."""
    if facts.expires_at is None:
        # It never had a resource: the resource of an agent names it.
        return False
    return facts.expires_at - at > _DELETED_SHARE * (facts.ttl or _DEFAULT_TTL)


def _resource(instance: ListedInstance) -> Resource:
    resource = instance.resource
    return replace(
        resource,
        name=fit(resource.name),
        region=fit(resource.region),
        heartbeat_auth=fit(resource.heartbeat_auth),
    )


def _record_agents(place: Place, lists: Sighting, changes: AgentChanges) -> None:
    """Write the agents' rows. A full list ends those it leaves out, once all its pages have come."""
    before, state = place.feed(PRESENCE)
    listing = changes.full or state.listing
    parity = state.parity ^ int(changes.full)
    after = FeedState(
        # What ran out meanwhile may stand renewed in a page that has not come: nothing is told of that yet.
        feed=Feed(lists.at, lists.at if changes.complete else state.feed.answered_at),
        epoch=changes.epoch,
        revision=changes.revision,
        listing=listing and not changes.complete,
        parity=parity,
        source=lists.target.index,
    )
    writer, cluster, epoch = place.writer, place.cluster, place.epoch
    named = {fit(agent): told for agent, told in changes.agents.items() if told is not None and agent}
    indices = writer.agents(cluster, epoch, [(agent, fit(told.name)) for agent, told in named.items()])
    rows, tracked = _rows(place, list(named.values()), parity)
    ended = writer.known_agents(cluster, epoch, (a for a, told in changes.agents.items() if told is None))
    if listing and changes.complete:
        ended = np.union1d(ended, _left_out(place, indices, parity, lists.at)).astype(np.uint32)
    heard = len(writer.heartbeats(cluster)) // HEARTBEAT.itemsize if len(ended) else 0
    writer.write_heartbeats(
        *(cluster, epoch),
        before=before,
        after=after,
        indices=indices,
        rows=rows,
        # An agent only tunnels ever named has no row to end.
        ended=ended[ended < heard],
        ended_at=lists.at,
        tracked=tracked,
    )


def _left_out(place: Place, named: npt.NDArray[np.uint32], parity: int, at: float) -> npt.NDArray[np.uint32]:
    """Agents whose resource lived until now, and is in no page of the full list."""
    blob = place.writer.heartbeats(place.cluster)
    column = rows_of(blob, HEARTBEAT, len(blob) // HEARTBEAT.itemsize)
    left = ((column["flags"] & LIST_PARITY) != 0) != bool(parity)
    left &= column["expires_at"] > at
    left[named[named < len(left)]] = False
    return np.flatnonzero(left).astype(np.uint32)


def _rows(place: Place, agents: Sequence[ListedAgent], parity: int) -> tuple[Rows, npt.NDArray[np.uint8]]:
    """HEARTBEAT rows, and how many proxies each agent tracks."""
    rows = blank(HEARTBEAT, len(agents))
    if not agents:
        return rows, np.zeros(0, np.uint8)
    columns = ListedAgent(*zip(*agents, strict=True))  # type: ignore[arg-type]  # a tuple of columns, by the same names
    rows["expires_at"], rows["ttl"], rows["ttl_seen"] = columns.expires_at, columns.ttl, columns.ttl_seen
    rows["policy_read_at"], rows["mode"] = columns.policy_read_at, columns.mode
    rows["flags"] = np.array(columns.health_check, np.uint8) * HEALTH_CHECK | LIST_PARITY * parity
    for name in ("desired", "claimed"):
        rows[name] = _capped(getattr(columns, name))
    rows["auth"] = _auths(place, columns.auth_id)
    rows["via_proxy"] = _listed_proxies(place, columns.via_proxy_id)
    return rows, _capped(columns.tracked)  # type: ignore[arg-type]  # a column


def _capped(numbers: Sequence[int]) -> npt.NDArray[np.uint8]:
    return np.minimum(np.array(numbers, np.uint32), 0xFF).astype(np.uint8)


def _auths(place: Place, ids: Sequence[str]) -> npt.NDArray[np.uint16]:
    """Return the indices of the auths that wrote the agents' resources; one that no auth listed joins the roster."""
    distinct = sorted({fit(identity) for identity in ids if identity})
    listed = {facts.id: facts for facts in place.instances.values()}
    records = [(i, InstanceKind.AUTH.value, listed[i].name if i in listed else i) for i in distinct]
    indices = place.writer.instances(place.cluster, place.epoch, records).tolist()
    return _by_id(dict(zip(distinct, indices, strict=True)), ids)


def _listed_proxies(place: Place, ids: Sequence[str]) -> npt.NDArray[np.uint16]:
    """Return the indices of the proxies that agents name, without those that no auth ever listed.

    An agent may name any proxy. The roster keeps every id for as long as the record lives and has room for 65,534.
    """
    instances = place.writer.instance_names(place.cluster)
    index = {i: number for number, (i, kind, _) in enumerate(instances) if kind == InstanceKind.PROXY}
    return _by_id(index, ids)


def _by_id(index: Mapping[str, int], ids: Sequence[str]) -> npt.NDArray[np.uint16]:
    return np.array([index.get(fit(identity), NO_INSTANCE) for identity in ids], np.uint16)
