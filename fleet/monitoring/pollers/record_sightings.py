"""Record what a shard saw: attempts and answers of instances, tunnels of proxies. Agents and lists: `listing`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fleet.monitoring.agent_report import Answer
from fleet.monitoring.classify import outcome_of, watched
from fleet.monitoring.columns import TUNNEL
from fleet.monitoring.evidence import Feed
from fleet.monitoring.pollers.shard_poll import Seen, Sighting
from fleet.monitoring.sources.health import HEALTH
from fleet.monitoring.sources.readyz import READYZ
from fleet.monitoring.sources.trackers import TRACKERS
from fleet.monitoring.sources.tunnels import TUNNELS, TunnelChanges
from fleet.monitoring.state.codec import FeedState, Rows, unpack_feed
from fleet.monitoring.state.roster import fit
from fleet.monitoring.state.writer import Writer
from fleet.protocol.destination import instance_status
from fleet.protocol.destination.health import RECOMMENDED_SETTINGS, HealthSettings
from fleet.vocabulary.instances import Attempt, InstanceFacts, Poll, part
from fleet.vocabulary.watch import Watch

#: Attempts kept of each instance.
_KEPT = 2


@dataclass(frozen=True, slots=True)
class Place:
    """The record a task works on, as it was when the task began."""

    writer: Writer
    cluster: str
    epoch: str
    instances: Mapping[int, InstanceFacts]
    #: Feeds as they are kept, by name.
    feeds: Mapping[str, bytes]

    def feed(self, name: str) -> tuple[bytes, FeedState]:
        """A feed as it is kept, and read."""
        kept = self.feeds.get(name, b"")
        return kept, unpack_feed(kept)


def record_sightings(place: Place, seen: Seen, health: HealthSettings = RECOMMENDED_SETTINGS) -> None:
    """Write attempts, answers and tunnels; `health` says how probes are read. Raises RecordLost, StateUnavailable."""
    polls: dict[int, Poll] = {}
    answers: dict[int, Answer] = {}
    fresh: dict[str, tuple[bytes, FeedState]] = {}
    for sighting in seen.sightings:
        if sighting.error and not seen.probe_good:
            # Whether it failed or we did cannot be told: what was known of it just grows older.
            continue
        assert sighting.target.index is not None, "shards are cut from the record"
        facts = place.instances[sighting.target.index]
        polls[facts.index] = poll_after(facts, sighting, health)
        trackers = sighting.answer(TRACKERS)
        if trackers and not sighting.error:
            # A proxy that was not reached says nothing of its agents.
            answers |= trackers
        if TUNNELS in sighting.failed:
            before, state = place.feed(str(facts.index))
            fresh[str(facts.index)] = (before, state.attempted(sighting.at))
        elif changes := sighting.answer(TUNNELS):
            _record_tunnels(place, facts.index, changes, sighting.at, fresh)
    place.writer.write_instances(
        place.cluster, place.epoch, polls=polls, probed_at=seen.at if seen.probe_good else None
    )
    place.writer.write_answers(place.cluster, place.epoch, answers)
    if not place.writer.write_feeds(place.cluster, place.epoch, fresh):
        for name, (before, after) in fresh.items():
            place.writer.write_feed(place.cluster, place.epoch, name, before=before, after=after)


def poll_after(facts: InstanceFacts, sighting: Sighting, health: HealthSettings = RECOMMENDED_SETTINGS) -> Poll:
    """What is kept of an instance after one more attempt; what it did not answer stays as it was."""
    attempt = Attempt(sighting.at, ok=not sighting.error, error=sighting.error)
    poll = replace(
        part(Poll, facts),
        attempts=(attempt, *facts.attempts)[:_KEPT],
        watch=_watch_after(facts, sighting, health),
    )
    for source in sighting.answers.keys() - sighting.failed:
        poll = source.record(poll, sighting.answers[source], sighting.at)
    return poll


def _watch_after(facts: InstanceFacts, sighting: Sighting, settings: HealthSettings) -> Watch:
    """One poll is one probe of the instance as a destination."""
    health, readyz = sighting.answer(HEALTH), sighting.answer(READYZ)
    said = instance_status.joined([answer.said for answer in (health, readyz) if answer is not None])
    outcome = outcome_of(
        reached=not sighting.error,
        serving=None if health is None else health.serving,
        readyz=None if readyz is None else readyz.code,
        said=said or instance_status.EMPTY_STATUS,
    )
    return watched(facts.watch, outcome, said, address=facts.address, at=sighting.at, settings=settings)


def _record_tunnels(
    place: Place, proxy: int, changes: TunnelChanges, at: float, fresh: dict[str, tuple[bytes, FeedState]]
) -> None:
    """Write a proxy's rows if they changed; if not, leave its freshness in `fresh`, to be written with the others'."""
    before, state = place.feed(str(proxy))
    listing = changes.full or state.listing
    after = FeedState(
        feed=Feed(at, at),
        epoch=changes.epoch,
        revision=changes.revision,
        listing=listing and not changes.complete,
    )
    if not changes.full and not changes.agents and not listing:
        fresh[str(proxy)] = (before, after)
        return
    writer, cluster = place.writer, place.cluster
    kept = b"" if changes.full else writer.tunnels(cluster, proxy, listing=state.listing)
    rows = tunnels_after(place, np.frombuffer(kept, TUNNEL), changes)
    writer.write_tunnels(cluster, place.epoch, proxy, before=before, after=after, rows=rows)


def tunnels_after(place: Place, kept: Rows, changes: TunnelChanges) -> Rows:
    """A proxy's rows with its changes."""
    opened = {fit(agent): told for agent, told in changes.agents.items() if told is not None and agent}
    writer, cluster, epoch = place.writer, place.cluster, place.epoch
    added: Rows = np.zeros(len(opened), TUNNEL)
    added["agent"] = writer.agents(
        cluster, epoch, [(agent, fit(name)) for agent, (name, _) in opened.items()]
    )
    added["opened_at"] = [max(opened_at, 0.0) for _, opened_at in opened.values()]
    closed = writer.known_agents(cluster, epoch, (a for a, told in changes.agents.items() if told is None))
    gone = np.isin(kept["agent"], np.concatenate([added["agent"], closed]))
    rows: Rows = np.concatenate([kept[~gone], added])
    return rows
