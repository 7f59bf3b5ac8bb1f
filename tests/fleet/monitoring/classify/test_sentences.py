"""Sentences that explain verdicts, with names and without times."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.classify import classify
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, ReconnectMode
from tests.fakes.small_fleet import NOW, PROXY_1, PROXY_2, SILENT, UNHEALTHY, agent, fleet, heartbeat

BY_ITSELF = " The agent recovers automatically."


@pytest.mark.parametrize(
    ("agent_evidence", "fleet_evidence", "sentence"),
    [
        (agent(), fleet(), "The agent is reachable through proxy-1, and auth-1 receives its heartbeats."),
        (
            agent(),
            fleet(proxy_1=SILENT),
            "The agent has no live tunnel: proxy-1 is not responding." + BY_ITSELF,
        ),
        (
            agent(),
            fleet(proxy_1=UNHEALTHY),
            "No proxy that the agent is connected to is OK: proxy-1 cannot send heartbeats." + BY_ITSELF,
        ),
        (
            agent(heartbeat=heartbeat(expires_at=NOW - 1)),
            fleet(auth_1=UNHEALTHY),
            (
                "The agent's heartbeat has expired: its auth auth-1 lost its backend. "
                "No automatic recovery: with pick_first, the agent keeps its connection "
                "until auth-1 recovers or a campaign moves the agent."
            ),
        ),
        (
            agent(),
            fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY),
            (
                "All auths failed together, so no auth accepts the agent's heartbeats. "
                "The agent recovers only when the backend recovers."
            ),
        ),
        (
            agent(heartbeat=heartbeat(mode=ReconnectMode.RECONNECT)),
            fleet(auth_1=UNHEALTHY),
            (
                "The agent's auth auth-1 lost its backend and does not accept the agent's heartbeats. "
                "No automatic recovery: without health checks, the agent keeps its connection "
                "until auth-1 recovers or a campaign moves the agent."
            ),
        ),
        (
            agent(),
            fleet(proxy_1=SILENT, proxy_2=UNHEALTHY),
            (
                "The agent has no live tunnel: proxy-1 is not responding. "
                "The agent recovers only when proxy-1 recovers: no other instance is available."
            ),
        ),
        (
            agent(heartbeat=heartbeat(via_proxy=PROXY_2)),
            fleet(proxy_2=SILENT),
            "The agent's auth connection goes through proxy-2, which is not responding." + BY_ITSELF,
        ),
        (
            agent(heartbeat=heartbeat(claimed_count=2), tunnels=(PROXY_1, PROXY_2)),
            fleet(),
            "The agent has 2 tunnels, but its desired count is 1.",
        ),
        (
            agent(heartbeat=heartbeat(desired_count=2)),
            fleet(),
            "The agent should have 2 tunnels to current proxies but has fewer.",
        ),
        (
            agent(heartbeat=None, last_auth=None),
            fleet(),
            "The agent has a tunnel to proxy-1, but no auth has ever listed the agent.",
        ),
    ],
)
def test_sentence(agent_evidence: AgentEvidence, fleet_evidence: FleetEvidence, sentence: str) -> None:
    assert classify(agent_evidence, fleet_evidence, NOW).sentence == sentence


@pytest.mark.parametrize("facts", [{}, {"auth_1": SILENT}, {"proxy_1": SILENT}, {"proxy_1": UNHEALTHY}])
def test_sentence_has_no_times(facts: dict[str, Any]) -> None:
    """Pages show times beside the sentence."""
    assert str(int(NOW))[:5] not in classify(agent(), fleet(**facts), NOW).sentence
