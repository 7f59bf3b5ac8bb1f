"""Decisions of a campaign that moves auth connections."""

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


def _agent(*proxies: str, auth: str = "a", retired: bool = False) -> AgentSnapshot:
    return AgentSnapshot(frozenset(proxies), 1, retired, auth)


@pytest.mark.parametrize(
    ("agent", "leave", "says"),
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
        (_agent("p", retired=True), ("a",), "retired"),
        (None, ("a",), "no longer in the fleet"),
    ],
)
def test_who_is_skipped(agent: AgentSnapshot | None, leave: tuple[str, ...], says: str) -> None:
    """Whoever cannot be asked, or would have nowhere to go, with that reason."""
    why = auth_connections.find_skip_reason(agent, _AUTHS, _PROXIES, leave)
    assert says in why
    assert bool(why) == bool(says)


def test_tunnels_that_are_missing_do_not_matter() -> None:
    """Tunnels are not touched: an agent that has fewer than it wants is moved as well."""
    assert not auth_connections.find_skip_reason(AgentSnapshot(frozenset("p"), 3, auth="a"), _AUTHS, _PROXIES)


def test_messenger() -> None:
    """A proxy that is well, else one that answers; not the one that did not pass it on before, if there is another."""
    assert auth_connections.choose_relay_proxy(_agent("old", "p", "dead"), _PROXIES, "x") == "p"
    assert auth_connections.choose_relay_proxy(_agent("old", "dead"), _PROXIES, "x") == "old"
    assert (
        auth_connections.choose_relay_proxy(_agent("p", "old"), _PROXIES, "x", avoided_proxies=("p",))
        == "old"
    )
    assert auth_connections.choose_relay_proxy(_agent("p"), _PROXIES, "x", avoided_proxies=("p",)) == "p"
    spread = Counter(
        auth_connections.choose_relay_proxy(_agent("p", "q"), _PROXIES, f"agent-{n}") for n in range(200)
    )
    assert min(spread["p"], spread["q"]) > 60


@pytest.mark.parametrize(
    ("agent", "age", "expected"),
    [
        (_agent("p", auth="b"), 1, AgentOutcome(CampaignAgentState.OK, new_auth="b")),
        (_agent(auth="b"), 1, AgentOutcome(CampaignAgentState.OK, new_auth="b")),
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
def test_outcome(agent: AgentSnapshot | None, age: float, expected: AgentOutcome | None) -> None:
    """Moved is who heartbeats through another auth, by the record."""
    assert (
        auth_connections.decide_agent_outcome("a", 100.0, agent, _AUTHS, CampaignSettings(), 100.0 + age)
        == expected
    )
