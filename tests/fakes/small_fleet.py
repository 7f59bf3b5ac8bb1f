"""A small fleet as evidence: two auths, two proxies and one agent, all healthy; tests change single facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fleet.monitoring.evidence import (
    AgentEvidence,
    FeedFreshness,
    FleetEvidence,
    Heartbeat,
    ReconnectMode,
    Timing,
)
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, PollAttempt, ServingStatus

NOW = 1_000_000.0
TIMING = Timing(round_interval=1.0)
AUTH_1, AUTH_2, PROXY_1, PROXY_2 = 0, 1, 2, 3
PRESENCE = FeedFreshness(NOW, NOW)


def instance(index: int, kind: InstanceKind, name: str, **facts: Any) -> InstanceFacts:
    """Return a healthy instance with an unexpired resource."""
    base: dict[str, Any] = {
        "id": f"uuid-{name}",
        "index": index,
        "kind": kind,
        "name": name,
        "address": "127.0.0.1:1",
        "ttl": 10.0,
        "expires_at": NOW + 7,
        "listed_at": NOW,
        "attempts": (PollAttempt(NOW - 0.2, True), PollAttempt(NOW - 1.2, True)),
        "serving": ServingStatus.SERVING,
        "serving_at": NOW - 0.2,
        "readyz": 200,
        "readyz_at": NOW - 0.2,
    }
    return InstanceFacts(**{**base, **facts})


SILENT: Mapping[str, Any] = {
    "attempts": (
        PollAttempt(NOW - 0.2, False, "deadline exceeded"),
        PollAttempt(NOW - 1.2, False, "deadline exceeded"),
    ),
    "sick_since": NOW - 2,
}
UNHEALTHY: Mapping[str, Any] = {"serving": ServingStatus.NOT_SERVING, "readyz": 503, "sick_since": NOW - 2}
EXPIRED: Mapping[str, Any] = {"expires_at": NOW - 1, "sick_since": NOW - 2}
DEREGISTERED: Mapping[str, Any] = {"gone_at": NOW - 2}
UNPOLLED: Mapping[str, Any] = {
    "attempts": (),
    "serving": None,
    "serving_at": None,
    "readyz": None,
    "readyz_at": None,
}
OK: Mapping[str, Any] = {}


def fleet(
    *,
    auth_1: Mapping[str, Any] = OK,
    auth_2: Mapping[str, Any] = OK,
    proxy_1: Mapping[str, Any] = OK,
    proxy_2: Mapping[str, Any] = OK,
    **evidence: Any,
) -> FleetEvidence:
    """Return the small fleet; arguments named after an instance change its facts, others the evidence."""
    instances = [
        instance(AUTH_1, InstanceKind.AUTH, "auth-1", **auth_1),
        instance(AUTH_2, InstanceKind.AUTH, "auth-2", **auth_2),
        instance(PROXY_1, InstanceKind.PROXY, "proxy-1", **proxy_1),
        instance(PROXY_2, InstanceKind.PROXY, "proxy-2", **proxy_2),
    ]
    base: dict[str, Any] = {
        "cluster": "default",
        "instances": {facts.index: facts for facts in instances},
        "presence_freshness": PRESENCE,
        "tunnel_freshness": {PROXY_1: FeedFreshness(NOW, NOW), PROXY_2: FeedFreshness(NOW, NOW)},
        "timing": TIMING,
    }
    return FleetEvidence(**{**base, **evidence})


def heartbeat(**changes: Any) -> Heartbeat:
    """Return a heartbeat of an agent with one desired tunnel, written by auth-1 4 s ago."""
    base = Heartbeat(
        auth=AUTH_1,
        expires_at=NOW + 16,
        ttl=20.0,
        mode=ReconnectMode.PICK_FIRST,
        desired_count=1,
        claimed_count=1,
        tracked_count=2,
        ttl_seen=10.0,
    )
    return replace(base, **changes)


def agent(*, tunnels: Iterable[int] = (PROXY_1,), **changes: Any) -> AgentEvidence:
    """Return an agent with a tunnel to proxy-1 and a heartbeat by auth-1."""
    base: dict[str, Any] = {
        "id": "agent-1",
        "heartbeat": heartbeat(),
        "tunnels": tuple(tunnels),
        "last_proxies": (PROXY_1,),
        "last_auth": AUTH_1,
        "had_tunnel": True,
    }
    return AgentEvidence(**{**base, **changes})
