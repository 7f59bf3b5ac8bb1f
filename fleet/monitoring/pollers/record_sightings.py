"""Recording of a shard's results: attempts and responses of instances, tunnels of proxies. Lists: `record_lists`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleet.monitoring.agent_report import AgentReportResponse
from fleet.monitoring.classify import probe_outcome_of, update_watch
from fleet.monitoring.columns import TUNNEL
from fleet.monitoring.evidence import FeedFreshness
from fleet.monitoring.pollers.shard_poll import PollResult, ShardResult
from fleet.monitoring.sources.changes import LIST_EPOCH, FeedChanges
from fleet.monitoring.sources.health import HEALTH
from fleet.monitoring.sources.readyz import READYZ
from fleet.monitoring.sources.trackers import TRACKERS
from fleet.monitoring.sources.tunnels import TUNNELS, TunnelChanges
from fleet.monitoring.state.codec import FeedState, Rows, unpack_feed
from fleet.monitoring.state.poll_log import FeedReset, FeedResetReason, PollLog
from fleet.monitoring.state.roster import clean_text
from fleet.monitoring.state.writer import Writer
from fleet.protocol.destination import instance_status
from fleet.protocol.destination.health import RECOMMENDED_SETTINGS, HealthSettings
from fleet.vocabulary.instances import InstanceFacts, Poll, PollAttempt, extract_part
from fleet.vocabulary.watch import InstanceWatch

#: Number of attempts kept per instance.
_MAX_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class RecordHandle:
    """The record at the start of a task."""

    writer: Writer
    cluster: str
    epoch: str
    instances: Mapping[int, InstanceFacts]
    #: Stored feeds by name.
    feeds: Mapping[str, bytes]

    def feed(self, name: str) -> tuple[bytes, FeedState]:
        """Return a feed as stored and as parsed."""
        blob = self.feeds.get(name, b"")
        return blob, unpack_feed(blob)


def record_poll_results(
    handle: RecordHandle, shard_result: ShardResult, health_settings: HealthSettings = RECOMMENDED_SETTINGS
) -> None:
    """Write attempts, responses and tunnels. `health_settings`: how probes count.

    Raises RecordLostError, StateUnavailableError.
    """
    polls: dict[int, Poll] = {}
    responses: dict[int, AgentReportResponse] = {}
    freshness_updates: dict[str, tuple[bytes, FeedState]] = {}
    for poll_result in shard_result.poll_results:
        if poll_result.error and not shard_result.probe_succeeded:
            # Either the instance or the poller may have failed: the known data of the instance only gets older.
            continue
        if not poll_result.is_contacted:
            # Nothing that its source polls tells whether it is reachable: its state is that of its resource.
            continue
        assert poll_result.target.index is not None, "shards are cut from the record"
        facts = handle.instances[poll_result.target.index]
        polls[facts.index] = next_poll(facts, poll_result, health_settings)
        agent_responses = poll_result.response_of(TRACKERS)
        if agent_responses and not poll_result.error:
            # A proxy that was not reached reports nothing about its agents.
            responses |= agent_responses
        if TUNNELS in poll_result.failed_sources:
            before, state = handle.feed(str(facts.index))
            freshness_updates[str(facts.index)] = (before, state.after_failed_attempt(poll_result.at))
        elif changes := poll_result.response_of(TUNNELS):
            _record_tunnels(handle, facts.index, changes, poll_result.at, freshness_updates)
    handle.writer.write_instances(
        handle.cluster,
        handle.epoch,
        polls=polls,
        probed_at=shard_result.at if shard_result.probe_succeeded else None,
    )
    handle.writer.write_agent_responses(handle.cluster, handle.epoch, responses)
    if not handle.writer.write_feeds(handle.cluster, handle.epoch, freshness_updates):
        for name, (before, after) in freshness_updates.items():
            handle.writer.write_feed(handle.cluster, handle.epoch, name, feed_before=before, feed_after=after)


def next_poll(
    facts: InstanceFacts, poll_result: PollResult, health_settings: HealthSettings = RECOMMENDED_SETTINGS
) -> Poll:
    """Return the poll data of an instance after one more attempt; values without a response are unchanged."""
    attempt = PollAttempt(poll_result.at, ok=not poll_result.error, error=poll_result.error)
    poll = replace(
        extract_part(Poll, facts),
        attempts=(attempt, *facts.attempts)[:_MAX_ATTEMPTS],
        watch=_next_watch(facts, poll_result, health_settings),
    )
    for source in poll_result.responses.keys() - poll_result.failed_sources:
        poll = source.update_poll(poll, poll_result.responses[source], poll_result.at)
    return poll


def _next_watch(facts: InstanceFacts, poll_result: PollResult, settings: HealthSettings) -> InstanceWatch:
    """Return the destination health after a poll: each poll is one probe."""
    health, readyz = poll_result.response_of(HEALTH), poll_result.response_of(READYZ)
    status = instance_status.merge_reports(
        [response.declared_status for response in (health, readyz) if response is not None]
    )
    outcome = probe_outcome_of(
        is_reached=not poll_result.error,
        serving_status=None if health is None else health.serving_status,
        readyz=None if readyz is None else readyz.code,
        status=status or instance_status.EMPTY_STATUS,
    )
    return update_watch(
        facts.watch, outcome, status, address=facts.address, at=poll_result.at, settings=settings
    )


def _record_tunnels(
    handle: RecordHandle,
    proxy: int,
    changes: TunnelChanges,
    at: float,
    freshness_updates: dict[str, tuple[bytes, FeedState]],
) -> None:
    """Write a proxy's rows if they changed; otherwise only add to `freshness_updates`, written for all at once."""
    before, state = handle.feed(str(proxy))
    is_listing = changes.full or state.is_listing
    after = FeedState(
        freshness=FeedFreshness(at, at),
        epoch=changes.epoch,
        revision=changes.revision,
        is_listing=is_listing and not changes.complete,
    )
    if not changes.full and not changes.agents and not is_listing:
        freshness_updates[str(proxy)] = (before, after)
        return
    writer, cluster = handle.writer, handle.cluster
    blob = b"" if changes.full else writer.tunnels(cluster, proxy, is_listing=state.is_listing)
    rows = apply_tunnel_changes(handle, np.frombuffer(blob, TUNNEL), changes)
    is_written = writer.write_tunnels(
        cluster, handle.epoch, proxy, feed_before=before, feed_after=after, rows=rows
    )
    note_feed_reset(handle, handle.instances[proxy].id, state, changes, at, is_written=is_written)


