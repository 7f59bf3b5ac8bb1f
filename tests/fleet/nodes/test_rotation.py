"""Round robin over the ready; over all when none is."""

from __future__ import annotations

from collections import Counter

import pytest

from fleet.nodes.rotation import Rotation, Target, parse_flag


def rotation(*ready: bool) -> Rotation:
    made = Rotation([Target(f"t{n}", ("127.0.0.1", n), ("127.0.0.1", n)) for n in range(len(ready))])
    for seat, is_ready in zip(made.seats, ready, strict=True):
        seat.status = 200 if is_ready else 503
    return made


def shares(made: Rotation, connections: int) -> Counter[str]:
    return Counter(made.order()[0].target.name for _ in range(connections))


def test_order_all_ready_shares_alike() -> None:
    """Each target gets the same."""
    assert shares(rotation(True, True, True), 30) == {"t0": 10, "t1": 10, "t2": 10}


def test_order_one_sick_gets_nothing_and_the_rest_share_alike() -> None:
    """The sick one's share is not its neighbour's alone."""
    assert shares(rotation(True, False, True, True), 30) == {"t0": 10, "t2": 10, "t3": 10}


def test_order_none_ready_tries_all() -> None:
    """A doubt is not an outage."""
    made = rotation(False, False)
    assert shares(made, 4) == {"t0": 2, "t1": 2}
    assert len(made.order()) == 2


def test_parse_flag_reads_both_addresses() -> None:
    """The flag's spelling."""
    assert parse_flag("a=127.0.0.1:1,[::1]:2") == Target("a", ("127.0.0.1", 1), ("::1", 2))


@pytest.mark.parametrize(
    "text", ["a", "a=127.0.0.1:1", "=127.0.0.1:1,127.0.0.1:2", "a=127.0.0.1:1,x", "a=h:99999,h:1"]
)
def test_parse_flag_wrong_says_so(text: str) -> None:
    """Not a silent default."""
    with pytest.raises(ValueError, match="is not"):
        parse_flag(text)
