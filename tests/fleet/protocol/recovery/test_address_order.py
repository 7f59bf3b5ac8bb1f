"""The order in which connections try addresses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from fleet.protocol.recovery.address_order import Address, AddressOrder

A, B, C, D = [(name, 1) for name in "abcd"]
_UNSHUFFLED: Callable[[list[Address]], None] = lambda addresses: None  # noqa: E731 - with a type


def test_first_connection_keeps_the_given_order() -> None:
    """pick_first does the same."""
    order = AddressOrder([A, B, C])
    assert not order.has_started
    assert order.first_order() == [A, B, C]
    assert order.has_started


def test_two_addresses_alternate() -> None:
    """The next attempt never goes to the address that was just left."""
    order = AddressOrder([A, B])
    assert [order.first_order()[0], *(order.next_order(Random(1).shuffle)[0] for _ in range(4))] == [
        A,
        B,
        A,
        B,
        A,
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_address_is_tried_before_one_repeats(seed: int) -> None:
    """The address left last comes last, whatever the shuffle returns."""
    shuffle, order = Random(seed).shuffle, AddressOrder([A, B, C, D])
    order.first_order()
    previous, fronts = A, [A]
    for _ in range(11):
        addresses = order.next_order(shuffle)
        assert sorted(addresses) == [A, B, C, D]
        assert addresses[-1] == previous
        previous = addresses[0]
        fronts.append(previous)
    assert all(sorted(fronts[at : at + 4]) == [A, B, C, D] for at in (0, 4, 8))


def test_clients_of_one_server_spread_over_the_others() -> None:
    """Addresses that were not tried yet are shuffled."""
    orders = [AddressOrder([A, B, C, D]) for _ in range(60)]
    generator = Random(7)
    for order in orders:
        order.first_order()
    seconds = [order.next_order(generator.shuffle)[0] for order in orders]
    assert set(seconds) == {B, C, D}


def test_shuffled_order_without_a_first_connection() -> None:
    assert AddressOrder([A, B]).next_order(_UNSHUFFLED) == [A, B]
    assert AddressOrder([A]).next_order(_UNSHUFFLED) == [A]
