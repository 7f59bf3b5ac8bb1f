"""Decisions of a reconnect campaign."""

from __future__ import annotations

from collections import Counter

import pytest

from fleet.vocabulary import campaigns
from fleet.vocabulary.campaigns import (
    AgentSnapshot,
    CampaignAgentState,
    CampaignCounts,
    CampaignSettings,
    ProxySnapshot,
)

_PROXIES = {
    "a": ProxySnapshot("proxy-1", True),
    "b": ProxySnapshot("proxy-2", True),
    "c": ProxySnapshot("proxy-3", False),
}


def _agent(*proxies: str, desired: int = 1) -> AgentSnapshot:
    return AgentSnapshot(frozenset(proxies), desired)


@pytest.mark.parametrize("name", list(campaigns.RANGES))
@pytest.mark.parametrize("wrong", ["", "x", "-1", "1.5", "99999999999", "²", None])
def test_wrong_pace_is_named(name: str, wrong: object) -> None:
    """A message at each field, and nothing of it is used."""
    read = campaigns.parse_campaign_settings({name: wrong})
    assert "whole number" in read.problems[name]
    assert read.settings == CampaignSettings()


@pytest.mark.parametrize("wrong", ["25:00", "1:60", "noon", "1440", "-1:00", "1:2:3"])
def test_wrong_window_is_named(wrong: str) -> None:
    """Times of the day only."""
    assert "time of day" in campaigns.parse_campaign_settings({"window_from": wrong}).problems["window_from"]


def test_pace_is_read() -> None:
    """What is left out has its default; what is unknown is named."""
    read = campaigns.parse_campaign_settings({"rate": "60", "window_from": "22:30", "window_to": "0"})
    assert not read.problems
    assert (read.settings.rate, read.settings.window_from, read.settings.per_proxy) == (
        60,
        1350,
        CampaignSettings().per_proxy,
    )
    assert campaigns.parse_campaign_settings({"speed": 1}).problems == {"speed": "unknown setting"}


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        (_agent("a"), ""),
        (_agent("c"), ""),
        (_agent("a", "b"), "no other healthy proxy"),
        (_agent(), "no tunnel"),
        (_agent("a", desired=2), "1 of its 2"),
        (AgentSnapshot(frozenset("a"), 1, retired=True), "retired"),
        (None, "no longer in the fleet"),
    ],
)
def test_who_is_skipped(agent: AgentSnapshot | None, says: str) -> None:
    """Whoever would have less than before, with that reason."""
    why = campaigns.find_skip_reason(agent, _PROXIES)
    assert says in why
    assert bool(why) == bool(says)


def test_tunnel_to_leave() -> None:
    """The one that is meant, else one to a sick proxy."""
    assert campaigns.choose_proxy_to_leave(_agent("a", "b"), _PROXIES, frozenset("b")) == "b"
    assert campaigns.choose_proxy_to_leave(_agent("a", "c"), _PROXIES, frozenset()) == "c"
    assert campaigns.choose_proxy_to_leave(_agent("a", "b"), _PROXIES, frozenset("x")) == "a"
    spread = Counter(
        campaigns.choose_proxy_to_leave(_agent("a", "b"), _PROXIES, frozenset(), f"agent-{n}")
        for n in range(200)
    )
    assert min(spread["a"], spread["b"]) > 60


@pytest.mark.parametrize(
    ("held", "agent", "age", "state"),
    [
        ("a", _agent("b"), 1, CampaignAgentState.OK),
        ("a", _agent("a", "b"), 1, CampaignAgentState.OK),
        ("a", _agent("a"), 1, None),
        ("a", _agent("a"), 60, CampaignAgentState.FAILED),
        ("a", _agent(), 1, None),
        ("a", _agent(), 60, CampaignAgentState.FAILED),
        ("a", None, 60, CampaignAgentState.FAILED),
        ("ab", _agent("b", desired=1), 1, CampaignAgentState.OK),
        ("ab", _agent("b", desired=2), 1, None),
    ],
)
def test_outcome(
    held: str, agent: AgentSnapshot | None, age: float, state: CampaignAgentState | None
) -> None:
    """Moved, not yet, or too late."""
    found = campaigns.decide_agent_outcome(
        frozenset(held), "a", 100.0, agent, CampaignSettings(), 100.0 + age
    )
    assert (found.state if found else None) is state


def test_admission_by_rate_and_canaries() -> None:
    """Canaries at once, then nobody until they are held, then the rate; a late step makes no burst."""
    pace = CampaignSettings(rate=60, canaries=2, hold=10)

    def admit(
        counts: CampaignCounts, elapsed: float = 1.0, done_at: float | None = None, now: float = 100.0
    ) -> int:
        return campaigns.admit(
            counts, pace, credit=0.0, elapsed_seconds=elapsed, canaries_finished_at=done_at, now=now
        ).count

    assert admit(CampaignCounts(waiting=10)) == 2
    assert admit(CampaignCounts(waiting=1)) == 1
    assert admit(CampaignCounts(waiting=8, asked=2)) == 0
    assert admit(CampaignCounts(waiting=8, ok=2), done_at=95.0) == 0
    assert admit(CampaignCounts(waiting=8, ok=2), done_at=90.0) == 1
    assert admit(CampaignCounts(waiting=8, ok=2), elapsed=600.0, done_at=90.0) == 2
    assert admit(CampaignCounts(ok=10), done_at=90.0) == 0


@pytest.mark.parametrize(
    ("start", "end", "minute", "inside"),
    [
        (0, 0, 5, True),
        (60, 120, 60, True),
        (60, 120, 120, False),
        (1380, 60, 0, True),
        (1380, 60, 600, False),
    ],
)
def test_window(start: int, end: int, minute: int, inside: bool) -> None:
    """Also over midnight."""
    pace = CampaignSettings(window_from=start, window_to=end, canaries=0)
    assert campaigns.is_in_window(pace, minute * 60.0 + 86_400 * 3) is inside
    if not inside:
        held = campaigns.admit(
            CampaignCounts(waiting=1),
            pace,
            credit=5,
            elapsed_seconds=1,
            canaries_finished_at=None,
            now=minute * 60.0,
        )
        assert (held.count, held.credit) == (0, 0)
        assert "waiting for the time window" in held.wait_reason


def test_abort() -> None:
    """By the share of failures, once there are enough; by how many more are stranded."""
    pace = CampaignSettings(max_failed=2, max_stranded=10)

    def why(counts: CampaignCounts, stranded: int = 0) -> str:
        return campaigns.find_abort_reason(counts, pace, stranded_count=stranded, initial_stranded_count=3)

    assert not why(CampaignCounts(waiting=100, ok=1, failed=1))
    assert not why(CampaignCounts(waiting=100, ok=98, failed=2))
    assert "3 of 100" in why(CampaignCounts(waiting=100, ok=97, failed=3))
    assert "1 of 2" in why(CampaignCounts(ok=1, failed=1))
    assert not why(CampaignCounts(waiting=1), stranded=12)
    assert "10 more" in why(CampaignCounts(waiting=1), stranded=13)


def test_sums_and_eta() -> None:
    """Done and remaining are all; the time left follows the rate."""
    counts = CampaignCounts(1, 2, 3, 4, 5, 6)
    assert counts.finished_count + counts.remaining_count == counts.total_count == 21
    assert campaigns.eta(CampaignCounts(waiting=300), CampaignSettings(rate=300, jitter=0)) > 60
    assert campaigns.eta(CampaignCounts(ok=1), CampaignSettings()) == 0
