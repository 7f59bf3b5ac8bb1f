from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.protocol.destination.health import Health
from fleet.protocol.destination.picker import (
    DEFAULTS,
    Candidate,
    Pick,
    Picker,
    PickReason,
    Settings,
    with_headroom,
)

#: No guard that would ever be reached.
UNGUARDED = replace(DEFAULTS, guard=1_000.0)


def fleet(healthy: int, degraded: int, unhealthy: int, unknown: int = 0) -> list[Candidate]:
    """So many of each."""
    counts = {
        Health.HEALTHY: healthy,
        Health.DEGRADED: degraded,
        Health.UNHEALTHY: unhealthy,
        Health.UNKNOWN: unknown,
    }
    return [
        Candidate(f"{health}-{number}", health) for health, count in counts.items() for number in range(count)
    ]


def share(picker: Picker, kind: Health) -> float:
    """What all of a kind get, percent."""
    return 100 * sum(got for name, got in picker.shares.items() if name.startswith(f"{kind}-"))


@pytest.mark.parametrize(
    ("counts", "healthy", "degraded"),
    [
        ((100, 0, 0), 100, 0),
        ((71, 0, 29), 100, 0),
        ((71, 29, 0), 99, 1),
        ((25, 65, 10), 35, 65),
        ((5, 0, 95), 100, 0),
        ((50, 20, 30), 72, 28),
        ((0, 10, 90), 0, 100),
    ],
)
def test_shares_are_those_of_envoys_table(counts: tuple[int, int, int], healthy: int, degraded: int) -> None:
    """Its documentation's rows, and two of ours that its integer arithmetic gives: within its rounding."""
    picker = Picker(fleet(*counts), now=0.0, settings=UNGUARDED)
    assert share(picker, Health.HEALTHY) == pytest.approx(healthy, abs=1)
    assert share(picker, Health.DEGRADED) == pytest.approx(degraded, abs=1)
    assert share(picker, Health.UNHEALTHY) == 0


def test_guard_keeps_the_last_healthy_ones_from_taking_all() -> None:
    """Five of a hundred: three times their load each, and the rest is tried elsewhere."""
    picker = Picker(fleet(5, 0, 95), now=0.0)
    assert share(picker, Health.HEALTHY) == pytest.approx(15)
    assert max(picker.shares.values()) == pytest.approx(0.03)


def test_guard_never_turns_a_small_cluster_to_its_dead() -> None:
    """One of three left takes all."""
    assert Picker(fleet(1, 0, 2), now=0.0).shares == {"healthy-0": 1.0}


def test_guard_leaves_no_cliff_as_destinations_fail_one_by_one() -> None:
    """With each one lost, no other's load moves by more than a tenth of a fair share."""
    before = Picker(fleet(100, 0, 0), now=0.0)
    for lost in range(1, 101):
        after = Picker(fleet(100 - lost, 0, lost), now=0.0)
        for number in range(100 - lost):
            name = f"healthy-{number}"
            assert abs(after.shares[name] - before.shares[name]) <= 0.001
        before = after


def test_healthy_fewer_than_the_minimum_spill_over() -> None:
    """Four of five are no few by share, but of five that are wanted they are."""
    picker = Picker(fleet(4, 1, 0), now=0.0, settings=Settings(min_healthy=5))
    assert share(picker, Health.DEGRADED) == pytest.approx(20)
    assert share(Picker(fleet(4, 1, 0), now=0.0), Health.DEGRADED) == 0


def test_panic_tries_those_first_that_were_well_last() -> None:
    """All are Unhealthy: half of them take all, and those never seen well nothing."""
    lost = [Candidate(f"d{at}", Health.UNHEALTHY, succeeded_at=float(at)) for at in range(3)]
    picker = Picker([*lost, Candidate("never", Health.UNHEALTHY)], now=10.0)
    assert picker.shares == pytest.approx({"d2": 0.5, "d1": 0.5})
    assert picker.pick(0.0) == Pick("d2", PickReason.PANIC)


def test_unknown_ones_stand_where_settings_say() -> None:
    """With Degraded ones, after them, or with Healthy ones where nobody probes."""
    known = fleet(1, 1, 0, unknown=8)
    with_degraded = Picker(known, now=0.0)
    assert with_degraded.shares["unknown-0"] == pytest.approx(with_degraded.shares["degraded-0"])
    alone = Picker(known, now=0.0, settings=Settings(unknown_tier=Health.UNKNOWN))
    assert alone.shares["degraded-0"] == pytest.approx(0.14)
    assert alone.shares["unknown-0"] == pytest.approx(0.09)
    trusted = Picker(known, now=0.0, settings=Settings(unknown_tier=Health.HEALTHY))
    assert "degraded-0" not in trusted.shares
    assert trusted.shares["unknown-0"] == pytest.approx(1 / 9)


