"""Decisions of a reconnect campaign."""

from __future__ import annotations

from collections import Counter

import pytest

from fleet.vocabulary import campaigns
from fleet.vocabulary.campaigns import AgentSeen, AgentState, Counts, Pace, ProxySeen

_PROXIES = {
    "a": ProxySeen("proxy-1", True),
    "b": ProxySeen("proxy-2", True),
    "c": ProxySeen("proxy-3", False),
}


def _agent(*proxies: str, desired: int = 1) -> AgentSeen:
    return AgentSeen(frozenset(proxies), desired)


@pytest.mark.parametrize("name", list(campaigns.RANGES))
@pytest.mark.parametrize("wrong", ["", "x", "-1", "1.5", "99999999999", "²", None])
def test_wrong_pace_is_named(name: str, wrong: object) -> None:
    """A message at each field, and nothing of it is used."""
    read = campaigns.read_pace({name: wrong})
    assert "whole number" in read.problems[name]
    assert read.pace == Pace()


@pytest.mark.parametrize("wrong", ["25:00", "1:60", "noon", "1440", "-1:00", "1:2:3"])
def test_wrong_window_is_named(wrong: str) -> None:
    """Times of the day only."""
    assert "time of the day" in campaigns.read_pace({"window_from": wrong}).problems["window_from"]


def test_pace_is_read() -> None:
    """What is left out has its default; what is unknown is named."""
    read = campaigns.read_pace({"rate": "60", "window_from": "22:30", "window_to": "0"})
    assert not read.problems
    assert (read.pace.rate, read.pace.window_from, read.pace.per_proxy) == (60, 1350, Pace().per_proxy)
    assert campaigns.read_pace({"speed": 1}).problems == {"speed": "there is no such field"}


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        (_agent("a"), ""),
        (_agent("c"), ""),
        (_agent("a", "b"), "no other proxy"),
        (_agent(), "no tunnel"),
        (_agent("a", desired=2), "1 of 2"),
        (AgentSeen(frozenset("a"), 1, retired=True), "retired"),
        (None, "not in the record"),
    ],
)
def test_who_is_skipped(agent: AgentSeen | None, says: str) -> None:
    """Whoever would have less than before, with that reason."""
    why = campaigns.why_skip(agent, _PROXIES)
    assert says in why
    assert bool(why) == bool(says)


def test_tunnel_to_leave() -> None:
    """The one that is meant, else one to a sick proxy."""
    assert campaigns.tunnel_to_leave(_agent("a", "b"), _PROXIES, frozenset("b")) == "b"
    assert campaigns.tunnel_to_leave(_agent("a", "c"), _PROXIES, frozenset()) == "c"
    assert campaigns.tunnel_to_leave(_agent("a", "b"), _PROXIES, frozenset("x")) == "a"
    spread = Counter(
        campaigns.tunnel_to_leave(_agent("a", "b"), _PROXIES, frozenset(), f"agent-{n}") for n in range(200)
    )
    assert min(spread["a"], spread["b"]) > 60


@pytest.mark.parametrize(
    ("held", "agent", "age", "state"),
    [
        ("a", _agent("b"), 1, AgentState.OK),
        ("a", _agent("a", "b"), 1, AgentState.OK),
        ("a", _agent("a"), 1, None),
        ("a", _agent("a"), 60, AgentState.FAILED),
        ("a", _agent(), 1, None),
        ("a", _agent(), 60, AgentState.FAILED),
        ("a", None, 60, AgentState.FAILED),
        ("ab", _agent("b", desired=1), 1, AgentState.OK),
        ("ab", _agent("b", desired=2), 1, None),
    ],
)
def test_outcome(held: str, agent: AgentSeen | None, age: float, state: AgentState | None) -> None:
    """Moved, not yet, or too late."""
    found = campaigns.outcome(frozenset(held), "a", 100.0, agent, Pace(), 100.0 + age)
    assert (found.state if found else None) is state


def test_admission_by_rate_and_canaries() -> None:
    """Canaries at once, then nobody until they are held, then the rate; a late step makes no burst."""
    pace = Pace(rate=60, canaries=2, hold=10)

    def admit(counts: Counts, elapsed: float = 1.0, done_at: float | None = None, now: float = 100.0) -> int:
        return campaigns.admit(
            counts, pace, credit=0.0, elapsed=elapsed, canaries_done_at=done_at, now=now
        ).count

    assert admit(Counts(waiting=10)) == 2
    assert admit(Counts(waiting=1)) == 1
    assert admit(Counts(waiting=8, asked=2)) == 0
    assert admit(Counts(waiting=8, ok=2), done_at=95.0) == 0
    assert admit(Counts(waiting=8, ok=2), done_at=90.0) == 1
    assert admit(Counts(waiting=8, ok=2), elapsed=600.0, done_at=90.0) == 2
    assert admit(Counts(ok=10), done_at=90.0) == 0


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
    pace = Pace(window_from=start, window_to=end, canaries=0)
    assert campaigns.in_window(pace, minute * 60.0 + 86_400 * 3) is inside
    if not inside:
        held = campaigns.admit(
            Counts(waiting=1), pace, credit=5, elapsed=1, canaries_done_at=None, now=minute * 60.0
        )
        assert (held.count, held.credit) == (0, 0)
        assert "outside its window" in held.waits_for


def test_abort() -> None:
    """By the share of failures, once there are enough; by how many more are stranded."""
    pace = Pace(max_failed=2, max_stranded=10)

    def why(counts: Counts, stranded: int = 0) -> str:
        return campaigns.why_abort(counts, pace, stranded=stranded, stranded_before=3)

    assert not why(Counts(waiting=100, ok=1, failed=1))
    assert not why(Counts(waiting=100, ok=98, failed=2))
    assert "3 of 100" in why(Counts(waiting=100, ok=97, failed=3))
    assert "1 of 2" in why(Counts(ok=1, failed=1))
    assert not why(Counts(waiting=1), stranded=12)
    assert "10 more" in why(Counts(waiting=1), stranded=13)


def test_sums_and_eta() -> None:
    """Done and remaining are all; the time left follows the rate."""
    counts = Counts(1, 2, 3, 4, 5, 6)
    assert counts.done + counts.remaining == counts.total == 21
    assert campaigns.eta(Counts(waiting=300), Pace(rate=300, jitter=0)) > 60
    assert campaigns.eta(Counts(ok=1), Pace()) == 0
