"""The verdict table, row by row and reason by reason: docs/reference/verdicts.md."""

from __future__ import annotations

import pytest

from fleet.monitoring.classify import classify
from fleet.monitoring.evidence import AgentEvidence, FeedFreshness, FleetEvidence, ReconnectMode
from fleet.vocabulary.instances import PollAttempt
from fleet.vocabulary.verdicts import Reason, Recovery, State
from tests.fakes.small_fleet import (
    DEREGISTERED,
    EXPIRED,
    NOW,
    PROXY_1,
    PROXY_2,
    SILENT,
    TIMING,
    UNHEALTHY,
    UNPOLLED,
    agent,
    fleet,
    heartbeat,
)

STALE = FeedFreshness(NOW - 10, NOW - 10)
EXPIRED_HEARTBEAT = heartbeat(expires_at=NOW - 1)

#: (name, agent, fleet, state, reason, cause)
ROWS: list[tuple[str, AgentEvidence, FleetEvidence, State, Reason, str]] = [
    ("all well", agent(), fleet(), State.HEALTHY, Reason.NONE, ""),
    (
        "retired and everything wrong",
        agent(is_retired=True),
        fleet(blind=True),
        State.RETIRED,
        Reason.NONE,
        "",
    ),
    ("polling has stopped", agent(), fleet(blind=True), State.UNKNOWN, Reason.STALE, ""),
    (
        "every source that covers it is stale",
        agent(),
        fleet(presence_freshness=STALE, tunnel_freshness={PROXY_1: STALE, PROXY_2: FeedFreshness(NOW, NOW)}),
        State.UNKNOWN,
        Reason.STALE,
        "",
    ),
    (
        "all targets fail",
        agent(),
        fleet(auth_1=SILENT, auth_2=SILENT, proxy_1=SILENT, proxy_2=SILENT),
        State.UNKNOWN,
        Reason.CLUSTER_UNREACHABLE,
        "",
    ),
    (
        "its proxy is fine but its tunnels were not read lately",
        agent(),
        fleet(tunnel_freshness={PROXY_1: STALE, PROXY_2: FeedFreshness(NOW, NOW)}),
        State.UNKNOWN,
        Reason.STALE,
        "",
    ),
    (
        "its resource ran out while nobody read the list",
        agent(heartbeat=EXPIRED_HEARTBEAT),
        fleet(presence_freshness=STALE),
        State.UNKNOWN,
        Reason.STALE,
        "",
    ),
    (
        "a tunnel and never a resource",
        agent(heartbeat=None, last_auth=None),
        fleet(),
        State.UNKNOWN,
        Reason.DISAGREE,
        "",
    ),
    (
        "gone, and one it used was never polled",
        agent(heartbeat=EXPIRED_HEARTBEAT, tunnels=()),
        fleet(proxy_1=UNPOLLED),
        State.UNKNOWN,
        Reason.STALE,
        "",
    ),
    (
        "enrolled only",
        agent(heartbeat=None, tunnels=(), last_proxies=(), last_auth=None, had_tunnel=False),
        fleet(),
        State.NEVER,
        Reason.NONE,
        "",
    ),
    (
        "heartbeats but never had a tunnel",
        agent(tunnels=(), last_proxies=(), had_tunnel=False),
        fleet(),
        State.NEVER,
        Reason.NONE,
        "",
    ),
    (
        "heartbeats, and a proxy that may have its first tunnel was not read yet",
        agent(tunnels=(), last_proxies=(), had_tunnel=False),
        fleet(tunnel_freshness={PROXY_1: FeedFreshness(NOW, NOW)}),
        State.UNKNOWN,
        Reason.STALE,
        "",
    ),
    (
        "its only proxy froze",
        agent(),
        fleet(proxy_1=SILENT),
        State.STRANDED,
        Reason.PROXY_UNHEALTHY,
        "uuid-proxy-1",
    ),
    (
        "its proxy deregistered and took the tunnel along",
        agent(tunnels=()),
        fleet(proxy_1=DEREGISTERED),
        State.STRANDED,
        Reason.PROXY_EXPIRED,
        "uuid-proxy-1",
    ),
    (
        "resource expired under a sick auth",
        agent(heartbeat=EXPIRED_HEARTBEAT),
        fleet(auth_1=UNHEALTHY),
        State.STRANDED,
        Reason.AUTH_UNHEALTHY,
        "uuid-auth-1",
    ),
    (
        "resource expired and all auths sick at once",
        agent(heartbeat=EXPIRED_HEARTBEAT),
        fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY),
        State.STRANDED,
        Reason.BACKEND_DOWN,
        "backend/default",
    ),
    (
        "resource expired behind a silent proxy",
        agent(heartbeat=heartbeat(expires_at=NOW - 1, via_proxy=PROXY_2)),
        fleet(proxy_2=SILENT),
        State.STRANDED,
        Reason.PROXY_UNHEALTHY,
        "uuid-proxy-2",
    ),
    ("heartbeats without a tunnel", agent(tunnels=()), fleet(), State.STRANDED, Reason.NO_TUNNEL, ""),
    (
        "resource expired though all is fine",
        agent(heartbeat=heartbeat(expires_at=NOW - 1, mode=ReconnectMode.RECONNECT)),
        fleet(),
        State.STRANDED,
        Reason.RESOURCE_EXPIRED,
        "",
    ),
    (
        "resource expired though all is fine, with pick_first",
        agent(heartbeat=EXPIRED_HEARTBEAT),
        fleet(),
        State.STRANDED,
        Reason.POLICY_OFF,
        "",
    ),
    (
        "never listed, and no auth can list it",
        agent(heartbeat=None, last_auth=None),
        fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY),
        State.STRANDED,
        Reason.BACKEND_DOWN,
        "backend/default",
    ),
    (
        "killed, resource expired",
        agent(heartbeat=EXPIRED_HEARTBEAT, tunnels=()),
        fleet(),
        State.OFFLINE,
        Reason.OWN_HOST,
        "",
    ),
    (
        "killed, resource not expired yet",
        agent(tunnels=(), lost_at=NOW - 1),
        fleet(),
        State.OFFLINE,
        Reason.OWN_HOST,
        "",
    ),
    (
        "offline since before its proxy failed",
        agent(heartbeat=heartbeat(expires_at=NOW - 900), tunnels=(), lost_at=NOW - 900),
        fleet(proxy_1=SILENT),
        State.OFFLINE,
        Reason.OWN_HOST,
        "",
    ),
    (
        "its auth is unhealthy",
        agent(),
        fleet(auth_1=UNHEALTHY),
        State.AT_RISK,
        Reason.AUTH_UNHEALTHY,
        "uuid-auth-1",
    ),
    (
        "its auth is silent",
        agent(),
        fleet(auth_1=SILENT),
        State.AT_RISK,
        Reason.AUTH_UNHEALTHY,
        "uuid-auth-1",
    ),
    (
        "all auths fell sick together",
        agent(),
        fleet(auth_1=UNHEALTHY, auth_2=SILENT),
        State.AT_RISK,
        Reason.BACKEND_DOWN,
        "backend/default",
    ),
    (
        "the proxy before its auth is silent",
        agent(heartbeat=heartbeat(via_proxy=PROXY_2)),
        fleet(proxy_2=SILENT),
        State.AT_RISK,
        Reason.PROXY_UNHEALTHY,
        "uuid-proxy-2",
    ),
    (
        "its only tunnel is on an unhealthy proxy",
        agent(),
        fleet(proxy_1=UNHEALTHY),
        State.AT_RISK,
        Reason.PROXY_UNHEALTHY,
        "uuid-proxy-1",
    ),
    (
        "its only tunnel is on an expired proxy",
        agent(),
        fleet(proxy_1=EXPIRED),
        State.AT_RISK,
        Reason.PROXY_EXPIRED,
        "uuid-proxy-1",
    ),
    (
        "moved by a campaign, and its proxy froze",
        agent(working_until=NOW + 5),
        fleet(proxy_1=SILENT),
        State.STRANDED,
        Reason.PROXY_UNHEALTHY,
        "uuid-proxy-1",
    ),
    ("moved by a campaign too long ago", agent(working_until=NOW), fleet(), State.HEALTHY, Reason.NONE, ""),
    ("moved by a campaign", agent(working_until=NOW + 5), fleet(), State.WORKING, Reason.RECONNECTING, ""),
    (
        "wants two, one proxy froze",
        agent(
            heartbeat=heartbeat(desired_count=2), tunnels=(PROXY_1, PROXY_2), last_proxies=(PROXY_1, PROXY_2)
        ),
        fleet(proxy_1=SILENT),
        State.DEGRADED,
        Reason.TOO_FEW_TUNNELS,
        "uuid-proxy-1",
    ),
    (
        "wants two, has one",
        agent(heartbeat=heartbeat(desired_count=2)),
        fleet(),
        State.DEGRADED,
        Reason.TOO_FEW_TUNNELS,
        "",
    ),
    (
        "wants two, one is on an unhealthy proxy",
        agent(
            heartbeat=heartbeat(desired_count=2), tunnels=(PROXY_1, PROXY_2), last_proxies=(PROXY_1, PROXY_2)
        ),
        fleet(proxy_2=UNHEALTHY),
        State.DEGRADED,
        Reason.PROXY_UNHEALTHY,
        "uuid-proxy-2",
    ),
    (
        "the proxy before its auth is unhealthy",
        agent(heartbeat=heartbeat(via_proxy=PROXY_2)),
        fleet(proxy_2=UNHEALTHY),
        State.DEGRADED,
        Reason.PROXY_UNHEALTHY,
        "uuid-proxy-2",
    ),
    (
        "claims more than proxies have reported for long enough",
        agent(heartbeat=heartbeat(claimed_count=2), disagreement_rounds=TIMING.min_disagreement_rounds),
        fleet(),
        State.DEGRADED,
        Reason.DISAGREE,
        "",
    ),
    (
        "claims more than proxies report, by two views read moments apart",
        agent(heartbeat=heartbeat(claimed_count=2), disagreement_rounds=TIMING.min_disagreement_rounds - 1),
        fleet(),
        State.HEALTHY,
        Reason.NONE,
        "",
    ),
    (
        "rests on a degraded instance",
        agent(),
        fleet(degraded_instances=frozenset({PROXY_1})),
        State.DEGRADED,
        Reason.INSTANCE_DEGRADED,
        "uuid-proxy-1",
    ),
    (
        "wants one, has two",
        agent(heartbeat=heartbeat(claimed_count=2), tunnels=(PROXY_1, PROXY_2)),
        fleet(),
        State.EXCESS,
        Reason.TOO_MANY_TUNNELS,
        "",
    ),
]


