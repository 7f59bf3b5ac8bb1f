"""The naive layout for comparison: a hash of JSON fields per agent, read and classified one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from redis import Redis

from fleet.monitoring.classify import FleetFrame, classify_in
from fleet.monitoring.evidence import AgentEvidence, Heartbeat, ReconnectMode
from fleet.monitoring.state.record import ClusterRecord
from fleet.vocabulary.verdicts import State

#: Commands in one pipeline: more only grows the buffers.
_PIPE = 1000


def write(redis: Redis, record: ClusterRecord) -> None:
    """Write the agents of a packed record as `naive:<id>`."""
    tunnels = _by_agent(record.tunnel_agents, record.tunnel_proxies, len(record.ids))
    for begin in range(0, len(record.ids), _PIPE):
        with redis.pipeline(transaction=False) as pipe:
            for index in range(begin, min(begin + _PIPE, len(record.ids))):
                row = record.heartbeats[index]
                fields: dict[str | bytes, str] = {
                    "name": json.dumps(record.names[index]),
                    **{
                        name: json.dumps(row[name].item())
                        for name in ("expires_at", "ttl", "auth", "mode", "desired_count")
                    },
                    "tunnels": json.dumps(tunnels[index]),
                }
                pipe.hset(f"naive:{record.ids[index]}", mapping=fields)  # type: ignore[arg-type]  # invariant mapping
            pipe.execute()


def read_and_classify(redis: Redis, ids: tuple[str, ...], frame: FleetFrame) -> dict[State, int]:
    """Read every hash and classify its agent; return the number of agents in each state."""
    counts = dict.fromkeys(State, 0)
    for identity, fields in zip(ids, _read(redis, ids), strict=True):
        counts[classify_in(_evidence(identity, fields), frame).state] += 1
    return counts


def _read(redis: Redis, ids: tuple[str, ...]) -> Iterator[dict[bytes, bytes]]:
    for begin in range(0, len(ids), _PIPE):
        with redis.pipeline(transaction=False) as pipe:
            for identity in ids[begin : begin + _PIPE]:
                pipe.hgetall(f"naive:{identity}")
            yield from cast("list[dict[bytes, bytes]]", pipe.execute())


def _evidence(identity: str, fields: dict[bytes, bytes]) -> AgentEvidence:
    values: dict[str, Any] = {name.decode(): json.loads(text) for name, text in fields.items()}
    return AgentEvidence(
        id=identity,
        heartbeat=Heartbeat(
            auth=values["auth"],
            expires_at=values["expires_at"],
            ttl=values["ttl"],
            mode=ReconnectMode(values["mode"]),
            desired_count=values["desired_count"],
            claimed_count=len(values["tunnels"]),
        ),
        tunnels=tuple(values["tunnels"]),
        last_auth=values["auth"],
        had_tunnel=bool(values["tunnels"]),
    )


def _by_agent(agents: npt.NDArray[np.uint32], proxies: npt.NDArray[np.uint16], count: int) -> list[list[int]]:
    by_agent: list[list[int]] = [[] for _ in range(count)]
    for agent, proxy in zip(agents.tolist(), proxies.tolist(), strict=True):
        by_agent[agent].append(proxy)
    return by_agent
