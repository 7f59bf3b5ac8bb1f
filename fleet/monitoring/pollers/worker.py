"""Polling in one process: an event loop and connections with the lifetime of the process, created after the fork."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import uvloop

from fleet.monitoring.evidence import PRESENCE, Timing
from fleet.monitoring.pollers.edge_poll import EdgeAnswer, poll_edge_instances
from fleet.monitoring.pollers.edge_records import record_edge_answers
from fleet.monitoring.pollers.loaded_source import load_source
from fleet.monitoring.pollers.plan import select_list_auths, should_poll
from fleet.monitoring.pollers.record_lists import record_lists
from fleet.monitoring.pollers.record_sightings import RecordHandle, record_poll_results
from fleet.monitoring.pollers.shard_poll import ShardResult, poll_targets
from fleet.monitoring.pollers.watches import Watches
from fleet.monitoring.sources.source import PollTarget, SourcePolling
from fleet.monitoring.state import RecordLostError
from fleet.monitoring.state.codec import unpack_feed
from fleet.monitoring.state.edge_store import EdgeStore
from fleet.monitoring.state.watch_leases import WatchLeases
from fleet.monitoring.state.writer import Writer
from fleet.protocol.destination import health as destination
from fleet.protocol.retry.policy import RetryPolicy
from fleet.source_plugins.registry import DEFAULT_SOURCE
from fleet.transport.poll_connections import Connections
from fleet.transport.retry.read_retries import DEFAULT_READ_RETRIES
from fleet.transport.tls import TLSError, TLSFiles, check_files, version_of
from fleet.vocabulary.instances import InstanceFacts, InstanceKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PollingSettings:
    """Deadlines of a round, and how often polls use a new connection."""

    timing: Timing
    #: Seconds that the requests of one round may take.
    deadline: float
    #: Every n-th round of an instance uses a new connection, at different rounds for different instances; 0: never.
    rounds_per_connection: int = 10
    #: Retries of reading the lists, within the deadline.
    retry_policy: RetryPolicy = DEFAULT_READ_RETRIES
    #: Settings of destination health, which takes polls as probes.
    health_settings: destination.HealthSettings = destination.RECOMMENDED_SETTINGS


class _ClusterConnections(NamedTuple):
    """Connections of a cluster, and the TLS files at the time when they were made."""

    connections: Connections
    tls: TLSFiles | None
    tls_version: Hashable


class Worker:
    """Polls shards and records the results. Use it only in the process that created it."""

    def __init__(self, writer: Writer, polling: PollingSettings) -> None:
        self.writer = writer
        self.polling = polling
        self._pid = os.getpid()
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        #: By cluster.
        self._connections: dict[str, _ClusterConnections] = {}
        self._edge_store = EdgeStore(writer.redis, writer.prefix)
        self._watches = Watches(
            WatchLeases(writer.redis, writer.prefix), polling.timing.round_interval, polling.deadline
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the connections."""
        assert os.getpid() == self._pid, "connections do not survive a fork: create a worker in each child"
        results: list[T] = []

        async def keep_result() -> None:
            results.append(await work)

        # Not as the result of the task: when the runner gives SIGINT its handler back, Python 3.11 writes the whole
        # task with its result into the text of an error that it catches, a third of the CPU time of a round.
        self._runner.run(keep_result())
        return results[0]

    def open_record(self, cluster: str, epoch: str | None) -> RecordHandle:
        """Return the current record of an epoch. Raises RecordLostError, StateUnavailableError."""
        if epoch is None:
            raise RecordLostError(f"cluster {cluster} has no record")
        return RecordHandle(
            self.writer, cluster, epoch, self.writer.load_instances(cluster), self.writer.feeds(cluster)
        )

    def poll_shard(
        self,
        handle: RecordHandle,
        round_number: int,
        instances: Sequence[int],
        bootstrap_addresses: Sequence[str] | None,
        tls: TLSFiles | None = None,
        source: str = DEFAULT_SOURCE,
        diag_addresses: Mapping[str, str] = MappingProxyType({}),
        edge_addresses: Mapping[str, str] | None = None,
    ) -> ShardResult:
        """Poll the instances of a shard, and the lists unless `bootstrap_addresses` is None; record the responses.

        `tls`: the files of the cluster. Connections are made anew when `tls` or the content of the files changes.
        `source`: that of the cluster. `diag_addresses`: those that people entered, by instance. `edge_addresses`: diag
        addresses of edge instances by name, which are polled and recorded with the lists; None: not in this round.

        Raises RecordLostError, StateUnavailableError, SourceNotInstalledError, SourceLoadError.
        """
        loaded_source = load_source(source)
        known_indices = [index for index in instances if index in handle.instances]
        agents = self._agents_to_query(handle.cluster, known_indices)
        targets = [
            self._target_for(handle.instances[index], handle, round_number, agents.get(index, ()))
            for index in known_indices
        ]
        if bootstrap_addresses is None:
            shard_result = self.run(self._poll(handle, targets, None, tls, loaded_source.polling))
            record_poll_results(handle, shard_result, self.polling.health_settings)
            return shard_result
        feed = unpack_feed(handle.feeds.get(PRESENCE))
        auths = self._select_list_auths(handle, bootstrap_addresses)
        addresses = {auth.address for auth in auths}
        with self._watches.round(handle.cluster, loaded_source.polling, feed, addresses) as polling:
            shard_result, answers = self.run(
                self._poll_with_edges(handle, targets, auths, tls, polling, edge_addresses or {})
            )
            record_poll_results(handle, shard_result, self.polling.health_settings)
            record_lists(handle, shard_result, loaded_source, diag_addresses)
        if edge_addresses is not None:
            record_edge_answers(self._edge_store, handle.cluster, edge_addresses, answers, time.time())
        return shard_result

    def keep_only(self, clusters: Collection[str]) -> None:
        """Close the connections to all other clusters: they were removed or paused."""
        self._watches.keep_only(clusters)
        for cluster in self._connections.keys() - set(clusters):
            self.run(self._connections.pop(cluster).connections.close())

    def close(self) -> None:
        """Close the connections and the event loop."""
        self.keep_only(())
        self._runner.close()

    def _select_list_auths(
        self, handle: RecordHandle, bootstrap_addresses: Sequence[str]
    ) -> list[PollTarget]:
        """Return the auths to read the lists from, the best first."""
        presence, instances = unpack_feed(handle.feeds.get(PRESENCE)), handle.instances.values()
        return [
            PollTarget(
                index, InstanceKind.AUTH, address, feed_epoch=presence.epoch, feed_revision=presence.revision
            )
            for index, address in select_list_auths(
                instances, bootstrap_addresses, presence.last_auth, time.time(), self.polling.timing
            )
        ]

    def _target_for(
        self,
        facts: InstanceFacts,
        handle: RecordHandle,
        round_number: int,
        agents: tuple[tuple[int, str], ...],
    ) -> PollTarget:
        feed_state, rounds_per_connection = (
            unpack_feed(handle.feeds.get(str(facts.index))),
            self.polling.rounds_per_connection,
        )
        return PollTarget(
            facts.index,
            facts.kind,
            facts.poll_address,
            facts.diag_address,
            feed_epoch=feed_state.epoch,
            feed_revision=feed_state.revision,
            use_new_connection=rounds_per_connection > 0
            and (round_number + facts.index) % rounds_per_connection == 0,
            agents_to_query=agents,
        )

    def _agents_to_query(
        self, cluster: str, instances: Sequence[int]
    ) -> dict[int, tuple[tuple[int, str], ...]]:
        agents_by_proxy = self.writer.agents_to_query(cluster, instances)
        if not agents_by_proxy:
            return {}
        ids, _ = self.writer.agent_ids_and_names(cluster)
        return {
            proxy: tuple((agent, ids[agent]) for agent in agents.tolist() if agent < len(ids))
            for proxy, agents in agents_by_proxy.items()
        }

    async def _poll_with_edges(
        self,
        handle: RecordHandle,
        targets: Sequence[PollTarget],
        auths: Sequence[PollTarget],
        tls: TLSFiles | None,
        polling: SourcePolling,
        edge_addresses: Mapping[str, str],
    ) -> tuple[ShardResult, dict[str, EdgeAnswer]]:
        """Poll targets and edge instances at the same time, so that the latter never lengthen a round."""
        connections = await self._connections_to(handle.cluster, tls)
        return await asyncio.gather(
            self._poll(handle, targets, auths, tls, polling),
            poll_edge_instances(connections.session, edge_addresses, self.polling.deadline),
        )

    async def _poll(
        self,
        handle: RecordHandle,
        targets: Sequence[PollTarget],
        auths: Sequence[PollTarget] | None,
        tls: TLSFiles | None,
        polling: SourcePolling,
    ) -> ShardResult:
        """Poll targets, and the lists of one of the auths; None: no lists."""
        connections = await self._connections_to(handle.cluster, tls)
        shard_result = await poll_targets(
            connections, targets, auths or (), polling, deadline=self.polling.deadline
        )
        if auths is not None:
            # Remove what belongs to instances that are no longer polled.
            now = time.time()
            addresses = {facts.poll_address for facts in handle.instances.values() if should_poll(facts, now)}
            await connections.keep_only(addresses | {auth.address for auth in auths})
        return shard_result

    async def _connections_to(self, cluster: str, tls: TLSFiles | None) -> Connections:
        """Return the connections to a cluster, created in the event loop that uses them."""
        current, tls_version = self._connections.get(cluster), version_of(tls)
        if current is not None:
            if current.tls_version == tls_version:
                return current.connections
            if current.tls == tls and not _is_usable(tls):
                # The files of a renewed certificate are replaced one after the other.
                return current.connections
            await current.connections.close()
        connections = Connections(tls, self.polling.retry_policy)
        self._connections[cluster] = _ClusterConnections(connections, tls, tls_version)
        return connections


def _is_usable(tls: TLSFiles | None) -> bool:
    try:
        check_files(tls or TLSFiles())
    except TLSError:
        return False
    return True
