"""Which load balancer is dialled next."""

from __future__ import annotations

import random
from collections import Counter

from fleet.nodes.agent.proxy_choice import ProxyChoice

ONE, TWO = ("10.0.0.1", 3080), ("10.0.0.2", 3080)


def picks(
    choice: ProxyChoice, now: float, *, dead: tuple[str, int] | None = None
) -> Counter[tuple[str, int]]:
    """Sixty dials at that moment."""
    chances, seen = random.Random(1), Counter[tuple[str, int]]()
    for _ in range(60):
        address = choice.pick(now, chances.random())
        choice.record_dial(now, has_response=address != dead)
        seen[address] += 1
    return seen


def test_balancers_that_answer_share() -> None:
    """About half each."""
    assert min(picks(ProxyChoice([ONE, TWO], 0.0), 0.0).values()) > 20


def test_balancer_that_does_not_answer_is_left_alone_for_a_while() -> None:
    """After a few dials; then it is tried again, and is as good as the other if it answers."""
    choice = ProxyChoice([ONE, TWO], 0.0)
    assert picks(choice, 0.0, dead=TWO)[TWO] <= 3
    assert picks(choice, 5.0)[TWO] == 0
    assert picks(choice, 20.0)[TWO] > 20


def test_balancers_that_are_all_dead_are_all_tried() -> None:
    """An agent never gives up."""
    choice = ProxyChoice([ONE, TWO], 0.0)
    for _ in range(10):
        choice.pick(0.0, 0.5)
        choice.record_dial(0.0, has_response=False)
    assert choice.pick(1.0, 0.1) in (ONE, TWO)
    assert ProxyChoice([ONE], 0.0).pick(0.0, 0.9) == ONE
