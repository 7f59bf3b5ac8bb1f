"""Random fleets for property tests, with times around the boundaries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import (
    DISAGREEMENT_SHIFT,
    HAD_TUNNEL,
    HEALTH_CHECK,
    NO_INSTANCE,
    RETIRED,
    blank_heartbeats,
    blank_memory,
)
from fleet.monitoring.evidence import FeedFreshness, FleetEvidence, Timing
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, PollAttempt, ServingStatus

NOW = 1_000_000.0
TIMING = Timing(round_interval=1.0, keepalive_timeout=30.0)
#: Ages around the boundaries: now, two rounds, staleness (10 s), expiry.
AGES = (-5.0, 0.0, 0.5, 1.0, 9.75, 10.0, 10.25, 30.0, 900.0)


@dataclass(frozen=True)
class RandomFleet:
    """A fleet as evidence and as columns."""

    evidence: FleetEvidence
    heartbeats: npt.NDArray[np.void]
    memory: npt.NDArray[np.void]
    tunnel_agents: npt.NDArray[np.uint32]
    tunnel_proxies: npt.NDArray[np.uint16]


def random_fleet(seed: int, agents: int, auths: int, proxies: int, healthy_share: float) -> RandomFleet:
    """Return a random fleet; `healthy_share` is the share of instances and feeds without a fault."""
    rng = np.random.default_rng(seed)
    indices = rng.permutation(auths + proxies + 3)[: auths + proxies].tolist()
    kinds = [InstanceKind.AUTH] * auths + [InstanceKind.PROXY] * proxies
    # One fault for all: otherwise hardly any fleet has all auths sick or every instance failing.
    common_fault = str(rng.choice(["ok", "ok", "ok", "unhealthy", "silent"]))
    instances = {
        index: _instance(rng, index, kind, healthy_share, common_fault)
        for index, kind in zip(indices, kinds, strict=True)
    }
    names = [*(f"uuid-{index}" for index in indices[:auths]), "", "uuid-of-nobody"]
    path_rng = np.random.default_rng(seed + 1)
    instances = {
        index: replace(facts, heartbeat_auth=str(path_rng.choice(names)))
        if facts.kind is InstanceKind.PROXY
        else facts
        for index, facts in instances.items()
    }
    indices_or_unknown = [*indices, max(indices, default=0) + 5]
    evidence = FleetEvidence(
        cluster="default",
        instances=instances,
        presence_freshness=_feed(rng, healthy_share),
        tunnel_freshness={
            i: _feed(rng, healthy_share) for i in indices if rng.random() < max(healthy_share, 0.8)
        },
        blind=bool(rng.random() < 0.02),
        timing=TIMING,
        degraded_instances=frozenset(i for i in indices if rng.random() < 0.05),
    )
    tunnel_agents, tunnel_proxies = _tunnels(rng, agents, indices_or_unknown)
    return RandomFleet(
        evidence,
        _heartbeats(rng, agents, indices_or_unknown),
        _memory(rng, agents, indices_or_unknown),
        tunnel_agents,
        tunnel_proxies,
    )


def _age(rng: np.random.Generator) -> float:
    return float(rng.choice(AGES))


def _feed(rng: np.random.Generator, healthy_share: float) -> FeedFreshness:
    if rng.random() < healthy_share:
        return FeedFreshness(NOW - 0.5, NOW - 0.5)
    times = [None if rng.random() < 0.2 else NOW - _age(rng) for _ in range(2)]
    return FeedFreshness(*times)


def _instance(
    rng: np.random.Generator, index: int, kind: InstanceKind, healthy_share: float, common_fault: str
) -> InstanceFacts:
    facts: dict[str, Any] = {
        "id": f"uuid-{index}",
        "index": index,
        "kind": kind,
        "name": f"{kind.value}-{index}",
        "address": "127.0.0.1:1",
        "ttl": None if rng.random() < 0.1 else 10.0,
        "expires_at": NOW + 7,
        "listed_at": None if rng.random() < 0.5 else NOW - 0.5,
        "attempts": (PollAttempt(NOW - 0.5, True), PollAttempt(NOW - 1.5, True)),
        "serving": ServingStatus.SERVING,
        "serving_at": NOW - 0.5,
        "readyz": 200,
        "readyz_at": NOW - 0.5,
        "group": str(rng.choice(["", "a"])),
        "region": ["", "eu", "us"][index % 3],
        "generation": int(rng.integers(0, 2)) if rng.random() < 0.2 else 0,
    }
    faults = ["unhealthy", "silent", "expired", "gone", "unpolled", "once", "mixed"]
    fault = common_fault if rng.random() < healthy_share else str(rng.choice(faults))
    return InstanceFacts(**{**facts, **_fault(rng, fault)})


def _fault(rng: np.random.Generator, fault: str) -> dict[str, Any]:
    since = None if rng.random() < 0.3 else NOW - _age(rng)
    failed_attempt = PollAttempt(NOW - 0.5, False, "timeout")
    if fault == "unhealthy":
        return {
            "serving": ServingStatus.NOT_SERVING,
            "sick_since": since,
            "expires_at": NOW + float(rng.choice([-1, 5])),
        }
    if fault == "silent":
        return {"attempts": (failed_attempt, PollAttempt(NOW - 1.5, False)), "sick_since": since}
    if fault == "expired":
        return {"expires_at": NOW - abs(_age(rng)), "sick_since": since}
    if fault == "gone":
        return {"gone_at": NOW - abs(_age(rng))}
    if fault == "unpolled":
        return {"attempts": (), "serving": None, "serving_at": None, "readyz": None, "readyz_at": None}
    if fault == "once":
        return {"attempts": (failed_attempt, PollAttempt(NOW - 1.5, True))}
    if fault == "mixed":
        return {
            "attempts": tuple(
                PollAttempt(NOW - _age(rng), bool(rng.random() < 0.5)) for _ in range(rng.integers(0, 3))
            ),
            "readyz": int(rng.choice([200, 400, 503])),
            "readyz_at": NOW - _age(rng),
            "expires_at": None,
            "sick_since": since,
        }
    return {}


def _heartbeats(rng: np.random.Generator, agents: int, indices_or_unknown: list[int]) -> npt.NDArray[np.void]:
    rows = blank_heartbeats(agents)
    rows["expires_at"] = NOW - rng.choice([*AGES, -16.0, -16.0, -16.0, -16.0], agents)
    rows["ttl"] = rng.choice([0, 1.1, 20], agents)
    rows["ttl_seen"] = rng.choice([0, 10.1, 600.0], agents)
    rows["auth"] = rng.choice(indices_or_unknown, agents)
    rows["via_proxy"] = np.where(
        rng.random(agents) < 0.2, rng.choice(indices_or_unknown, agents), NO_INSTANCE
    )
    rows["mode"] = rng.integers(0, 3, agents)
    rows["flags"] = rng.integers(0, 2, agents) * HEALTH_CHECK
    rows["desired_count"] = rng.choice([0, 1, 1, 2, 3, 5], agents)
    rows["claimed_count"] = rng.choice([0, 1, 1, 2], agents)
    rows[rng.random(agents) < 0.1] = blank_heartbeats(1)[0]
    return rows


def _memory(rng: np.random.Generator, agents: int, indices_or_unknown: list[int]) -> npt.NDArray[np.void]:
    rows = blank_memory(agents)
    rows["working_until"] = np.where(rng.random(agents) < 0.1, NOW - rng.choice(AGES, agents), 0)
    rows["lost_at"] = np.where(rng.random(agents) < 0.3, NOW - rng.choice(AGES, agents), 0)
    rows["flags"] = np.where(rng.random(agents) < 0.03, RETIRED, 0) | np.where(
        rng.random(agents) < 0.8, HAD_TUNNEL, 0
    )
    rows["flags"] |= rng.choice([0, 1, 10, 11, 63], agents).astype(np.uint8) << DISAGREEMENT_SHIFT
    rows["tracked_count"] = rng.choice([0, 1, 2, 9], agents)
    rows["last_auth"] = np.where(
        rng.random(agents) < 0.8, rng.choice(indices_or_unknown, agents), NO_INSTANCE
    )
    for row in rows:
        recent_proxies = rng.permutation(indices_or_unknown)[: rng.integers(0, 4)]
        row["last_proxies"][: len(recent_proxies)] = recent_proxies
    return rows


def _tunnels(
    rng: np.random.Generator, agents: int, indices_or_unknown: list[int]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    pairs = [
        (agent, proxy)
        for agent in range(agents)
        for proxy in rng.permutation(indices_or_unknown)[: rng.choice([0, 1, 1, 2, 3, 4])].tolist()
    ]
    rows = np.array(pairs, np.int64).reshape(-1, 2)[rng.permutation(len(pairs))]
    return rows[:, 0].astype(np.uint32), rows[:, 1].astype(np.uint16)
