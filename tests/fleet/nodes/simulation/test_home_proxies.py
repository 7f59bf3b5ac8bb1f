from __future__ import annotations

from collections import Counter

import pytest

from fleet.nodes.simulation.home_proxies import Homes, HomesError, assign_homes, format_homes, parse_homes


def test_homes_are_assigned_in_turn_by_default() -> None:
    """The shares are equal, and the first proxies have the remaining agents."""
    assert list(assign_homes(7, 3)) == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("agent_count", [207, 0, 9000])
def test_named_proxy_has_exactly_its_number_of_agents(agent_count: int) -> None:
    """The other proxies have equal shares of the rest."""
    counts = Counter(assign_homes(10_000, 48, (("proxy-20", agent_count),)))
    assert counts[19] == agent_count
    assert counts.total() == 10_000
    other_counts = [counts[proxy] for proxy in range(48) if proxy != 19]
    assert max(other_counts) - min(other_counts) <= 1


def test_all_proxies_may_be_named() -> None:
    """No proxy has more agents than its number."""
    assert Counter(assign_homes(5, 2, (("proxy-1", 2), ("proxy-2", 3)))) == {0: 2, 1: 3}


@pytest.mark.parametrize(
    ("homes", "message"),
    [
        ((("proxy-9", 1),), "proxy-9 does not exist: the proxies are proxy-1 to proxy-2"),
        ((("auth-1", 1),), "auth-1 does not exist"),
        ((("proxy-1", 11),), "the home proxies have 11 agents in total, but the fleet has 10"),
        ((("proxy-1", 4), ("proxy-2", 5)), "the home proxies have 9 agents in total, but the fleet has 10"),
    ],
)
def test_impossible_homes_are_explained(homes: Homes, message: str) -> None:
    """The error names the proxy or the number."""
    with pytest.raises(HomesError, match=message):
        list(assign_homes(10, 2, homes))


def test_formatted_homes_equal_the_parsed_text() -> None:
    """Spaces are removed."""
    assert parse_homes("proxy-14=207, proxy-3=10") == (("proxy-14", 207), ("proxy-3", 10))
    assert format_homes(parse_homes("proxy-14=207,proxy-3=10")) == "proxy-14=207,proxy-3=10"


@pytest.mark.parametrize("text", ["", "proxy-1", "proxy-1=", "=5", "proxy-1=-5", "proxy-1=x", "proxy-1=1,"])
def test_invalid_homes_text_is_refused(text: str) -> None:
    """The error contains the invalid part."""
    with pytest.raises(HomesError, match="is not PROXY=AGENTS"):
        parse_homes(text)


def test_duplicate_proxy_is_refused() -> None:
    """The number of agents would be ambiguous."""
    with pytest.raises(HomesError, match="proxy-1 occurs twice"):
        parse_homes("proxy-1=1,proxy-1=2")
