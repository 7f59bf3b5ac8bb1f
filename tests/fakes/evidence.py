"""Evidence in the record as polls write it, for tests that conclude from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fleet.monitoring.columns import HEARTBEAT, TUNNEL
from fleet.monitoring.evidence import LISTS, PRESENCE, FeedFreshness
from fleet.monitoring.state.codec import FeedState, blank_rows
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.vocabulary.instances import InstanceResource, Poll, PollAttempt, ServingStatus

TTL = 600.0


class PolledCluster:
    """A cluster of auths and proxies, healthy by default; each `record_poll` is one poll of the whole fleet."""

    def __init__(self, writer: Writer, *, auths: int = 1, proxies: int = 2, cluster: str = "default") -> None:
        self.writer = writer
        self.cluster = cluster
        self.auths = auths
        self.proxies = proxies
        self.epoch = ""
        self._polls: dict[int, Poll] = {}

    def create_record(self) -> None:
        """Create the record with its instances."""
        self.epoch = self.writer.create(self.cluster, RecordSeed())
        self._polls = {}
        instances = [(f"auth-{n}-id", "auth", f"auth-{n}") for n in range(self.auths)]
        instances += [(f"proxy-{n}-id", "proxy", f"proxy-{n}") for n in range(self.proxies)]
        self.writer.intern_instances(self.cluster, self.epoch, instances)

    def record_poll(
        self,
        tunnels: Sequence[Sequence[int]],
        *,
        now: float,
        agents: int,
        silent: Sequence[int] = (),
        claimed_count: int = 0,
    ) -> None:
        """Record a poll: `tunnels` lists the agents of each proxy, `silent` the proxies that do not respond.

        `claimed_count`: the number of tunnels that each agent claims.
        """
        writer, cluster, epoch = self.writer, self.cluster, self.epoch
        for index in range(self.auths + self.proxies):
            before = self._polls.get(index, Poll())
            ok = index - self.auths not in silent
            attempts = (PollAttempt(now, ok=ok, error="" if ok else "deadline"), *before.attempts)[:2]
            self._polls[index] = (
                Poll(
                    attempts=attempts,
                    serving=ServingStatus.SERVING,
                    serving_at=now,
                    readyz=200,
                    readyz_at=now,
                )
                if ok
                else replace(before, attempts=attempts)
            )
        resources = {
            index: InstanceResource(f"i-{index}", "127.0.0.1:1", ttl=TTL, expires_at=now + TTL)
            for index in self._polls
        }
        writer.write_instances(cluster, epoch, resources=resources, polls=self._polls, probed_at=now)
        feed_state = FeedState(freshness=FeedFreshness(now, now), epoch="feed", revision=int(now))
        assert writer.write_feed(
            cluster, epoch, LISTS, feed_before=writer.feed(cluster, LISTS), feed_after=feed_state
        )
        indices = writer.intern_agents(
            cluster, epoch, [(f"agent-{n}-id", f"agent-{n}") for n in range(agents)]
        )
        rows = blank_rows(HEARTBEAT, agents)
        rows["expires_at"], rows["ttl"], rows["auth"], rows["desired_count"] = now + TTL, TTL, 0, 1
        rows["claimed_count"] = claimed_count
        assert writer.write_heartbeats(
            *(cluster, epoch),
            feed_before=writer.feed(cluster, PRESENCE),
            feed_after=feed_state,
            indices=indices,
            rows=rows,
            removed_agents=np.zeros(0, np.uint32),
            removed_at=now,
        )
        for number, members in enumerate(tunnels):
            if number in silent:
                continue
            tunnel_rows = np.zeros(len(members), TUNNEL)
            tunnel_rows["agent"] = members
            proxy_index = str(self.auths + number)
            before_feed = writer.feed(cluster, proxy_index)
            assert writer.write_tunnels(
                cluster,
                epoch,
                int(proxy_index),
                feed_before=before_feed,
                feed_after=feed_state,
                rows=tunnel_rows,
            )


def apply_delta(states: bytes, changes: Sequence[Sequence[int]] | Mapping[int, int]) -> bytes:
    """Return the states of a client after a delta; new agents are appended."""
    vector = bytearray(states)
    for index, state, *_ in changes.items() if isinstance(changes, Mapping) else changes:
        vector.extend(b"\0" * (index + 1 - len(vector)))
        vector[index] = state
    return bytes(vector)
