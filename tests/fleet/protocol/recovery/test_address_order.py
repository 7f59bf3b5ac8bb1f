"""The order in which connections try addresses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from fleet.protocol.recovery.address_order import Address, AddressOrder

A, B, C, D = [(name, 1) for name in "abcd"]
_AS_IT_IS: Callable[[list[Address]], None] = lambda addresses: None  # noqa: E731 - with a type


def test_first_connection_keeps_the_order_that_was_given() -> None:
    """As pick_first does."""
    order = AddressOrder([A, B, C])
    assert not order.has_started
    assert order.first_order() == [A, B, C]
    assert order.has_started


def test_two_addresses_take_turns() -> None:
    """No second try leads back to the address that was just left."""
    order = AddressOrder([A, B])
    assert [order.first_order()[0], *(order.next_order(Random(1).shuffle)[0] for _ in range(4))] == [
        A,
        B,
        A,
        B,
        A,
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_address_has_its_turn_before_one_is_tried_again(seed: int) -> None:
    """The address that was left last is at the end, whatever the shuffle does."""
    shuffle, order = Random(seed).shuffle, AddressOrder([A, B, C, D])
    order.first_order()
    left, fronts = A, [A]
    for _ in range(11):
        addresses = order.next_order(shuffle)
        assert sorted(addresses) == [A, B, C, D]
        assert addresses[-1] == left
        left = addresses[0]
        fronts.append(left)
    assert all(sorted(fronts[at : at + 4]) == [A, B, C, D] for at in (0, 4, 8))


def test_clients_that_leave_one_server_do_not_all_go_to_the_same_next_one() -> None:
    """Addresses that were not tried yet are mixed."""
    orders = [AddressOrder([A, B, C, D]) for _ in range(60)]
    chance = Random(7)
    for order in orders:
        order.first_order()
    seconds = [order.next_order(chance.shuffle)[0] for order in orders]
    assert set(seconds) == {B, C, D}


def test_connection_that_is_mixed_from_the_start() -> None:
    """Without a first connection nothing was left."""
    assert AddressOrder([A, B]).next_order(_AS_IT_IS) == [A, B]
    assert AddressOrder([A]).next_order(_AS_IT_IS) == [A]