def note_feed_reset(
    handle: RecordHandle,
    feed: str,
    before: FeedState,
    changes: FeedChanges[Any],
    at: float,
    *,
    is_written: bool,
) -> None:
    """Log that a feed started over, or that its changes were dropped; not of lists without revisions.

    `feed`: `presence` or the id of a proxy. `before`: its place before. Raises StateUnavailableError.
    """
    if not is_written:
        reason = FeedResetReason.CONFLICT
    elif not changes.full or not before.epoch or changes.epoch in ("", LIST_EPOCH):
        return
    elif changes.epoch == before.epoch and not before.revision:
        return  # since revision 0, every list is complete: that of a proxy that has had no tunnels
    else:
        reason = FeedResetReason.GAP if changes.epoch == before.epoch else FeedResetReason.NEW_EPOCH
    log = PollLog(handle.writer.redis, handle.writer.prefix)
    log.add_feed_reset(handle.cluster, FeedReset(at, feed, reason))


def apply_tunnel_changes(handle: RecordHandle, rows_before: Rows, changes: TunnelChanges) -> Rows:
    """Return a proxy's rows with its changes applied."""
    opened_tunnels = {
        clean_text(agent): entry for agent, entry in changes.agents.items() if entry is not None and agent
    }
    writer, cluster, epoch = handle.writer, handle.cluster, handle.epoch
    opened_rows: Rows = np.zeros(len(opened_tunnels), TUNNEL)
    opened_rows["agent"] = writer.intern_agents(
        cluster, epoch, [(agent, clean_text(name)) for agent, (name, _) in opened_tunnels.items()]
    )
    opened_rows["opened_at"] = [max(opened_at, 0.0) for _, opened_at in opened_tunnels.values()]
    disconnected_agents = writer.find_agents(
        cluster, epoch, (a for a, entry in changes.agents.items() if entry is None)
    )
    is_replaced = np.isin(rows_before["agent"], np.concatenate([opened_rows["agent"], disconnected_agents]))
    rows: Rows = np.concatenate([rows_before[~is_replaced], opened_rows])
    return rows