def test_slow_start_ramps_up_from_its_floor() -> None:
    """A tenth at first, half at half time, all from then on."""
    slow = Settings(slow_start=10.0)
    fresh = Candidate("fresh", Health.HEALTHY, healthy_since=100.0)
    others = fleet(9, 0, 0)
    for at, ratio in ((90.0, 0.1), (100.0, 0.1), (105.0, 0.5), (110.0, 1.0), (500.0, 1.0)):
        shares = Picker([fresh, *others], at, slow).shares
        assert shares["fresh"] / shares["healthy-0"] == pytest.approx(ratio)


def test_slow_start_of_all_at_once_changes_nothing() -> None:
    """A whole fleet that starts shares alike."""
    fresh = [Candidate(name, Health.HEALTHY, healthy_since=0.0) for name in "abc"]
    shares = Picker(fresh, 0.0, Settings(slow_start=10.0)).shares
    assert list(shares.values()) == pytest.approx([1 / 3] * 3)


def test_draining_gets_no_new_sessions_and_keeps_its_own() -> None:
    """Also when it is the only one that is well: someone asked for that."""
    known = [Candidate("leaving", Health.HEALTHY, is_draining=True), Candidate("sick", Health.UNHEALTHY)]
    picker = Picker(known, now=0.0)
    assert picker.pick(0.5) == Pick("sick", PickReason.PANIC)
    assert picker.keep("leaving", 0.5) == Pick("leaving", PickReason.AFFINITY)
    alone = Picker(known[:1], now=0.0)
    assert alone.pick(0.5) is None
    assert alone.keep("gone", 0.5) is None


def test_affinity_reaches_degraded_and_leaves_unhealthy() -> None:
    """A session stays where it is as long as something may answer there."""
    picker = Picker(fleet(9, 1, 1, unknown=1), now=0.0)
    assert picker.keep("degraded-0", 0.0) == Pick("degraded-0", PickReason.AFFINITY)
    assert picker.keep("unknown-0", 0.0) == Pick("unknown-0", PickReason.AFFINITY)
    assert picker.keep("unhealthy-0", 0.0) == Pick("healthy-0", PickReason.HEALTHY)
    assert picker.keep("forgotten", 0.0) == Pick("healthy-0", PickReason.HEALTHY)


def test_pick_without_some() -> None:
    """The others keep their shares among themselves; when none is left there is no pick."""
    picker = Picker(fleet(3, 0, 1), now=0.0)
    without = {"healthy-0"}
    assert [picker.pick(chance, without) for chance in (0.0, 0.49, 0.51, 0.99)] == [
        Pick("healthy-1", PickReason.HEALTHY),
        Pick("healthy-1", PickReason.HEALTHY),
        Pick("healthy-2", PickReason.HEALTHY),
        Pick("healthy-2", PickReason.HEALTHY),
    ]
    assert picker.pick(0.5, {"healthy-0", "healthy-1", "healthy-2"}) is None


def test_picks_follow_the_shares() -> None:
    """Evenly spread chances find each as often as its share says."""
    picker = Picker(fleet(2, 2, 0), now=0.0)
    picks = [picker.pick(at / 1_000) for at in range(1_000)]
    for name, wanted in picker.shares.items():
        assert abs(sum(one is not None and one.name == name for one in picks) - 1_000 * wanted) <= 1


def test_nobody_there_is_nobody_picked() -> None:
    """No candidate, no pick, no error."""
    assert Picker([], now=0.0).pick(0.5) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"guard": 0.5},
        {"overprovisioning": float("nan")},
        {"slow_start_from": 0.0},
        {"unknown_tier": Health.UNHEALTHY},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    """A guard below the fair share would leave requests to nobody."""
    with pytest.raises(ValueError, match=r"at least 1|above 0|must be Healthy"):
        replace(DEFAULTS, **wrong)  # type: ignore[arg-type]


