"""Turns by health; over all when none is well."""

from __future__ import annotations

from collections import Counter

import pytest

from fleet.nodes.balancer.rotation import BalancerTarget, Rotation, parse_flag
from fleet.protocol.destination.health import Health
from fleet.protocol.destination.picker import Candidate

H, D, U, X = Health.HEALTHY, Health.DEGRADED, Health.UNHEALTHY, Health.UNKNOWN


def rotation(*healths: Health, draining: tuple[int, ...] = (), codes: tuple[int, ...] = ()) -> Rotation:
    """Targets of these healths, whose `/readyz` answered 200, or these codes, twice; 0 is no answer."""
    made = Rotation(
        [BalancerTarget(f"t{n}", ("127.0.0.1", n), ("127.0.0.1", n)) for n in range(len(healths))]
    )
    for seat, code in zip(made.states, codes or (200,) * len(healths), strict=True):
        for _ in range(2):
            if code:
                seat.record_response(code)
            else:
                seat.record_failure("no answer in time")
    made.update(
        [
            Candidate(f"t{n}", health, is_draining=n in draining, succeeded_at=float(n))
            for n, health in enumerate(healths)
        ],
        100.0,
    )
    return made


def _probed(made: Rotation, code: int, seat: int = 1) -> None:
    """One probe of a target; 0 is no answer."""
    if code:
        made.states[seat].record_response(code)
    else:
        made.states[seat].record_failure("no answer in time")


def shares(made: Rotation, connections: int) -> Counter[str]:
    return Counter(made.order()[0].target.name for _ in range(connections))


def test_order_all_healthy_takes_turns() -> None:
    """Each target gets the same, and none twice running."""
    made = rotation(H, H, H)
    assert [made.order()[0].target.name for _ in range(6)] == ["t0", "t1", "t2"] * 2


def test_order_one_not_ready_gets_nothing_and_the_rest_share_alike() -> None:
    """It says so itself: repeated probes need not agree. The sick one's share is not its neighbour's alone."""
    made = rotation(H, H, H, H, codes=(200, 503, 200, 200))
    assert shares(made, 30) == {"t0": 10, "t2": 10, "t3": 10}
    assert [made.is_ready(seat) for seat in made.states] == [True, False, True, True]
    assert [seat.target.name for seat in made.order()][-1] == "t1"


@pytest.mark.parametrize("code", [0, 503])
def test_order_one_is_out_after_two_probes_in_a_row(code: int) -> None:
    """One that failed is a mishap, but the others are preferred until the next; a good answer ends the row."""
    made = rotation(H, H, codes=(200, code))
    assert shares(made, 4) == {"t0": 4}
    once = rotation(H, H)
    for _ in range(3):
        _probed(once, code)
        assert not once.states[1].is_out
        once.update([Candidate("t0", H), Candidate("t1", H)], 100.0)
        assert shares(once, 10) == {"t0": 7, "t1": 3}
        _probed(once, 200)
        once.update([Candidate("t0", H), Candidate("t1", H)], 100.0)
        assert shares(once, 10) == {"t0": 5, "t1": 5}


def test_order_number_of_probes_is_a_setting() -> None:
    """One is enough where that is set, and three may be needed, whatever the failures are."""
    for unready_after, codes in ((1, (503,)), (3, (503, 0, 400))):
        made = Rotation(
            [BalancerTarget("t0", ("127.0.0.1", 1), ("127.0.0.1", 2))], unready_after=unready_after
        )
        for code in codes:
            assert not made.states[0].is_out
            _probed(made, code, seat=0)
        assert made.states[0].is_out


def test_order_degraded_one_gets_what_spills_over() -> None:
    """One of two is Healthy: 1.4 times its half, evenly in time."""
    made = rotation(H, D)
    assert shares(made, 10) == {"t0": 7, "t1": 3}
    assert made.ready_count == 2


def test_order_none_ready_tries_all() -> None:
    """A doubt is not an outage: those that answer share, the last is whoever does not."""
    made = rotation(U, U, codes=(503, 503))
    assert shares(made, 4) == {"t0": 2, "t1": 2}
    assert len(made.order()) == 2
    assert made.ready_count == 0
    assert rotation(U, U, codes=(503, 0)).order()[0].target.name == "t0"


def test_order_draining_gets_nothing_whatever_else_there_is() -> None:
    """An operator said so: the sick one is tried rather, and when all drain there is none."""
    made = rotation(H, U, draining=(0,), codes=(200, 503))
    assert [seat.target.name for seat in made.order()] == ["t1"]
    assert not made.is_ready(made.states[0])
    assert rotation(H, H, draining=(0, 1)).order() == []


def test_order_before_anything_was_seen_tries_all() -> None:
    """Unknown ones are usable."""
    assert shares(rotation(X, X), 4) == {"t0": 2, "t1": 2}


def test_parse_flag_reads_both_addresses() -> None:
    """The flag's spelling."""
    assert parse_flag("a=127.0.0.1:1,[::1]:2") == BalancerTarget("a", ("127.0.0.1", 1), ("::1", 2))


@pytest.mark.parametrize(
    "text", ["a", "a=127.0.0.1:1", "=127.0.0.1:1,127.0.0.1:2", "a=127.0.0.1:1,x", "a=h:99999,h:1"]
)
def test_parse_flag_wrong_says_so(text: str) -> None:
    """Not a silent default."""
    with pytest.raises(ValueError, match="is not"):
        parse_flag(text)
