"""Evidence in the record as polls leave it, for tests of what rounds conclude from it."""

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


class Polled:
    """A cluster of auths and proxies that are well, unless told otherwise; every call is one round of polls."""

    def __init__(self, writer: Writer, *, auths: int = 1, proxies: int = 2, cluster: str = "default") -> None:
        self.writer = writer
        self.cluster = cluster
        self.auths = auths
        self.proxies = proxies
        self.epoch = ""
        self._polls: dict[int, Poll] = {}

    def begin(self) -> None:
        """Make the record, with its instances."""
        self.epoch = self.writer.create(self.cluster, RecordSeed())
        self._polls = {}
        named = [(f"auth-{n}-id", "auth", f"auth-{n}") for n in range(self.auths)]
        named += [(f"proxy-{n}-id", "proxy", f"proxy-{n}") for n in range(self.proxies)]
        self.writer.intern_instances(self.cluster, self.epoch, named)

    def see(
        self,
        tunnels: Sequence[Sequence[int]],
        *,
        now: float,
        agents: int,
        silent: Sequence[int] = (),
        claimed: int = 0,
    ) -> None:
        """Record a round: `tunnels` names the agents of each proxy, `silent` the proxies that do not answer.

        `claimed`: how many tunnels each agent says it holds.
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
        answered = FeedState(freshness=FeedFreshness(now, now), epoch="feed", revision=int(now))
        assert writer.write_feed(cluster, epoch, LISTS, before=writer.feed(cluster, LISTS), after=answered)
        indices = writer.intern_agents(
            cluster, epoch, [(f"agent-{n}-id", f"agent-{n}") for n in range(agents)]
        )
        rows = blank_rows(HEARTBEAT, agents)
        rows["expires_at"], rows["ttl"], rows["auth"], rows["desired"] = now + TTL, TTL, 0, 1
        rows["claimed"] = claimed
        assert writer.write_heartbeats(
            *(cluster, epoch),
            before=writer.feed(cluster, PRESENCE),
            after=answered,
            indices=indices,
            rows=rows,
            ended_agents=np.zeros(0, np.uint32),
            ended_at=now,
        )
        for number, members in enumerate(tunnels):
            if number in silent:
                continue
            found = np.zeros(len(members), TUNNEL)
            found["agent"] = members
            place = str(self.auths + number)
            before_feed = writer.feed(cluster, place)
            assert writer.write_tunnels(
                cluster, epoch, int(place), before=before_feed, after=answered, rows=found
            )


def apply(states: bytes, changes: Sequence[Sequence[int]] | Mapping[int, int]) -> bytes:
    """What a client makes of a delta: states it has, with the changes; new agents beyond the end."""
    vector = bytearray(states)
    for index, state in dict(changes).items():
        vector.extend(b"\0" * (index + 1 - len(vector)))
        vector[index] = state
    return bytes(vector)
