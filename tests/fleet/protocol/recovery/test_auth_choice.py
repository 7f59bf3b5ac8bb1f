"""Which auth a proxy heartbeats through next."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from fleet.protocol.recovery.auth_choice import AuthChoice, most_requests, time_limit

A, B, C = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"


def draws(*chances: float) -> Callable[[], float]:
    """Return these numbers in turn, again and again."""
    return itertools.cycle(chances).__next__


def choice_of(*addresses: str) -> AuthChoice:
    choice = AuthChoice()
    choice.update(addresses)
    return choice


def test_auths_are_drawn_at_random_before_the_first_heartbeat() -> None:
    """Proxies that start together spread over the auths."""
    choice = choice_of(A, B, C)
    assert choice.order(0.0, draws(0.3, 0.1, 0.2)) == (B, C, A)
    assert choice.order(0.0, draws(0.1, 0.2, 0.3)) == (A, B, C)


def test_auth_that_took_the_last_heartbeat_comes_first() -> None:
    """The connection is kept as long as it serves."""
    choice = choice_of(A, B, C)
    choice.record_success(B, 0.0, 0.5, is_closing=False)
    assert choice.order(1e9, draws(0.1, 0.9, 0.2)) == (B, A, C)


def test_auth_that_closes_the_connection_comes_last() -> None:
    """It took the heartbeat, and the next one goes elsewhere; with nobody else it is asked again."""
    choice = choice_of(A, B)
    choice.record_success(A, 0.0, 0.5, is_closing=True)
    assert choice.current is None
    assert choice.order(0.0, draws(0.1, 0.9)) == (B, A)
    alone = choice_of(A)
    alone.record_success(A, 0.0, 0.5, is_closing=True)
    assert alone.order(0.0, draws(0.5)) == (A,)


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 0.5), (0.5, 1.0), (0.999, 1.499)])
def test_auth_that_failed_comes_last_for_a_while(chance: float, wait: float) -> None:
    """About a second, with jitter, so that proxies do not come back together."""
    choice = choice_of(A, B)
    choice.record_success(A, 0.0, 0.5, is_closing=False)
    choice.record_failure(A, 100.0, chance)
    assert choice.order(100.0 + wait - 0.01, draws(0.1, 0.9)) == (B, A)
    assert choice.order(100.0 + wait + 0.01, draws(0.1, 0.9)) == (A, B)


def test_auth_that_goes_on_failing_is_avoided_for_longer() -> None:
    """Twice as long each time, a minute and a half at most, and a success ends it."""
    choice = choice_of(A, B)
    for failures in range(1, 12):
        choice.record_failure(A, 0.0, 0.5)
        until = min(2.0 ** (failures - 1), 60.0)
        assert choice.order(until - 0.01, draws(0.1, 0.9)) == (B, A)
        assert choice.order(until, draws(0.1, 0.9)) == (A, B)
    choice.record_success(A, 0.0, 0.5, is_closing=False)
    choice.record_failure(A, 0.0, 0.5)
    assert choice.order(1.0, draws(0.1, 0.9)) == (A, B)


def test_auths_that_all_failed_are_all_tried() -> None:
    """The one whose time is over first comes first: no doubt becomes an outage."""
    choice = choice_of(A, B, C)
    for address, chance in ((A, 0.9), (B, 0.1), (C, 0.5)):
        choice.record_failure(address, 0.0, chance)
    assert choice.order(0.0, draws(0.5)) == (B, C, A)


def test_addresses_follow_the_list() -> None:
    """A new one is known at once, one that left is forgotten, and an empty list changes nothing."""
    choice = choice_of(A, B)
    choice.record_success(A, 0.0, 0.5, is_closing=False)
    choice.update([B, C, C])
    assert choice.current is None
    assert choice.order(0.0, draws(0.1, 0.2)) == (B, C)
    choice.record_failure(B, 0.0, 0.5)
    choice.update([])
    assert choice.order(0.0, draws(0.1, 0.2)) == (C, B)
    assert AuthChoice().order(0.0, draws(0.5)) == ()


def test_only_address_is_tried_twice() -> None:
    """It may be a load balancer, which leads the second connection elsewhere."""
    assert choice_of(A).attempts(0.0, draws(0.5), 3) == (A, A)
    assert choice_of(A, B, C).attempts(0.0, draws(0.1, 0.2, 0.3), 2) == (A, B)
    assert AuthChoice().attempts(0.0, draws(0.5), 3) == ()


@pytest.mark.parametrize(
    ("ttl", "limit", "most"), [(0.1, 1.0, 2), (1.0, 1.0, 2), (10.0, 1.0, 3), (20.0, 2.0, 3), (600.0, 5.0, 36)]
)
def test_one_heartbeat_is_bounded(ttl: float, limit: float, most: int) -> None:
    """Two auths are tried at least; with a TTL that allows it all of them end before the resource does."""
    assert time_limit(ttl) == limit
    assert most_requests(ttl) == most
    if ttl >= 10:
        assert most * limit < 0.4 * ttl
