from __future__ import annotations

from collections import Counter

import pytest

from fleet.nodes.simulation.home_proxies import Homes, HomesError, assign_homes, format_homes, parse


def test_deal_none_named_is_in_turn() -> None:
    """Blocks are even, and the first ones take what is left over."""
    assert list(assign_homes(7, 3)) == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("asked", [207, 0, 9000])
def test_deal_named_proxy_has_exactly_as_many(asked: int) -> None:
    """The rest is dealt evenly to the others."""
    counts = Counter(assign_homes(10_000, 48, (("proxy-20", asked),)))
    assert counts[19] == asked
    assert counts.total() == 10_000
    others = [counts[proxy] for proxy in range(48) if proxy != 19]
    assert max(others) - min(others) <= 1


def test_deal_all_named_leaves_none_over() -> None:
    """Nobody has a home that was not asked for."""
    assert Counter(assign_homes(5, 2, (("proxy-1", 2), ("proxy-2", 3)))) == {0: 2, 1: 3}


@pytest.mark.parametrize(
    ("homes", "says"),
    [
        ((("proxy-9", 1),), "proxy-9 does not exist: the proxies are proxy-1 to proxy-2"),
        ((("auth-1", 1),), "auth-1 does not exist"),
        ((("proxy-1", 11),), "the home proxies have 11 agents in total, but the fleet has 10"),
        ((("proxy-1", 4), ("proxy-2", 5)), "the home proxies have 9 agents in total, but the fleet has 10"),
    ],
)
def test_deal_what_cannot_be_is_a_sentence(homes: Homes, says: str) -> None:
    """Which proxy or which number is wrong."""
    with pytest.raises(HomesError, match=says):
        list(assign_homes(10, 2, homes))


def test_parse_reads_what_written_writes() -> None:
    """There and back."""
    assert parse("proxy-14=207, proxy-3=10") == (("proxy-14", 207), ("proxy-3", 10))
    assert format_homes(parse("proxy-14=207,proxy-3=10")) == "proxy-14=207,proxy-3=10"


@pytest.mark.parametrize("text", ["", "proxy-1", "proxy-1=", "=5", "proxy-1=-5", "proxy-1=x", "proxy-1=1,"])
def test_parse_anything_else_is_refused(text: str) -> None:
    """The part that is wrong is shown."""
    with pytest.raises(HomesError, match="is not PROXY=AGENTS"):
        parse(text)


def test_parse_same_proxy_twice_is_refused() -> None:
    """Which of the two would count?"""
    with pytest.raises(HomesError, match="proxy-1 occurs twice"):
        parse("proxy-1=1,proxy-1=2")
