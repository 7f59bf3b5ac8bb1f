"""A record as one concluded round leaves it, written by the real Writer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.classify import places_of
from fleet.monitoring.columns import HAD_TUNNEL, HEARTBEAT, RETIRED, TUNNEL
from fleet.monitoring.evidence import PRESENCE, FeedFreshness
from fleet.monitoring.state.codec import FeedState, blank_rows
from fleet.monitoring.state.record import ClusterRecord
from fleet.monitoring.state.writer import Conclusion, RecordSeed, Writer
from fleet.vocabulary.instances import InstanceResource, Poll, PollAttempt, ServingStatus
from fleet.vocabulary.verdicts import State

#: When the round concluded, unless a test says otherwise.
AS_OF = 1_700_000_000.0
INTERVAL = 1.0


def fill(
    writer: Writer,
    states: Sequence[State],
    *,
    cluster: str = "default",
    auths: int = 2,
    proxies: int = 2,
    as_of: float = AS_OF,
    cause: int = 0,
    suffix: str = "",
    connected_to_all: int = 0,
) -> str:
    """Write a fleet whose agents have `states`, `agent-1` first; agent n has a tunnel to proxy n modulo `proxies`.
    `cause`: the index of the instance that is blamed; auths come first. `suffix`: the end of every name; ids go
    without it. `connected_to_all`: how many agents, from the first on, have a tunnel to every proxy.

    Answers the epoch.
    """
    epoch = writer.create(cluster, RecordSeed())
    instance_names = [(f"auth-{n + 1}-id", "auth", f"auth-{n + 1}{suffix}") for n in range(auths)]
    instance_names += [(f"proxy-{n + 1}-id", "proxy", f"proxy-{n + 1}{suffix}") for n in range(proxies)]
    instances = writer.intern_instances(cluster, epoch, instance_names)
    writer.write_instances(
        cluster,
        epoch,
        resources={
            int(index): InstanceResource(
                name=name, address=f"127.0.0.1:{9000 + index}", ttl=10.0, expires_at=as_of + 10
            )
            for index, (_, _, name) in zip(instances, instance_names, strict=True)
        },
        polls={
            int(index): Poll(
                attempts=(PollAttempt(as_of - 0.1, ok=True),),
                serving=ServingStatus.SERVING,
                serving_at=as_of - 0.1,
                readyz=200,
                readyz_at=as_of - 0.1,
            )
            for index in instances
        },
        probed_at=as_of - 0.1,
    )
    agents = writer.intern_agents(
        cluster, epoch, [(f"agent-{n + 1}-id", f"agent-{n + 1}{suffix}") for n in range(len(states))]
    )
    feed = FeedFreshness(attempted_at=as_of - 0.1, responded_at=as_of - 0.1)
    rows = blank_rows(HEARTBEAT, len(agents))
    rows["expires_at"], rows["ttl"], rows["auth"], rows["desired_count"] = as_of + 20, 20, 0, 1
    assert writer.write_heartbeats(
        cluster,
        epoch,
        feed_before=writer.feed(cluster, "presence"),
        feed_after=FeedState(freshness=feed, epoch="agents", revision=len(agents), last_auth=0),
        indices=agents,
        rows=rows,
        removed_agents=np.zeros(0, np.uint32),
        removed_at=as_of,
    )
    assert writer.write_feed(
        cluster,
        epoch,
        "lists",
        feed_before=writer.feed(cluster, "lists"),
        feed_after=FeedState(freshness=feed),
    )
    for number in range(proxies):
        proxy_agents = np.union1d(agents[:connected_to_all], agents[number::proxies])
        tunnels = np.zeros(len(proxy_agents), TUNNEL)
        tunnels["agent"], tunnels["opened_at"] = proxy_agents, int(as_of) - 60
        assert writer.write_tunnels(
            cluster,
            epoch,
            auths + number,
            feed_before=writer.feed(cluster, str(auths + number)),
            feed_after=FeedState(freshness=feed, epoch="tunnels", revision=len(proxy_agents)),
            rows=tunnels,
        )
    assert conclude(writer, states, cluster=cluster, auths=auths, proxies=proxies, as_of=as_of, cause=cause)
    return epoch


def conclude(
    writer: Writer,
    states: Sequence[State],
    *,
    cluster: str = "default",
    auths: int = 2,
    proxies: int = 2,
    as_of: float = AS_OF,
    cause: int = 0,
    base_record: ClusterRecord | None = None,
) -> bool:
    """Commit one more round in which the agents have `states`; return False when another writer was first.

    base_record: the record that the round was concluded from; None: the newest one.
    """
    before = writer.load(cluster) if base_record is None else base_record
    verdicts, memory = before.verdicts.copy(), before.memory.copy()
    fresh = verdicts["since"] == 0
    changed_agents = np.flatnonzero(fresh | (verdicts["state"] != np.array(states, np.uint8))).astype(
        np.uint32
    )
    verdicts["state"] = states
    verdicts["cause"] = cause
    verdicts["since"][changed_agents] = as_of
    memory["home_proxy"] = auths + np.arange(len(states)) % proxies
    memory["last_proxies"][:, 0] = memory["home_proxy"]
    memory["last_auth"] = 0
    memory["flags"] = HAD_TUNNEL | np.where(verdicts["state"] == State.RETIRED, RETIRED, 0)
    counts = np.bincount(verdicts["state"], minlength=len(State))
    header = replace(
        before.header,
        row_count=len(states),
        seq=before.header.seq + bool(len(changed_agents)),
        round=before.header.round + 1,
        as_of=as_of,
        interval=INTERVAL,
        agent_home_count=len(states),
        instance_count=auths + proxies,
        counts=tuple(counts.tolist()),
    )
    conclusion = Conclusion(
        header=header,
        verdicts=verdicts,
        changed_verdict_rows=changed_agents,
        memory=memory,
        changed_memory_rows=np.flatnonzero(memory != before.memory).astype(np.uint32),
        places=places_of(memory, before.tunnel_agents, before.tunnel_proxies),
        changed_place_rows=np.arange(len(states), dtype=np.uint32),
        spells={},
    )
    return writer.commit(cluster, before, conclusion)


def write_attributes(writer: Writer, epoch: str, *attributes: AgentAttributes) -> bool:
    """Write heartbeats of the agents `id-0`, `id-1`... with these versions and labels."""
    cluster, now = "default", time.time()
    agents = writer.intern_agents(cluster, epoch, [(f"id-{n}", f"agent-{n}") for n in range(len(attributes))])
    return writer.write_heartbeats(
        *(cluster, epoch),
        feed_before=writer.feed(cluster, PRESENCE),
        feed_after=FeedState(freshness=FeedFreshness(now, now), epoch="e", revision=time.monotonic_ns()),
        indices=agents,
        rows=blank_rows(HEARTBEAT, len(agents)),
        removed_agents=np.zeros(0, np.uint32),
        removed_at=now,
        attributes=attributes,
    )
