"""How an agent chooses the load balancer of its next dial."""

from __future__ import annotations

import random
from collections import Counter

from fleet.nodes.agent.proxy_choice import ProxyChoice

FIRST, SECOND = ("10.0.0.1", 3080), ("10.0.0.2", 3080)


def count_picks(
    choice: ProxyChoice, now: float, *, dead: tuple[str, int] | None = None
) -> Counter[tuple[str, int]]:
    """Return how often each address was picked in 60 dials at the moment `now`."""
    generator, counts = random.Random(1), Counter[tuple[str, int]]()
    for _ in range(60):
        address = choice.pick(now, generator.random())
        choice.record_dial(now, has_response=address != dead)
        counts[address] += 1
    return counts


def test_responding_balancers_share_dials() -> None:
    """Each gets about half of the dials."""
    assert min(count_picks(ProxyChoice([FIRST, SECOND], 0.0), 0.0).values()) > 20


def test_unresponsive_balancer_is_skipped_for_a_while() -> None:
    """The balancer is skipped after a few dials, tried again later, and gets its share again once it responds."""
    choice = ProxyChoice([FIRST, SECOND], 0.0)
    assert count_picks(choice, 0.0, dead=SECOND)[SECOND] <= 3
    assert count_picks(choice, 5.0)[SECOND] == 0
    assert count_picks(choice, 20.0)[SECOND] > 20


def test_dead_balancers_are_all_tried() -> None:
    """An agent never stops dialling."""
    choice = ProxyChoice([FIRST, SECOND], 0.0)
    for _ in range(10):
        choice.pick(0.0, 0.5)
        choice.record_dial(0.0, has_response=False)
    assert choice.pick(1.0, 0.1) in (FIRST, SECOND)
    assert ProxyChoice([FIRST], 0.0).pick(0.0, 0.9) == FIRST
