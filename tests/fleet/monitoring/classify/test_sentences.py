"""Sentences for people: names, no times, and what it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.classify import classify
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, ReconnectMode
from tests.fakes.small_fleet import NOW, PROXY_1, PROXY_2, SILENT, UNHEALTHY, agent, fleet, heartbeat

BY_ITSELF = " The agent recovers automatically."


@pytest.mark.parametrize(
    ("who", "where", "sentence"),
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
            "No proxy that the agent is connected to is OK: proxy-1 is unhealthy." + BY_ITSELF,
        ),
        (
            agent(heartbeat=heartbeat(expires_at=NOW - 1)),
            fleet(auth_1=UNHEALTHY),
            (
                "The agent's resource has expired: its auth auth-1 is unhealthy. "
                "The agent recovers only when auth-1 does: with pick_first it keeps the connection."
            ),
        ),
        (
            agent(),
            fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY),
            (
                "All auths failed together, so no auth renews the agent's resource. "
                "The agent recovers only when the backend does."
            ),
        ),
        (
            agent(heartbeat=heartbeat(mode=ReconnectMode.RECONNECT)),
            fleet(auth_1=UNHEALTHY),
            (
                "The agent's auth auth-1 is unhealthy and does not renew the agent's resource. "
                "The agent recovers only when auth-1 does: without health checks it keeps the connection."
            ),
        ),
        (
            agent(),
            fleet(proxy_1=SILENT, proxy_2=UNHEALTHY),
            (
                "The agent has no live tunnel: proxy-1 is not responding. "
                "The agent recovers only when proxy-1 does: no other instance is available."
            ),
        ),
        (
            agent(heartbeat=heartbeat(via_proxy=PROXY_2)),
            fleet(proxy_2=SILENT),
            "The agent's auth connection goes through proxy-2, which is not responding." + BY_ITSELF,
        ),
        (
            agent(heartbeat=heartbeat(claimed=2), tunnels=(PROXY_1, PROXY_2)),
            fleet(),
            "The agent has 2 tunnels, but its desired count is 1.",
        ),
        (
            agent(heartbeat=heartbeat(desired=2)),
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
def test_sentence(who: AgentEvidence, where: FleetEvidence, sentence: str) -> None:
    """It reads like this."""
    assert classify(who, where, NOW).sentence == sentence


@pytest.mark.parametrize("facts", [{}, {"auth_1": SILENT}, {"proxy_1": SILENT}, {"proxy_1": UNHEALTHY}])
def test_sentence_has_no_times(facts: dict[str, Any]) -> None:
    """Times stand beside it and age; the sentence does not."""
    assert str(int(NOW))[:5] not in classify(agent(), fleet(**facts), NOW).sentence
