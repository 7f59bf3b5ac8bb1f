"""Whether an agent recovers automatically, and when at the latest (RFD 226)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.monitoring.classify import classify
from fleet.monitoring.evidence import AgentEvidence, FeedFreshness, FleetEvidence, ReconnectMode
from fleet.vocabulary.verdicts import Recovery, State, Verdict
from tests.fakes.small_fleet import (
    DEREGISTERED,
    EXPIRED,
    NOW,
    PROXY_1,
    PROXY_2,
    SILENT,
    TIMING,
    UNHEALTHY,
    agent,
    fleet,
    heartbeat,
)

#: A heartbeat of TTL 20 s comes within 12 s; everything sick in the small fleet fell sick 2 s ago.
SICK_SINCE, HEARTBEAT = NOW - 2, 12.0
RECONNECT = heartbeat(mode=ReconnectMode.RECONNECT, health_check=True)

#: proxy-1 silent, proxy-2 and a third well.
THREE = fleet(proxy_1=SILENT)
THREE = replace(
    THREE,
    instances={**THREE.instances, 9: replace(THREE.instances[PROXY_2], index=9, id="uuid-proxy-9")},
    tunnel_freshness={**THREE.tunnel_freshness, 9: FeedFreshness(NOW, NOW)},
)

ROWS: list[tuple[str, AgentEvidence, FleetEvidence, Recovery, float | None]] = [
    ("healthy", agent(), fleet(), Recovery.NOT_NEEDED, None),
    (
        "pick_first on a sick auth that holds the connection",
        agent(),
        fleet(auth_1=UNHEALTHY),
        Recovery.ONLY_IF_CAUSE_RECOVERS,
        None,
    ),
    (
        "reconnect on a sick auth: a backup after 3 s, then the next heartbeat",
        agent(heartbeat=RECONNECT),
        fleet(auth_1=UNHEALTHY),
        Recovery.BY_ITSELF,
        SICK_SINCE + 3 + HEARTBEAT,
    ),
    (
        "reconnect without health checks never notices",
        agent(heartbeat=replace(RECONNECT, health_check=False)),
        fleet(auth_1=UNHEALTHY),
        Recovery.ONLY_IF_CAUSE_RECOVERS,
        None,
    ),
    (
        "a policy the agent did not report",
        agent(heartbeat=heartbeat(mode=ReconnectMode.UNKNOWN)),
        fleet(auth_1=UNHEALTHY),
        Recovery.UNCLEAR,
        None,
    ),
    (
        "pick_first on a silent auth moves once the connection is found dead",
        agent(),
        fleet(auth_1=SILENT),
        Recovery.BY_ITSELF,
        SICK_SINCE + 900 + HEARTBEAT,
    ),
    (
        "no other auth to go to",
        agent(heartbeat=RECONNECT),
        fleet(auth_1=UNHEALTHY, auth_2=DEREGISTERED),
        Recovery.ONLY_IF_CAUSE_RECOVERS,
        None,
    ),
    (
        "backend down",
        agent(heartbeat=RECONNECT),
        fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY),
        Recovery.ONLY_IF_CAUSE_RECOVERS,
        None,
    ),
    (
        "the proxy before its auth is silent",
        agent(heartbeat=heartbeat(via_proxy=PROXY_2)),
        fleet(proxy_2=SILENT),
        Recovery.BY_ITSELF,
        SICK_SINCE + 900 + HEARTBEAT,
    ),
    (
        "sole proxy frozen: the tracker (10 s) expires",
        agent(),
        fleet(proxy_1=SILENT),
        Recovery.BY_ITSELF,
        SICK_SINCE + 10 + 9,
    ),
    (
        "sole proxy frozen, and it was never told a TTL: 3 minutes",
        agent(heartbeat=heartbeat(ttl_seen=0)),
        fleet(proxy_1=SILENT),
        Recovery.BY_ITSELF,
        SICK_SINCE + 180 + 9,
    ),
    (
        "sole proxy frozen, and no other is well",
        agent(),
        fleet(proxy_1=SILENT, proxy_2=UNHEALTHY),
        Recovery.ONLY_IF_CAUSE_RECOVERS,
        None,
    ),
    (
        "sole proxy unhealthy: its resource, then the tracker, then a dial",
        agent(),
        fleet(proxy_1=UNHEALTHY),
        Recovery.BY_ITSELF,
        NOW + 7 + 10 + 9,
    ),
    (
        "RFD defaults: 13 minutes from the last heartbeat",
        agent(heartbeat=heartbeat(ttl_seen=0)),
        fleet(proxy_1={**UNHEALTHY, "ttl": 600.0, "expires_at": NOW + 600}),
        Recovery.BY_ITSELF,
        NOW + 600 + 180 + 9,
    ),
    (
        "a long TTL: remaining lifetimes keep a dead proxy no longer than the default would",
        agent(heartbeat=heartbeat(ttl_seen=600)),
        fleet(proxy_1={**UNHEALTHY, "ttl": 600.0, "expires_at": NOW + 600}),
        Recovery.BY_ITSELF,
        NOW + 600 + 180 + 9,
    ),
    (
        "sole proxy expired",
        agent(),
        fleet(proxy_1=EXPIRED),
        Recovery.BY_ITSELF,
        NOW - 1 + 10 + 9,
    ),
    (
        "sole proxy deregistered: agents dial at once",
        agent(tunnels=()),
        fleet(proxy_1=DEREGISTERED),
        Recovery.BY_ITSELF,
        SICK_SINCE + 9,
    ),
    (
        "an overdue prediction is unclear",
        agent(tunnels=()),
        fleet(proxy_1={"gone_at": NOW - 9.001}),
        Recovery.UNCLEAR,
        None,
    ),
    ("a prediction due now", agent(tunnels=()), fleet(proxy_1={"gone_at": NOW - 9}), Recovery.BY_ITSELF, NOW),
    ("offline", agent(tunnels=(), lost_at=NOW - 1), fleet(), Recovery.UNCLEAR, None),
    ("heartbeats without a tunnel", agent(tunnels=()), fleet(), Recovery.UNCLEAR, None),
    ("a campaign is moving it", agent(working_until=NOW + 5), fleet(), Recovery.BY_ITSELF, NOW + 5),
    (
        "wants two, one proxy of two frozen: no third to go to",
        agent(
            heartbeat=heartbeat(desired_count=2), tunnels=(PROXY_1, PROXY_2), last_proxies=(PROXY_1, PROXY_2)
        ),
        fleet(proxy_1=SILENT),
        Recovery.ONLY_IF_CAUSE_RECOVERS,
        None,
    ),
    (
        "wants two, one froze, a third is free: the other names the frozen one until it expires",
        agent(heartbeat=heartbeat(desired_count=2), tunnels=(PROXY_1, 9), last_proxies=(PROXY_1, 9)),
        THREE,
        Recovery.BY_ITSELF,
        NOW + 7 + 10 + 9,
    ),
]


@pytest.mark.parametrize(
    ("agent_evidence", "fleet_evidence", "recovery", "at"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_recovery_row(
    agent_evidence: AgentEvidence, fleet_evidence: FleetEvidence, recovery: Recovery, at: float | None
) -> None:
    """Recovery and its time."""
    verdict = classify(agent_evidence, fleet_evidence, NOW)
    assert (verdict.recovery, verdict.recovers_at) == (
        recovery,
        pytest.approx(at) if at is not None else None,
    )


def test_recovery_two_frozen_proxies_count_from_the_later() -> None:
    """An agent discovers proxies until the last of its own is silent."""
    two_tunnel_agent = agent(
        heartbeat=heartbeat(desired_count=2), tunnels=(PROXY_1, PROXY_2), last_proxies=(PROXY_1, PROXY_2)
    )
    third = fleet().instances[PROXY_1]
    fleet_evidence = fleet(proxy_1={**SILENT, "sick_since": NOW - 8}, proxy_2=SILENT)
    instances = {**fleet_evidence.instances, 9: replace(third, index=9, id="uuid-proxy-9")}
    tunnels = {**fleet_evidence.tunnel_freshness, 9: FeedFreshness(NOW, NOW)}
    verdict = classify(
        two_tunnel_agent, replace(fleet_evidence, instances=instances, tunnel_freshness=tunnels), NOW
    )
    assert verdict.state is State.STRANDED
    assert verdict.cause == "uuid-proxy-1"
    assert verdict.recovers_at == NOW - 2 + 10 + 9


def test_recovery_at_risk_becomes_stranded_at_strands_at() -> None:
    """The predicted time is the moment when the verdict changes."""
    sick = {**UNHEALTHY, "expires_at": None}
    before = _classify_at(NOW, sick)
    assert before.state is State.AT_RISK
    assert before.strands_at == NOW + 16
    assert _classify_at(before.strands_at - 0.001, sick).state is State.AT_RISK
    after = _classify_at(before.strands_at, sick)
    assert (after.state, after.reason, after.cause) == (State.STRANDED, before.reason, before.cause)
    assert after.strands_at is None


def _classify_at(now: float, auth_1: dict[str, Any]) -> Verdict:
    """Classify the default agent at another time, with all evidence read again."""
    facts = fleet(auth_1=auth_1).instances
    shift = now - NOW
    shifted_instances = {
        index: replace(
            facts_before,
            attempts=tuple(replace(attempt, at=attempt.at + shift) for attempt in facts_before.attempts),
            serving_at=now,
            readyz_at=now,
            listed_at=now,
            expires_at=None if facts_before.expires_at is None else facts_before.expires_at + shift,
        )
        for index, facts_before in facts.items()
    }
    read = FeedFreshness(now, now)
    fleet_evidence = FleetEvidence(
        "default", shifted_instances, read, {PROXY_1: read, PROXY_2: read}, timing=TIMING
    )
    return classify(agent(), fleet_evidence, now)