def test_candidates_that_cannot_be_are_refused() -> None:
    """Weights without sense, and names that stand for two."""
    with pytest.raises(ValueError, match="weight of a"):
        Candidate("a", Health.HEALTHY, weight=float("nan"))
    with pytest.raises(ValueError, match="same name"):
        Picker([Candidate("a", Health.HEALTHY)] * 2, now=0.0)


def test_degraded_ones_of_less_weight_get_less() -> None:
    """Two of three are Degraded: at half their weight they are half of what they were beside the Healthy one."""
    known = fleet(1, 2, 0)
    whole, half = Picker(known, 0.0), Picker(known, 0.0, replace(DEFAULTS, degraded_weight=0.5))
    assert (share(whole, Health.HEALTHY), share(whole, Health.DEGRADED)) == pytest.approx(
        (46.67, 53.33), abs=0.01
    )
    assert (share(half, Health.HEALTHY), share(half, Health.DEGRADED)) == pytest.approx((50, 50))
    one = replace(known[1], degraded_weight=0.25)
    mixed = Picker([known[0], one, known[2]], 0.0)
    assert mixed.shares[known[2].name] == pytest.approx(4 * mixed.shares[one.name])


def test_degraded_ones_of_less_weight_take_all_when_there_is_nobody_else() -> None:
    """A percentage is a preference, not a limit."""
    picker = Picker(fleet(0, 2, 0), 0.0, replace(DEFAULTS, degraded_weight=0.1))
    assert share(picker, Health.DEGRADED) == pytest.approx(100)


def test_headroom_that_is_not_known_is_no_guard() -> None:
    """The last of ten takes all; with a headroom of 2 a fifth, and the dead are tried."""
    known = fleet(1, 0, 9)
    assert share(Picker(known, 0.0, with_headroom(DEFAULTS, None)), Health.HEALTHY) == pytest.approx(100)
    assert share(Picker(known, 0.0, with_headroom(DEFAULTS, 2.0)), Health.HEALTHY) == pytest.approx(20)


candidates = st.builds(
    Candidate,
    name=st.uuids().map(str),
    health=st.sampled_from(Health),
    weight=st.sampled_from([0.1, 1.0, 2.5, 100.0]),
    is_draining=st.booleans(),
    healthy_since=st.none() | st.floats(-100, 100),
    succeeded_at=st.none() | st.integers(0, 3).map(float),
    degraded_weight=st.sampled_from([None, 0.2, 1.0]),
)
choices = st.builds(
    Settings,
    overprovisioning=st.floats(1, 3),
    min_healthy=st.integers(1, 4),
    guard=st.floats(1, 5),
    panic_guard=st.floats(1, 5),
    unknown_tier=st.sampled_from([Health.HEALTHY, Health.DEGRADED, Health.UNKNOWN]),
    slow_start=st.sampled_from([0.0, 30.0]),
    degraded_weight=st.sampled_from([0.5, 1.0]),
)


@settings(max_examples=150, deadline=None)
@given(known=st.lists(candidates, max_size=12), chosen=choices, chance=st.floats(0, 1, exclude_max=True))
def test_laws_of_shares(known: list[Candidate], chosen: Settings, chance: float) -> None:
    """All is given to those who take it, the guard holds while another has room, and a panic needs a reason."""
    picker = Picker(known, 0.0, chosen)
    takers = {one.name: one for one in known if not one.is_draining}
    assert bool(takers) == bool(picker.shares)
    assert set(picker.shares) <= set(takers)
    if not takers:
        return
    assert sum(picker.shares.values()) == pytest.approx(1)
    picked = picker.pick(chance)
    assert picked is not None
    assert picked.name in picker.shares
    total = sum(one.weight for one in takers.values())
    load = {name: got * total / takers[name].weight for name, got in picker.shares.items()}
    untouched = [one for one in takers.values() if one.name not in picker.shares]
    if any(one.health is Health.UNHEALTHY for one in untouched):
        for name, times in load.items():
            most = chosen.panic_guard if takers[name].health is Health.UNHEALTHY else chosen.guard
            assert times <= most * 1.000001
    panicking = any(takers[name].health is Health.UNHEALTHY for name in picker.shares)
    if panicking and chosen.slow_start == 0:
        usable = [one.name for one in takers.values() if one.health is not Health.UNHEALTHY]
        for name in usable:
            one = takers[name]
            part = chosen.degraded_weight if one.degraded_weight is None else one.degraded_weight
            most = chosen.guard * (part if one.health is Health.DEGRADED else 1)
            assert load.get(name, 0) >= most * 0.999999
