"""Decisions of campaigns that move auth connections."""

from __future__ import annotations

from collections import Counter

import pytest

from fleet.changes.campaigns import auth_connections
from fleet.vocabulary.campaigns import (
    AgentOutcome,
    AgentSnapshot,
    AuthSnapshot,
    CampaignAgentState,
    CampaignSettings,
    ProxySnapshot,
)

_AUTHS = {"a": AuthSnapshot("auth-1", False, 9), "b": AuthSnapshot("auth-2", True)}
_PROXIES = {
    "p": ProxySnapshot("proxy-1", True),
    "q": ProxySnapshot("proxy-2", True),
    "old": ProxySnapshot("proxy-3", False),
    "dead": ProxySnapshot("proxy-4", False, is_reachable=False),
}


def _agent(*proxies: str, auth: str = "a", is_retired: bool = False) -> AgentSnapshot:
    return AgentSnapshot(frozenset(proxies), 1, is_retired, auth)


@pytest.mark.parametrize(
    ("agent", "left_auths", "expected_reason"),
    [
        (_agent("p"), ("a",), ""),
        (_agent("p"), (), ""),
        (_agent("old"), ("a",), ""),
        (_agent("dead"), ("a",), "no tunnel to a reachable proxy"),
        (_agent(), ("a",), "no tunnel to a reachable proxy"),
        (_agent("unheard of"), ("a",), "no tunnel to a reachable proxy"),
        (_agent("p", auth="b"), ("a",), "already connected to auth-2"),
        (_agent("p", auth="b"), (), "no other healthy auth"),
        (_agent("p", auth=""), (), "not sent a heartbeat"),
        (_agent("p", is_retired=True), ("a",), "retired"),
        (None, ("a",), "no longer in the fleet"),
    ],
)
def test_agent_that_cannot_move_is_skipped_with_a_reason(
    agent: AgentSnapshot | None, left_auths: tuple[str, ...], expected_reason: str
) -> None:
    """Agents without a reachable proxy or another auth, and agents that have moved already."""
    reason = auth_connections.find_skip_reason(agent, _AUTHS, _PROXIES, left_auths)
    assert expected_reason in reason
    assert bool(reason) == bool(expected_reason)


def test_agent_with_missing_tunnels_is_moved() -> None:
    """Moving the auth connection does not affect tunnels."""
    assert not auth_connections.find_skip_reason(AgentSnapshot(frozenset("p"), 3, auth="a"), _AUTHS, _PROXIES)


def test_relay_proxy_is_healthy_and_not_avoided_if_possible() -> None:
    """A healthy proxy, otherwise a reachable one; an avoided proxy only if there is no other."""
    assert auth_connections.choose_relay_proxy(_agent("old", "p", "dead"), _PROXIES, "x") == "p"
    assert auth_connections.choose_relay_proxy(_agent("old", "dead"), _PROXIES, "x") == "old"
    assert (
        auth_connections.choose_relay_proxy(_agent("p", "old"), _PROXIES, "x", avoided_proxies=("p",))
        == "old"
    )
    assert auth_connections.choose_relay_proxy(_agent("p"), _PROXIES, "x", avoided_proxies=("p",)) == "p"
    counts = Counter(
        auth_connections.choose_relay_proxy(_agent("p", "q"), _PROXIES, f"agent-{n}") for n in range(200)
    )
    assert min(counts["p"], counts["q"]) > 60


@pytest.mark.parametrize(
    ("agent", "age", "expected"),
    [
        (_agent("p", auth="b"), 1, AgentOutcome(CampaignAgentState.SUCCEEDED, new_auth="b")),
        (_agent(auth="b"), 1, AgentOutcome(CampaignAgentState.SUCCEEDED, new_auth="b")),
        (_agent("p"), 1, None),
        (_agent("p", auth=""), 59, None),
        (
            _agent("p"),
            60,
            AgentOutcome(
                CampaignAgentState.FAILED,
                "timed out: the agent sent no heartbeat through an auth other than auth-1 within 60 s",
            ),
        ),
        (None, 1, None),
        (None, 60, AgentOutcome(CampaignAgentState.FAILED, "the agent is no longer in the fleet")),
    ],
)
def test_agent_outcome_depends_on_its_auth_and_the_timeout(
    agent: AgentSnapshot | None, age: float, expected: AgentOutcome | None
) -> None:
    """An agent has moved when it heartbeats through another auth."""
    assert (
        auth_connections.decide_agent_outcome("a", 100.0, agent, _AUTHS, CampaignSettings(), 100.0 + age)
        == expected
    )