@pytest.mark.parametrize(
    ("agent_evidence", "fleet_evidence", "state", "reason", "cause"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_verdict_matches_the_table(
    agent_evidence: AgentEvidence, fleet_evidence: FleetEvidence, state: State, reason: Reason, cause: str
) -> None:
    """The verdict, its reason and its cause are those of the table, and a sentence goes with them."""
    verdict = classify(agent_evidence, fleet_evidence, NOW)
    assert (verdict.state, verdict.reason, verdict.cause) == (state, reason, cause)
    assert verdict.sentence.endswith(".")


def test_table_covers_every_state_and_reason() -> None:
    """No state and no reason is without a row."""
    assert {row[3] for row in ROWS} == set(State)
    assert {row[4] for row in ROWS} == set(Reason)


def test_single_failed_poll_strands_no_agent() -> None:
    """One failed attempt at its only proxy leaves the agent healthy."""
    failed_once = {"attempts": (PollAttempt(NOW - 0.2, False, "timeout"), PollAttempt(NOW - 1.2, True))}
    assert classify(agent(), fleet(proxy_1=failed_once), NOW).state is State.HEALTHY


def test_one_silent_proxy_does_not_make_other_agents_unknown() -> None:
    """The dead proxy's agent is stranded and the other's is not unknown."""
    fleet_evidence = fleet(proxy_1=SILENT)
    assert classify(agent(), fleet_evidence, NOW).state is State.STRANDED
    assert (
        classify(agent(tunnels=(PROXY_2,), last_proxies=(PROXY_2,)), fleet_evidence, NOW).state
        is State.HEALTHY
    )


def test_sentence_names_the_cause_and_the_recovery() -> None:
    """With pick_first and an auth that holds the connection, only that auth can mend it, and the sentence says so."""
    verdict = classify(agent(), fleet(auth_1=UNHEALTHY), NOW)
    assert verdict.recovery is Recovery.ONLY_IF_CAUSE_RECOVERS
    assert verdict.sentence == (
        "The agent's auth auth-1 lost its backend and does not accept the agent's heartbeats. "
        "No automatic recovery: with pick_first, the agent keeps its connection "
        "until auth-1 recovers or a campaign moves the agent."
    )
