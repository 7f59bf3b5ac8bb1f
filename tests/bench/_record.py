"""A healthy fleet of any size in a real record, written by the real Writer, and functions that change parts of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.columns import HEARTBEAT, TUNNEL
from fleet.monitoring.evidence import LISTS, PRESENCE, FeedFreshness, ReconnectMode
from fleet.monitoring.state.codec import FeedState, blank_rows
from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.vocabulary.instances import InstanceResource, Poll, PollAttempt, ServingStatus

AUTHS = 3
PROXIES = 200
_TTL = 600.0
CLUSTER = "default"


@dataclass(slots=True)
class FilledRecord:
    """The fleet in the record."""

    writer: Writer
    epoch: str
    heartbeats: npt.NDArray[np.void]
    #: Of every feed: who loads reads again only what has another one.
    revision: int = 1
    #: Of all proxies; if half of a group fails, that is one incident.
    group: str = "bench"

    @property
    def keys(self) -> Keys:
        """Return the record's Redis keys."""
        return self.writer.keys(CLUSTER)

    def write_heartbeats_of(
        self, indices: npt.NDArray[np.uint32], now: float, *, expires_in: float = _TTL
    ) -> None:
        """Write new heartbeats of some agents; expired ones when `expires_in` is negative."""
        self.heartbeats["expires_at"][indices] = now + expires_in
        self.revision += 1
        won = self.writer.write_heartbeats(
            CLUSTER,
            self.epoch,
            feed_before=self.writer.feed(CLUSTER, PRESENCE),
            feed_after=FeedState(
                freshness=FeedFreshness(now, now), epoch="bench", revision=self.revision, last_auth=0
            ),
            indices=indices,
            rows=self.heartbeats[indices],
            removed_agents=np.zeros(0, np.uint32),
            removed_at=now,
            attributes=[_attributes_of(agent) for agent in indices.tolist()],
        )
        assert won, "nobody else writes"

    def refresh(self, now: float, silent_proxies: Collection[int] = ()) -> None:
        """Record a response of every instance now, as the polls of a round do, but of no silent proxy, by number.

        After a `beat` every proxy's feed has moved on too: the next load reads all tunnels again, the worst case.
        """
        silent_indices = {AUTHS + number for number in silent_proxies}
        self._instances(now, silent_indices)
        for index in range(AUTHS, AUTHS + PROXIES):
            if index not in silent_indices:
                self._feed(str(index), now)
        self._feed(LISTS, now)

    def _feed(self, name: str, now: float) -> None:
        before = self.writer.feed(CLUSTER, name)
        after = FeedState(freshness=FeedFreshness(now, now), epoch="bench", revision=self.revision)
        assert self.writer.write_feed(CLUSTER, self.epoch, name, feed_before=before, feed_after=after), (
            "nobody else writes"
        )

    def _instances(self, now: float, silent_indices: Collection[int]) -> None:
        names = _names()
        poll = Poll(
            attempts=(PollAttempt(now, ok=True),),
            serving=ServingStatus.SERVING,
            serving_at=now,
            readyz=200,
            readyz_at=now,
        )
        failed_poll = replace(poll, attempts=(PollAttempt(now - 1, ok=False), PollAttempt(now, ok=False)))
        self.writer.write_instances(
            CLUSTER,
            self.epoch,
            resources={
                index: InstanceResource(
                    name=name,
                    address=f"10.0.{index // 250}.{index % 250}:3025",
                    diag_address=f"10.0.{index // 250}.{index % 250}:3000",
                    version="18.0.0",
                    ttl=_TTL,
                    expires_at=now + _TTL,
                    group=self.group if kind == "proxy" else "",
                    generation=1 if kind == "proxy" else 0,
                )
                for index, (_, kind, name) in enumerate(names)
            },
            polls={index: failed_poll if index in silent_indices else poll for index in range(len(names))},
            probed_at=now,
        )


def _names() -> list[tuple[str, str, str]]:
    auths = [(_uuid(1, n), "auth", f"auth-{n + 1}") for n in range(AUTHS)]
    return auths + [(_uuid(2, n), "proxy", f"proxy-{n + 1}") for n in range(PROXIES)]


def _uuid(kind: int, number: int) -> str:
    """Return a UUID of the usual length."""
    return f"{kind:08x}-0000-4000-8000-{number:012x}"


def _attributes_of(agent: int) -> AgentAttributes:
    """Return one of 4 versions and of 36 label sets."""
    labels = (("env", f"env-{agent % 3}"), ("role", f"role-{agent % 4}"), ("site", f"site-{agent // 4 % 3}"))
    return AgentAttributes(f"18.2.{agent % 4}", labels)


def fill(writer: Writer, agents: int, now: float, *, group: str = "bench") -> FilledRecord:
    """Write a fleet of `agents` on 200 proxies, with one or two tunnels each, all healthy."""
    draws = np.random.default_rng(agents)
    epoch = writer.create(CLUSTER, RecordSeed())
    writer.intern_instances(CLUSTER, epoch, _names())
    indices = writer.intern_agents(
        CLUSTER, epoch, [(_uuid(3, n), f"agent-{n + 1:06d}") for n in range(agents)]
    )
    tunnel_counts = draws.integers(1, 3, agents)
    heartbeats = blank_rows(HEARTBEAT, agents)
    heartbeats["policy_read_at"] = now - draws.uniform(0, 86_400, agents)
    heartbeats["ttl"] = heartbeats["ttl_seen"] = _TTL
    heartbeats["auth"] = draws.integers(0, AUTHS, agents)
    heartbeats["mode"] = np.where(
        draws.random(agents) < 0.8, ReconnectMode.RECONNECT, ReconnectMode.PICK_FIRST
    )
    heartbeats["desired_count"] = heartbeats["claimed_count"] = tunnel_counts
    filled = FilledRecord(writer, epoch, heartbeats, group=group)
    filled.write_heartbeats_of(indices, now)
    _open_tunnels(filled, tunnel_counts, draws, now)
    filled.refresh(now)
    return filled


def _open_tunnels(
    filled: FilledRecord, tunnel_counts: npt.NDArray[np.int64], draws: np.random.Generator, now: float
) -> None:
    """Assign first tunnels round robin and second tunnels at random."""
    agents = np.arange(len(tunnel_counts), dtype=np.uint32)
    home = agents % PROXIES
    second = (home + 1 + draws.integers(0, PROXIES - 1, len(tunnel_counts))) % PROXIES
    for proxy in range(PROXIES):
        proxy_agents = agents[(home == proxy) | ((second == proxy) & (tunnel_counts > 1))]
        rows = np.zeros(len(proxy_agents), TUNNEL)
        rows["agent"], rows["opened_at"] = proxy_agents, int(now) - 60
        won = filled.writer.write_tunnels(
            CLUSTER,
            filled.epoch,
            AUTHS + proxy,
            feed_before=b"",
            feed_after=FeedState(freshness=FeedFreshness(now, now), epoch="bench", revision=1),
            rows=rows,
        )
        assert won, "nobody else writes"
