"""A cluster whose evidence a test writes. The real Writer keeps the record, the real judge concludes the rounds and the
real publisher sends the events, so that sockets and pages see a cluster like one that is polled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.classify import count_states
from fleet.monitoring.columns import HEARTBEAT, TUNNEL
from fleet.monitoring.events import Event, StateDelta
from fleet.monitoring.evidence import FeedFreshness, Timing
from fleet.monitoring.pollers.agent_changes import event_changes_of, find_changed_agents
from fleet.monitoring.pollers.conclude import compute_round
from fleet.monitoring.publish import ChannelLayer, publish
from fleet.monitoring.state.codec import FeedState, blank_rows
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.protocol.destination.health import DrainRequest
from fleet.vocabulary.instances import InstanceResource, Poll, PollAttempt, ServingStatus
from fleet.vocabulary.verdicts import State
from fleet.vocabulary.watch import INITIAL_WATCH

#: Seconds between rounds, and for which all evidence is good: nothing ages while a slow machine runs one test.
INTERVAL = 600.0
TTL = 7200.0
#: How old a stale record is, seconds.
STALE_AGE = 47.0
AUTHS = 3
#: Error of a failed poll of a frozen process, as gRPC words it.
POLL_ERROR = "unavailable: failed to connect to all addresses; last error: ipv4:127.0.0.1:9003: FD Shutdown"


class LiveFleet:
    """One cluster. Agents are in blocks: `agents_per_proxy` of them with their only tunnel to each proxy."""

    def __init__(
        self,
        writer: Writer,
        layer: ChannelLayer,
        cluster: str,
        *,
        proxies: int = 4,
        agents_per_proxy: int = 50,
    ) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.homes = [number for number in range(proxies) for _ in range(agents_per_proxy)]
        #: Number of the auth that got the last heartbeat, by agent index; agents past the end: the first one.
        self.auths: list[int] = []
        #: Version and labels of every agent.
        self.attributes = AgentAttributes()
        #: The same of single agents, by index.
        self.attributes_by_agent: dict[int, AgentAttributes] = {}
        #: Indices of agents whose last heartbeat has expired, and which have no tunnel.
        self.offline_agents: frozenset[int] = frozenset()
        self.epoch = ""
        self._writer = writer
        self._layer = layer
        #: States that the test sets, by agent index, whatever the evidence says.
        self._states: dict[int, State] = {}

    def block(self, number: int) -> list[int]:
        """The indices of a proxy's agents."""
        return [index for index, home in enumerate(self.homes) if home == number]

    async def begin(self, states: Mapping[int, State] | None = None) -> None:
        """Write a record and its first round. All agents are healthy but those of `states`."""
        self._states = dict(states or {})
        await asyncio.to_thread(self._begin)
        await self.conclude()

    async def change(self, states: Mapping[int, State]) -> None:
        """Conclude a round in which these agents have these states, and publish its events."""
        await self.publish(await self.conclude(states))

    async def conclude(self, states: Mapping[int, State] | None = None) -> list[Event]:
        """Conclude a round and return its events. Unpublished events are lost."""
        self._states |= states or {}
        return await asyncio.to_thread(self._conclude)

    async def publish(self, events: Iterable[Event]) -> None:
        """Publish events to the sockets of the cluster."""
        await publish(self._layer, self.cluster, events)

    async def silence(self, *proxies: int) -> None:
        """Fail the last two polls of these proxies, and publish the round that follows."""
        await asyncio.to_thread(self._write_polls, proxies, ok=False)
        await self.change({})

    async def expire(self, *proxies: int) -> None:
        """Let the resources of these proxies expire, and publish the round that follows."""
        await asyncio.to_thread(self._write_resources, proxies, time.time() - 1)
        await self.change({})

    async def drain(self, *proxies: int) -> None:
        """Let these proxies report that they are draining, and publish the round that follows."""
        await asyncio.to_thread(self._write_polls, proxies, ok=True, is_draining=True)
        await self.change({})

    async def set_proxy_clock_ahead(self, proxy: int, seconds: float) -> None:
        """Let a proxy whose clock is ahead by so much write its heartbeat, and publish the round that follows."""
        await asyncio.to_thread(self._write_resources, [proxy], time.time() + TTL + seconds)
        await self.change({})

    async def conclude_with_clock_ahead(self, seconds: float) -> None:
        """Conclude a round on a machine whose clock is ahead by so much, and publish it."""
        await self.publish(await asyncio.to_thread(self._conclude, -seconds))

    async def fail_backend(self) -> None:
        """Fail the last two polls of every auth, and publish the round that follows."""
        await self.silence(*range(-AUTHS, 0))

    async def add_agents(self, states: Mapping[int, State], homes: Collection[int]) -> None:
        """Add agents at these proxies and publish the round that sees them first."""
        self.homes += homes
        await asyncio.to_thread(self._write_agents)
        await self.change(states)

    async def rebuild(self, states: Mapping[int, State]) -> None:
        """Lose the record and write another one, whose first round is published."""
        await asyncio.to_thread(self._delete)
        self._states = dict(states)
        await asyncio.to_thread(self._begin)
        await self.change({})

    async def go_stale(self) -> None:
        """Look like a cluster with a round every second whose pollers stopped 47 s ago."""
        await asyncio.to_thread(self._conclude, STALE_AGE, 1.0)

    async def recover(self) -> None:
        """Conclude a round again."""
        await self.conclude()

    def delete(self) -> None:
        """Remove the record."""
        self._delete()

    def _delete(self) -> None:
        keys = self._writer.keys(self.cluster)
        self._writer.redis.delete(keys.epoch, *keys.record_keys)

    def _begin(self) -> None:
        self.epoch = self._writer.create(self.cluster, RecordSeed())
        instances = [(f"auth-{n + 1}-id", "auth", f"auth-{n + 1}") for n in range(AUTHS)]
        instances += [(f"proxy-{n + 1}-id", "proxy", f"proxy-{n + 1}") for n in range(self.proxies)]
        self._writer.intern_instances(self.cluster, self.epoch, instances)
        numbers = range(-AUTHS, self.proxies)
        self._write_resources(numbers, time.time() + TTL)
        self._write_polls(numbers, ok=True)
        self._write_agents()

    def _write_resources(self, numbers: Iterable[int], expires_at: float) -> None:
        """Write the resources of these proxies; auths have negative numbers, auth-1 is -3."""
        resources = {}
        for number in numbers:
            name = f"proxy-{number + 1}" if number >= 0 else f"auth-{number + AUTHS + 1}"
            address = f"127.0.0.1:{9000 + AUTHS + number}"
            resources[AUTHS + number] = InstanceResource(
                name=name, address=address, ttl=TTL, expires_at=expires_at
            )
        self._writer.write_instances(self.cluster, self.epoch, resources=resources)
        self._write_feed("lists")

    def _write_polls(self, numbers: Iterable[int], *, ok: bool, is_draining: bool = False) -> None:
        now = time.time()
        error = "" if ok else POLL_ERROR
        poll = Poll(
            attempts=(PollAttempt(now - 0.1, ok, error), PollAttempt(now - 1.1, ok, error)),
            serving=ServingStatus.SERVING,
            serving_at=now - 2,
            readyz=200,
            readyz_at=now - 2,
            watch=replace(
                INITIAL_WATCH, drain_request=DrainRequest("maintenance", now) if is_draining else None
            ),
        )
        polls = {AUTHS + number: poll for number in numbers}
        self._writer.write_instances(self.cluster, self.epoch, polls=polls, probed_at=now - 0.1)

    def _write_agents(self) -> None:
        now = time.time()
        names = [(f"agent-{n + 1}-id", f"agent-{n + 1}") for n in range(len(self.homes))]
        agents = self._writer.intern_agents(self.cluster, self.epoch, names)
        rows = blank_rows(HEARTBEAT, len(agents))
        rows["expires_at"], rows["ttl"], rows["ttl_seen"], rows["auth"] = now + TTL, TTL, TTL, 0
        rows["expires_at"][list(self.offline_agents)] = now - 1
        rows["auth"][: len(self.auths)] = self.auths
        rows["desired_count"] = rows["claimed_count"] = 1
        assert self._writer.write_heartbeats(
            self.cluster,
            self.epoch,
            feed_before=self._writer.feed(self.cluster, "presence"),
            feed_after=FeedState(
                freshness=FeedFreshness(now, now), epoch="agents", revision=len(agents), last_auth=0
            ),
            indices=agents,
            rows=rows,
            removed_agents=np.zeros(0, np.uint32),
            removed_at=now,
            tracked_counts=np.full(len(agents), self.proxies, np.uint8),
            attributes=[self.attributes_by_agent.get(agent, self.attributes) for agent in agents],
        )
        homes = np.array(self.homes)
        homes[list(self.offline_agents)] = -1
        for number in range(self.proxies):
            proxy_agents = agents[homes == number]
            tunnels = np.zeros(len(proxy_agents), TUNNEL)
            tunnels["agent"], tunnels["opened_at"] = proxy_agents, int(now) - 60
            name = str(AUTHS + number)
            assert self._writer.write_tunnels(
                self.cluster,
                self.epoch,
                AUTHS + number,
                feed_before=self._writer.feed(self.cluster, name),
                feed_after=FeedState(
                    freshness=FeedFreshness(now, now), epoch="tunnels", revision=len(proxy_agents)
                ),
                rows=tunnels,
            )

    def _write_feed(self, name: str) -> None:
        now = time.time()
        before = self._writer.feed(self.cluster, name)
        after = FeedState(freshness=FeedFreshness(now, now))
        assert self._writer.write_feed(self.cluster, self.epoch, name, feed_before=before, feed_after=after)

    def _conclude(self, age: float = 0.0, interval: float = INTERVAL) -> list[Event]:
        """Conclude a round as `fleet.monitoring.pollers.conclude` does, but with the states that the test sets.

        Where the judge concludes the same state, its verdict stands, with its reason, cause and recovery.
        """
        record = self._writer.load(self.cluster)
        now = time.time()
        judgement = compute_round(record, record.header.round + 1, now, Timing(round_interval=INTERVAL))
        verdicts = judgement.conclusion.verdicts.copy()
        previous = record.verdicts[: record.header.row_count]
        for index, state in self._states.items():
            if verdicts["state"][index] != state:
                verdicts[index] = blank_rows(verdicts.dtype, 1)[0]
                verdicts["state"][index] = state
                is_old = index < len(previous) and previous["state"][index] == state
                verdicts["since"][index] = previous["since"][index] if is_old else now
        places = judgement.conclusion.places
        all_rows = np.arange(len(verdicts), dtype=np.uint32)
        agents = find_changed_agents(
            previous, verdicts, record.places[: len(previous)], places, all_rows, now
        ).visible_agents
        counts = count_states(verdicts["state"])
        header = replace(
            judgement.conclusion.header,
            seq=record.header.seq + bool(len(agents)),
            as_of=now - age,
            interval=interval,
            counts=tuple(counts[state] for state in State),
        )
        conclusion = replace(
            judgement.conclusion,
            header=header,
            verdicts=verdicts,
            changed_verdict_rows=all_rows,
            # No task hands it to the database.
            outbox_entry=b"",
        )
        assert self._writer.commit(self.cluster, record, conclusion), "another round was concluded meanwhile"
        events: list[Event] = [event for event in judgement.events if not isinstance(event, StateDelta)]
        if len(agents):
            changes = event_changes_of(verdicts, places, agents)
            delta = StateDelta(self.cluster, header.epoch, header.seq, header.as_of, changes, counts)
            events.insert(0, delta)
        return events
