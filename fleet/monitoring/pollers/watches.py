"""Watches of a worker: where the agents of a cluster come from in each round.

docs/explanation/data-flow.md, "Sources". One worker holds the watch of a cluster, and the rounds of every worker record
its changes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fleet.monitoring.pollers.watch_changes import unpack_changes
from fleet.monitoring.pollers.watch_holder import WatchHolder
from fleet.monitoring.pollers.watch_steps import WatchStep, decide_step, lease_seconds
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.changes import FeedChanges
from fleet.monitoring.sources.health import HealthResponse
from fleet.monitoring.sources.presence import AGENTS, AgentChanges
from fleet.monitoring.sources.source import EvidenceSource, SourceContext, SourcePolling, WatchSource
from fleet.monitoring.sources.watch import AgentWatch
from fleet.monitoring.state.codec import FeedState
from fleet.monitoring.state.watch_leases import WatchLease, WatchLeases
from fleet.vocabulary.capabilities import Capability

#: Seconds until a watch that a cluster does not allow is tried again: the role may have got the verb.
_REFUSED_SECONDS = 300.0


@dataclass(slots=True)
class _OpenAttempt:
    """The attempt of a round to open a watch."""

    cluster: str
    token: str
    watch: AgentWatch | None = None
    address: str = ""
    #: The list of an auth was read, and may be recorded.
    has_listed: bool = False

    def close(self) -> None:
        """Close the watch, if there is one."""
        if self.watch is not None:
            self.watch.close()
            self.watch = None


class Watches:
    """The watches that this process holds, and the rounds that use those of any process."""

    def __init__(self, leases: WatchLeases, round_interval: float, deadline: float) -> None:
        """`round_interval` and `deadline`, the time that the requests of a round may take, in seconds."""
        self._leases = leases
        self._round_interval = round_interval
        self._deadline = deadline
        #: By cluster.
        self._holders: dict[str, WatchHolder] = {}
        #: Why a cluster does not allow a watch, and until when this is not asked again; monotonic seconds.
        self._refusals: dict[str, tuple[str, float]] = {}

    @contextmanager
    def round(
        self, cluster: str, polling: SourcePolling, feed: FeedState, addresses: Collection[str]
    ) -> Iterator[SourcePolling]:
        """Yield what is polled at a cluster in a round; the block polls and records it.

        `feed`: the place of the record in the changes of agents. `addresses`: the auths whose lists may be read. A
        watch that the block opens is held afterwards; if the block raises an error, it is closed. Raises
        StateUnavailableError.
        """
        if polling.watch is None:
            yield polling
            return
        lease = self._leases.read(cluster, feed.epoch, feed.revision)
        match decide_step(lease, feed, addresses):
            case WatchStep.APPLY:
                assert lease is not None, "a step of a lease"
                yield _replace_agents(polling, lambda agents: _apply_changes(agents, lease, feed))
            case WatchStep.TAKE if refusal := self._find_refusal(cluster):
                yield _replace_agents(polling, lambda agents: _list_with_reason(agents, refusal))
            case WatchStep.TAKE if token := self._take(cluster, lease):
                with self._attempt_to_open(cluster, token) as attempt:
                    yield _replace_agents(
                        polling, lambda agents: self._open_and_list(agents, polling, attempt)
                    )
            case _:
                yield replace(polling, list_sources=[s for s in polling.list_sources if s != AGENTS])

    def keep_only(self, clusters: Collection[str]) -> None:
        """Close the watches of all other clusters."""
        for cluster in self._holders.keys() - set(clusters):
            self._holders.pop(cluster).stop()

    def _find_refusal(self, cluster: str) -> str:
        """Return why a cluster does not allow a watch; empty if it may, or if it is time to try again."""
        reason, until = self._refusals.get(cluster, ("", 0.0))
        return reason if time.monotonic() < until else ""

    def _take(self, cluster: str, lease: WatchLease | None) -> str:
        """Take the lease of a cluster; return its token, or an empty text if another worker was faster."""
        token = secrets.token_hex(8)
        instead_of = "" if lease is None else lease.token
        # Until the list is recorded nothing renews it.
        seconds = self._deadline + lease_seconds(self._round_interval)
        return token if self._leases.take(cluster, token, instead_of, seconds) else ""

    @contextmanager
    def _attempt_to_open(self, cluster: str, token: str) -> Iterator[_OpenAttempt]:
        attempt = _OpenAttempt(cluster, token)
        try:
            yield attempt
        except BaseException:
            attempt.close()
            raise
        finally:
            if attempt.watch is None:
                self._leases.release(cluster, token)
        if attempt.watch is not None:
            if previous_holder := self._holders.pop(cluster, None):
                previous_holder.stop()
            holder = WatchHolder(
                self._leases, cluster, token, attempt.watch, attempt.address, self._round_interval
            )
            self._holders[cluster] = holder
            holder.start()

    def _open_and_list(
        self,
        agents: EvidenceSource[AgentChanges],
        polling: SourcePolling,
        attempt: _OpenAttempt,
    ) -> EvidenceSource[AgentChanges]:
        watch: WatchSource[AgentWatch] | None = polling.watch

        async def query(context: SourceContext) -> AgentChanges:
            # A round asks another auth after the first one failed, or if it is not ready.
            attempt.close()
            if attempt.has_listed or await _is_not_serving(polling.list_health, context):
                # The changes of a watch continue the list of its own auth, which must be the one that is recorded.
                return await agents.query(context)
            attempt.address = context.target.address
            assert watch is not None, "only sources with a watch have rounds with one"
            try:
                attempt.watch = await watch.open(context)
            except SourceError as error:
                context.missing_capabilities[Capability.WATCH] = (
                    f"{context.target.address} did not open a watch, and Refloat tries again in each round: {error}."
                )
                return await agents.query(context)
            if attempt.watch is None:
                self._remember_refusal(attempt.cluster, context)
                return await agents.query(context)
            try:
                changes = await attempt.watch.read_list(context)
            except BaseException:
                attempt.close()
                raise
            if Capability.WATCH in context.missing_capabilities:
                attempt.close()
                self._remember_refusal(attempt.cluster, context)
                return await agents.query(context)
            attempt.has_listed = True
            return replace(changes, epoch=attempt.token, revision=0)

        return replace(agents, query=query)

    def _remember_refusal(self, cluster: str, context: SourceContext) -> None:
        reason = context.missing_capabilities.setdefault(
            Capability.WATCH, "The cluster does not allow a watch of its agents."
        )
        self._refusals[cluster] = (reason, time.monotonic() + _REFUSED_SECONDS)


async def _is_not_serving(source: EvidenceSource[HealthResponse] | None, context: SourceContext) -> bool:
    """Return whether an auth reports that it is not serving; without a response it reports nothing."""
    try:
        return source is not None and (await source.query(context)).is_not_serving
    except SourceError:
        return False


def _replace_agents(polling: SourcePolling, change: Any) -> SourcePolling:
    """Return what is polled with another source of agents."""
    return replace(
        polling,
        list_sources=[change(source) if source == AGENTS else source for source in polling.list_sources],
    )


def _list_with_reason(agents: EvidenceSource[AgentChanges], reason: str) -> EvidenceSource[AgentChanges]:
    async def query(context: SourceContext) -> AgentChanges:
        context.missing_capabilities[Capability.WATCH] = reason
        return await agents.query(context)

    return replace(agents, query=query)


def _apply_changes(
    agents: EvidenceSource[AgentChanges], lease: WatchLease, feed: FeedState
) -> EvidenceSource[AgentChanges]:
    changes: AgentChanges = FeedChanges(
        feed.epoch,
        max(lease.changes, default=feed.revision),
        complete=True,
        agents=unpack_changes(lease.changes.values()),
    )
    missing_capabilities: Mapping[Capability, str] = lease.missing_capabilities

    async def query(context: SourceContext) -> AgentChanges:
        context.missing_capabilities.update(missing_capabilities)
        return changes

    return replace(agents, query=query)
