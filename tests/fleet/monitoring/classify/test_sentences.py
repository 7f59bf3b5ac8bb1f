"""Sentences for people: names, no times, and what it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.classify import classify
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, ReconnectMode
from tests.fakes.small_fleet import NOW, PROXY_1, PROXY_2, SILENT, UNHEALTHY, agent, fleet, heartbeat

BY_ITSELF = " It will recover by itself."


@pytest.mark.parametrize(
    ("who", "where", "sentence"),
    [
        (agent(), fleet(), "It is reachable through proxy-1, and auth-1 lists it."),
        (
            agent(),
            fleet(proxy_1=SILENT),
            "It has no live tunnel: proxy-1 does not answer." + BY_ITSELF,
        ),
        (
            agent(),
            fleet(proxy_1=UNHEALTHY),
            "Every live tunnel of it ends at a sick proxy: proxy-1 is unhealthy." + BY_ITSELF,
        ),
        (
            agent(heartbeat=heartbeat(expires_at=NOW - 1)),
            fleet(auth_1=UNHEALTHY),
            (
                "Its resource expired: its auth auth-1 is unhealthy. "
                "With pick_first it keeps that connection: only if auth-1 recovers."
            ),
        ),
        (
            agent(),
            fleet(auth_1=UNHEALTHY, auth_2=UNHEALTHY),
            (
                "All auth servers fell sick together, so nobody renews its resource. "
                "It will be back only when the backend is."
            ),
        ),
        (
            agent(heartbeat=heartbeat(mode=ReconnectMode.RECONNECT)),
            fleet(auth_1=UNHEALTHY),
            (
                "Its auth auth-1 is unhealthy and will not renew its resource. "
                "Without health checks it keeps that connection: only if auth-1 recovers."
            ),
        ),
        (
            agent(),
            fleet(proxy_1=SILENT, proxy_2=UNHEALTHY),
            (
                "It has no live tunnel: proxy-1 does not answer. "
                "There is no healthy one to go to: only if proxy-1 recovers."
            ),
        ),
        (
            agent(heartbeat=heartbeat(via_proxy=PROXY_2)),
            fleet(proxy_2=SILENT),
            "Its auth connection goes through proxy-2, which does not answer." + BY_ITSELF,
        ),
        (
            agent(heartbeat=heartbeat(claimed=2), tunnels=(PROXY_1, PROXY_2)),
            fleet(),
            "It holds 2 tunnels, more than the 1 it wants.",
        ),
        (
            agent(heartbeat=heartbeat(desired=2)),
            fleet(),
            "It wants 2 tunnels and has fewer.",
        ),
        (
            agent(heartbeat=None, last_auth=None),
            fleet(),
            "proxy-1 has a tunnel of it, but no auth ever listed it.",
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
