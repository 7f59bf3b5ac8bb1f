"""The order of auths for a proxy's next heartbeat."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from fleet.protocol.recovery.auth_choice import AuthChoice, max_requests, request_timeout

A, B, C = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"


def draws(*chances: float) -> Callable[[], float]:
    """Return a function that returns these numbers in turn, repeatedly."""
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


def test_auth_of_the_last_heartbeat_comes_first() -> None:
    """The connection is kept while it works."""
    choice = choice_of(A, B, C)
    choice.record_success(B, 0.0, 0.5, is_closing=False)
    assert choice.order(1e9, draws(0.1, 0.9, 0.2)) == (B, A, C)


def test_closing_auth_comes_last() -> None:
    """It took the heartbeat, and the next one goes elsewhere; a single auth is used again."""
    choice = choice_of(A, B)
    choice.record_success(A, 0.0, 0.5, is_closing=True)
    assert choice.current_address is None
    assert choice.order(0.0, draws(0.1, 0.9)) == (B, A)
    single = choice_of(A)
    single.record_success(A, 0.0, 0.5, is_closing=True)
    assert single.order(0.0, draws(0.5)) == (A,)


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 0.5), (0.5, 1.0), (0.999, 1.499)])
def test_failed_auth_comes_last_for_a_while(chance: float, wait: float) -> None:
    """The time is about 1 s with jitter, so that proxies do not return together."""
    choice = choice_of(A, B)
    choice.record_success(A, 0.0, 0.5, is_closing=False)
    choice.record_failure(A, 100.0, chance)
    assert choice.order(100.0 + wait - 0.01, draws(0.1, 0.9)) == (B, A)
    assert choice.order(100.0 + wait + 0.01, draws(0.1, 0.9)) == (A, B)


def test_auth_that_keeps_failing_is_avoided_for_longer() -> None:
    """The time doubles up to 90 s; a success ends it."""
    choice = choice_of(A, B)
    for failures in range(1, 12):
        choice.record_failure(A, 0.0, 0.5)
        until = min(2.0 ** (failures - 1), 60.0)
        assert choice.order(until - 0.01, draws(0.1, 0.9)) == (B, A)
        assert choice.order(until, draws(0.1, 0.9)) == (A, B)
    choice.record_success(A, 0.0, 0.5, is_closing=False)
    choice.record_failure(A, 0.0, 0.5)
    assert choice.order(1.0, draws(0.1, 0.9)) == (A, B)


def test_failed_auths_are_tried_if_all_failed() -> None:
    """The one whose penalty ends first comes first."""
    choice = choice_of(A, B, C)
    for address, chance in ((A, 0.9), (B, 0.1), (C, 0.5)):
        choice.record_failure(address, 0.0, chance)
    assert choice.order(0.0, draws(0.5)) == (B, C, A)


def test_addresses_follow_updates() -> None:
    """New addresses are used, missing ones dropped; an empty list changes nothing."""
    choice = choice_of(A, B)
    choice.record_success(A, 0.0, 0.5, is_closing=False)
    choice.update([B, C, C])
    assert choice.current_address is None
    assert choice.order(0.0, draws(0.1, 0.2)) == (B, C)
    choice.record_failure(B, 0.0, 0.5)
    choice.update([])
    assert choice.order(0.0, draws(0.1, 0.2)) == (C, B)
    assert AuthChoice().order(0.0, draws(0.5)) == ()


def test_only_address_is_tried_twice() -> None:
    """It may be a load balancer that leads the second connection elsewhere."""
    assert choice_of(A).addresses_to_try(0.0, draws(0.5), 3) == (A, A)
    assert choice_of(A, B, C).addresses_to_try(0.0, draws(0.1, 0.2, 0.3), 2) == (A, B)
    assert AuthChoice().addresses_to_try(0.0, draws(0.5), 3) == ()


@pytest.mark.parametrize(
    ("ttl", "expected_limit", "expected_requests"),
    [(0.1, 1.0, 2), (1.0, 1.0, 2), (10.0, 1.0, 3), (20.0, 2.0, 3), (600.0, 5.0, 36)],
)
def test_heartbeat_has_time_and_request_limits(
    ttl: float, expected_limit: float, expected_requests: int
) -> None:
    """At least two auths are tried; with a long TTL all attempts end before the resource expires."""
    assert request_timeout(ttl) == expected_limit
    assert max_requests(ttl) == expected_requests
    if ttl >= 10:
        assert expected_requests * expected_limit < 0.4 * ttl
