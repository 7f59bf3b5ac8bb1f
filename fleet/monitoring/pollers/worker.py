"""One process that polls: an event loop and connections that live as long as it does, made after the fork."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

from fleet.monitoring.evidence import PRESENCE, Timing
from fleet.monitoring.pollers.plan import is_asked, lists_from
from fleet.monitoring.pollers.record_lists import record_lists
from fleet.monitoring.pollers.record_sightings import Place, record_sightings
from fleet.monitoring.pollers.shard_poll import Seen, poll
from fleet.monitoring.sources.source import Target
from fleet.monitoring.state import RecordLost
from fleet.monitoring.state.codec import unpack_feed
from fleet.monitoring.state.writer import Writer
from fleet.protocol.destination import health as destination
from fleet.protocol.retry.policy import RetryPolicy
from fleet.transport.poll_connections import Connections
from fleet.transport.retry.read_retries import DEFAULT
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.instances import InstanceFacts, InstanceKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Polling:
    """How to poll."""

    timing: Timing
    #: Seconds one round of questions may take.
    deadline: float
    #: Every n-th round of an instance asks it over a new connection, one instance in another round than the next;
    #: 0 never does.
    fresh_rounds: int = 10
    tls: TLSFiles | None = None
    #: Of reading the lists, within the deadline.
    retries: RetryPolicy = DEFAULT
    #: How polls of an instance are read as probes of a destination.
    destination_health: destination.HealthSettings = destination.RECOMMENDED_SETTINGS


class Worker:
    """Polls shards and records them. Use it in the process that made it only."""

    def __init__(self, writer: Writer, polling: Polling) -> None:
        self.writer = writer
        self.polling = polling
        self._pid = os.getpid()
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        #: By cluster.
        self._connections: dict[str, Connections] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the loop that keeps the connections."""
        assert os.getpid() == self._pid, "connections do not survive a fork: make a worker in each child"
        return self._runner.run(work)

    def place(self, cluster: str, epoch: str | None) -> Place:
        """Return the record of that epoch as it is now. Raises RecordLost, StateUnavailable."""
        if epoch is None:
            raise RecordLost(f"cluster {cluster}: there is no record")
        return Place(
            self.writer, cluster, epoch, self.writer.load_instances(cluster), self.writer.feeds(cluster)
        )

    def poll_shard(
        self, place: Place, number: int, instances: Sequence[int], bootstrap: Sequence[str] | None
    ) -> None:
        """Ask the instances of a shard, and the lists unless `bootstrap` is None; record the answers.

        Raises RecordLost, StateUnavailable.
        """
        known = [index for index in instances if index in place.instances]
        agents = self._agents_to_ask(place.cluster, known)
        targets = [
            self._target(place.instances[index], place, number, agents.get(index, ())) for index in known
        ]
        seen = self.run(self._poll(place, targets, bootstrap))
        record_sightings(place, seen, self.polling.destination_health)
        if bootstrap is not None:
            record_lists(place, seen)

    def close(self) -> None:
        """Close connections and loop."""
        for connections in self._connections.values():
            self.run(connections.close())
        self._runner.close()

    def _auths(self, place: Place, bootstrap: Sequence[str]) -> list[Target]:
        """Auths to ask for the lists, best first."""
        presence, known = unpack_feed(place.feeds.get(PRESENCE)), place.instances.values()
        return [
            Target(index, InstanceKind.AUTH, address, epoch=presence.epoch, revision=presence.revision)
            for index, address in lists_from(
                known, bootstrap, presence.source, time.time(), self.polling.timing
            )
        ]

    def _target(
        self, facts: InstanceFacts, place: Place, number: int, agents: tuple[tuple[int, str], ...]
    ) -> Target:
        state, every = unpack_feed(place.feeds.get(str(facts.index))), self.polling.fresh_rounds
        return Target(
            facts.index,
            facts.kind,
            facts.address,
            facts.diag_address,
            epoch=state.epoch,
            revision=state.revision,
            fresh=every > 0 and (number + facts.index) % every == 0,
            agents=agents,
        )

    def _agents_to_ask(
        self, cluster: str, instances: Sequence[int]
    ) -> dict[int, tuple[tuple[int, str], ...]]:
        asked = self.writer.to_ask(cluster, instances)
        if not asked:
            return {}
        ids, _ = self.writer.agent_ids(cluster)
        return {
            proxy: tuple((agent, ids[agent]) for agent in agents.tolist() if agent < len(ids))
            for proxy, agents in asked.items()
        }

    async def _poll(self, place: Place, targets: Sequence[Target], bootstrap: Sequence[str] | None) -> Seen:
        # Made here, in the loop that uses them.
        connections = self._connections.get(place.cluster)
        if connections is None:
            connections = self._connections[place.cluster] = Connections(
                self.polling.tls, self.polling.retries
            )
        auths = [] if bootstrap is None else self._auths(place, bootstrap)
        seen = await poll(connections, targets, auths, deadline=self.polling.deadline)
        if bootstrap is not None:
            # Instances that are asked no more leave nothing behind.
            now = time.time()
            asked = {facts.address for facts in place.instances.values() if is_asked(facts, now)}
            await connections.keep_only(asked | {auth.address for auth in auths})
        return seen
