"""The order of targets by health, and of all targets if none is ready."""

from __future__ import annotations

from collections import Counter

import pytest

from fleet.nodes.balancer.rotation import BalancerTarget, Rotation, parse_flag
from fleet.protocol.destination.health import Health
from fleet.protocol.destination.picker import Candidate

H, D, U, X = Health.HEALTHY, Health.DEGRADED, Health.UNHEALTHY, Health.UNKNOWN


def make_rotation(
    *healths: Health, draining_positions: tuple[int, ...] = (), codes: tuple[int, ...] = ()
) -> Rotation:
    """Return a rotation of targets with these healths whose `/readyz` returned 200, or these codes, twice.

    The code 0 stands for no response.
    """
    rotation = Rotation(
        [BalancerTarget(f"t{n}", ("127.0.0.1", n), ("127.0.0.1", n)) for n in range(len(healths))]
    )
    for state, code in zip(rotation.states, codes or (200,) * len(healths), strict=True):
        for _ in range(2):
            if code:
                state.record_response(code)
            else:
                state.record_failure("no answer in time")
    rotation.update(
        [
            Candidate(f"t{n}", health, is_draining=n in draining_positions, succeeded_at=float(n))
            for n, health in enumerate(healths)
        ],
        100.0,
    )
    return rotation


def _record_probe(rotation: Rotation, code: int, position: int = 1) -> None:
    """Record one probe of a target; 0 is no response."""
    if code:
        rotation.states[position].record_response(code)
    else:
        rotation.states[position].record_failure("no answer in time")


def count_shares(rotation: Rotation, connections: int) -> Counter[str]:
    return Counter(rotation.next_order()[0].target.name for _ in range(connections))


def test_healthy_targets_take_turns() -> None:
    """Every target gets the same share, and no target twice in a row."""
    rotation = make_rotation(H, H, H)
    assert [rotation.next_order()[0].target.name for _ in range(6)] == ["t0", "t1", "t2"] * 2


def test_target_that_is_not_ready_gets_no_share() -> None:
    """A target's own 503 counts at once, and the other targets share its part equally."""
    rotation = make_rotation(H, H, H, H, codes=(200, 503, 200, 200))
    assert count_shares(rotation, 30) == {"t0": 10, "t2": 10, "t3": 10}
    assert [rotation.is_ready(state) for state in rotation.states] == [True, False, True, True]
    assert [state.target.name for state in rotation.next_order()][-1] == "t1"


@pytest.mark.parametrize("code", [0, 503])
def test_target_leaves_rotation_after_two_failed_probes_in_a_row(code: int) -> None:
    """After one failed probe other targets are preferred; a successful probe ends the row."""
    rotation = make_rotation(H, H, codes=(200, code))
    assert count_shares(rotation, 4) == {"t0": 4}
    second_rotation = make_rotation(H, H)
    for _ in range(3):
        _record_probe(second_rotation, code)
        assert not second_rotation.states[1].is_out_of_rotation
        second_rotation.update([Candidate("t0", H), Candidate("t1", H)], 100.0)
        assert count_shares(second_rotation, 10) == {"t0": 7, "t1": 3}
        _record_probe(second_rotation, 200)
        second_rotation.update([Candidate("t0", H), Candidate("t1", H)], 100.0)
        assert count_shares(second_rotation, 10) == {"t0": 5, "t1": 5}


def test_number_of_failed_probes_is_configurable() -> None:
    """One failed probe or three, of any kind, take a target out of the rotation."""
    for unready_after, codes in ((1, (503,)), (3, (503, 0, 400))):
        rotation = Rotation(
            [BalancerTarget("t0", ("127.0.0.1", 1), ("127.0.0.1", 2))], unready_after=unready_after
        )
        for code in codes:
            assert not rotation.states[0].is_out_of_rotation
            _record_probe(rotation, code, position=0)
        assert rotation.states[0].is_out_of_rotation


def test_degraded_target_gets_a_smaller_share() -> None:
    """The healthy one of two targets gets 1.4 times its half, evenly in time."""
    rotation = make_rotation(H, D)
    assert count_shares(rotation, 10) == {"t0": 7, "t1": 3}
    assert rotation.ready_count == 2


def test_all_targets_are_tried_if_none_is_ready() -> None:
    """Targets that respond share the connections; a target that does not respond is last."""
    rotation = make_rotation(U, U, codes=(503, 503))
    assert count_shares(rotation, 4) == {"t0": 2, "t1": 2}
    assert len(rotation.next_order()) == 2
    assert rotation.ready_count == 0
    assert make_rotation(U, U, codes=(503, 0)).next_order()[0].target.name == "t0"


def test_draining_target_gets_nothing_even_if_others_are_unhealthy() -> None:
    """An unhealthy target is preferred, and there is no target if all drain."""
    rotation = make_rotation(H, U, draining_positions=(0,), codes=(200, 503))
    assert [state.target.name for state in rotation.next_order()] == ["t1"]
    assert not rotation.is_ready(rotation.states[0])
    assert make_rotation(H, H, draining_positions=(0, 1)).next_order() == []


def test_unknown_targets_share_before_the_first_probe() -> None:
    """Targets of unknown health are usable."""
    assert count_shares(make_rotation(X, X), 4) == {"t0": 2, "t1": 2}


def test_flag_has_target_and_diag_address() -> None:
    """The flag is NAME=HOST:PORT,DIAG_HOST:PORT, also for IPv6."""
    assert parse_flag("a=127.0.0.1:1,[::1]:2") == BalancerTarget("a", ("127.0.0.1", 1), ("::1", 2))


@pytest.mark.parametrize(
    "text", ["a", "a=127.0.0.1:1", "=127.0.0.1:1,127.0.0.1:2", "a=127.0.0.1:1,x", "a=h:99999,h:1"]
)
def test_invalid_flag_is_refused(text: str) -> None:
    """An invalid flag raises an error instead of a default."""
    with pytest.raises(ValueError, match="is not"):
        parse_flag(text)
