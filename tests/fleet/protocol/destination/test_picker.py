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
    PickerSettings,
    PickReason,
    with_headroom,
)

GUARDED = replace(DEFAULTS, guard=3.0)


def candidates_of(
    healthy_count: int, degraded_count: int, unhealthy_count: int, unknown_count: int = 0
) -> list[Candidate]:
    """Return as many candidates of each health."""
    counts = {
        Health.HEALTHY: healthy_count,
        Health.DEGRADED: degraded_count,
        Health.UNHEALTHY: unhealthy_count,
        Health.UNKNOWN: unknown_count,
    }
    return [
        Candidate(f"{health}-{number}", health) for health, count in counts.items() for number in range(count)
    ]


def share(picker: Picker, health: Health) -> float:
    """Return the total share of the candidates of a health, in percent."""
    return 100 * sum(part for name, part in picker.shares.items() if name.startswith(f"{health}-"))


@pytest.mark.parametrize(
    ("counts", "healthy_share", "degraded_share"),
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
def test_shares_match_envoys_table(
    counts: tuple[int, int, int], healthy_share: int, degraded_share: int
) -> None:
    """The rows of Envoy's documentation, and two more by its arithmetic, within its rounding."""
    picker = Picker(candidates_of(*counts), now=0.0)
    assert share(picker, Health.HEALTHY) == pytest.approx(healthy_share, abs=1)
    assert share(picker, Health.DEGRADED) == pytest.approx(degraded_share, abs=1)
    assert share(picker, Health.UNHEALTHY) == 0


def test_guard_limits_the_last_healthy_destinations() -> None:
    """Five of 100 get three times their fair share each; the rest goes to others."""
    picker = Picker(candidates_of(5, 0, 95), now=0.0, settings=GUARDED)
    assert share(picker, Health.HEALTHY) == pytest.approx(15)
    assert max(picker.shares.values()) == pytest.approx(0.03)


def test_guard_has_no_effect_in_a_small_cluster() -> None:
    """The last of three takes all requests."""
    assert Picker(candidates_of(1, 0, 2), now=0.0, settings=GUARDED).shares == {"healthy-0": 1.0}


def test_guard_applies_gradually_as_destinations_fail() -> None:
    """With each failure the load of the others changes by at most a tenth of a fair share."""
    before = Picker(candidates_of(100, 0, 0), now=0.0, settings=GUARDED)
    for lost_count in range(1, 101):
        after = Picker(candidates_of(100 - lost_count, 0, lost_count), now=0.0, settings=GUARDED)
        for number in range(100 - lost_count):
            name = f"healthy-{number}"
            assert abs(after.shares[name] - before.shares[name]) <= 0.001
        before = after


def test_no_guard_is_the_default() -> None:
    """The last of a hundred takes all requests: nobody said how much it can take."""
    assert Picker(candidates_of(1, 0, 99), now=0.0).shares == {"healthy-0": 1.0}


def test_fewer_healthy_than_the_minimum_spill_over() -> None:
    """Four of five is a high share, but below a minimum of five."""
    picker = Picker(candidates_of(4, 1, 0), now=0.0, settings=PickerSettings(min_healthy=5))
    assert share(picker, Health.DEGRADED) == pytest.approx(20)
    assert share(Picker(candidates_of(4, 1, 0), now=0.0), Health.DEGRADED) == 0


def test_panic_prefers_the_last_healthy() -> None:
    """If all are Unhealthy, the half that succeeded last takes all requests."""
    unhealthy = [Candidate(f"d{at}", Health.UNHEALTHY, succeeded_at=float(at)) for at in range(3)]
    picker = Picker([*unhealthy, Candidate("never", Health.UNHEALTHY)], now=10.0)
    assert picker.shares == pytest.approx({"d2": 0.5, "d1": 0.5})
    assert picker.pick(0.0) == Pick("d2", PickReason.PANIC)


def test_unknown_tier_is_a_setting() -> None:
    """Unknown destinations rank with Degraded ones, after them, or with Healthy ones."""
    candidates = candidates_of(1, 1, 0, unknown_count=8)
    with_degraded = Picker(candidates, now=0.0)
    assert with_degraded.shares["unknown-0"] == pytest.approx(with_degraded.shares["degraded-0"])
    separate = Picker(candidates, now=0.0, settings=PickerSettings(unknown_tier=Health.UNKNOWN))
    assert separate.shares["degraded-0"] == pytest.approx(0.14)
    assert separate.shares["unknown-0"] == pytest.approx(0.09)
    trusted = Picker(candidates, now=0.0, settings=PickerSettings(unknown_tier=Health.HEALTHY))
    assert "degraded-0" not in trusted.shares
    assert trusted.shares["unknown-0"] == pytest.approx(1 / 9)


def test_slow_start_ramps_up_from_its_floor() -> None:
    """A tenth at first, half at half time, everything afterwards."""
    slow = PickerSettings(slow_start=10.0)
    fresh = Candidate("fresh", Health.HEALTHY, healthy_since=100.0)
    other_candidates = candidates_of(9, 0, 0)
    for at, ratio in ((90.0, 0.1), (100.0, 0.1), (105.0, 0.5), (110.0, 1.0), (500.0, 1.0)):
        shares = Picker([fresh, *other_candidates], at, slow).shares
        assert shares["fresh"] / shares["healthy-0"] == pytest.approx(ratio)


def test_slow_start_of_all_destinations_has_no_effect() -> None:
    fresh = [Candidate(name, Health.HEALTHY, healthy_since=0.0) for name in "abc"]
    shares = Picker(fresh, 0.0, PickerSettings(slow_start=10.0)).shares
    assert list(shares.values()) == pytest.approx([1 / 3] * 3)


def test_draining_gets_no_new_sessions_and_keeps_its_own() -> None:
    """That holds even if it is the only Healthy destination."""
    candidates = [Candidate("leaving", Health.HEALTHY, is_draining=True), Candidate("sick", Health.UNHEALTHY)]
    picker = Picker(candidates, now=0.0)
    assert picker.pick(0.5) == Pick("sick", PickReason.PANIC)
    assert picker.keep("leaving", 0.5) == Pick("leaving", PickReason.AFFINITY)
    separate = Picker(candidates[:1], now=0.0)
    assert separate.pick(0.5) is None
    assert separate.keep("gone", 0.5) is None


def test_affinity_keeps_degraded_but_not_unhealthy() -> None:
    """A session stays while its destination may respond."""
    picker = Picker(candidates_of(9, 1, 1, unknown_count=1), now=0.0)
    assert picker.keep("degraded-0", 0.0) == Pick("degraded-0", PickReason.AFFINITY)
    assert picker.keep("unknown-0", 0.0) == Pick("unknown-0", PickReason.AFFINITY)
    assert picker.keep("unhealthy-0", 0.0) == Pick("healthy-0", PickReason.HEALTHY)
    assert picker.keep("forgotten", 0.0) == Pick("healthy-0", PickReason.HEALTHY)


def test_pick_with_exclusions() -> None:
    """The others share the requests; if all are excluded, there is no pick."""
    picker = Picker(candidates_of(3, 0, 1), now=0.0)
    excluded = {"healthy-0"}
    assert [picker.pick(chance, excluded) for chance in (0.0, 0.49, 0.51, 0.99)] == [
        Pick("healthy-1", PickReason.HEALTHY),
        Pick("healthy-1", PickReason.HEALTHY),
        Pick("healthy-2", PickReason.HEALTHY),
        Pick("healthy-2", PickReason.HEALTHY),
    ]
    assert picker.pick(0.5, {"healthy-0", "healthy-1", "healthy-2"}) is None


def test_picks_follow_the_shares() -> None:
    """Evenly distributed chances pick each destination as often as its share."""
    picker = Picker(candidates_of(2, 2, 0), now=0.0)
    picks = [picker.pick(at / 1_000) for at in range(1_000)]
    for name, expected_share in picker.shares.items():
        assert (
            abs(sum(pick is not None and pick.name == name for pick in picks) - 1_000 * expected_share) <= 1
        )


def test_no_candidates_no_pick() -> None:
    assert Picker([], now=0.0).pick(0.5) is None


@pytest.mark.parametrize(
    "invalid",
    [
        {"guard": 0.5},
        {"overprovisioning": float("nan")},
        {"slow_start_from": 0.0},
        {"unknown_tier": Health.UNHEALTHY},
    ],
)
def test_invalid_settings_are_refused(invalid: dict[str, float]) -> None:
    """With a guard below the fair share, no destination would take some of the requests."""
    with pytest.raises(ValueError, match=r"at least 1|above 0|must be Healthy"):
        replace(DEFAULTS, **invalid)  # type: ignore[arg-type]


def test_invalid_candidates_are_refused() -> None:
    """Weights must be finite, and names unique."""
    with pytest.raises(ValueError, match="weight of a"):
        Candidate("a", Health.HEALTHY, weight=float("nan"))
    with pytest.raises(ValueError, match="same name"):
        Picker([Candidate("a", Health.HEALTHY)] * 2, now=0.0)


def test_degraded_weight_lowers_the_share() -> None:
    """Two of three are Degraded: half the weight gives half the ratio to the Healthy one."""
    candidates = candidates_of(1, 2, 0)
    full_weight, half_weight = (
        Picker(candidates, 0.0),
        Picker(candidates, 0.0, replace(DEFAULTS, degraded_weight=0.5)),
    )
    assert (share(full_weight, Health.HEALTHY), share(full_weight, Health.DEGRADED)) == pytest.approx(
        (46.67, 53.33), abs=0.01
    )
    assert (share(half_weight, Health.HEALTHY), share(half_weight, Health.DEGRADED)) == pytest.approx(
        (50, 50)
    )
    quarter = replace(candidates[1], degraded_weight=0.25)
    picker = Picker([candidates[0], quarter, candidates[2]], 0.0)
    assert picker.shares[candidates[2].name] == pytest.approx(4 * picker.shares[quarter.name])


def test_degraded_weight_has_no_effect_without_alternatives() -> None:
    """The weight is a preference, not a limit."""
    picker = Picker(candidates_of(0, 2, 0), 0.0, replace(DEFAULTS, degraded_weight=0.1))
    assert share(picker, Health.DEGRADED) == pytest.approx(100)


def test_unknown_headroom_disables_the_guard() -> None:
    """The last of ten takes all; with a headroom of 2 it takes a fifth, and the Unhealthy ones are tried."""
    candidates = candidates_of(1, 0, 9)
    assert share(Picker(candidates, 0.0, with_headroom(DEFAULTS, None)), Health.HEALTHY) == pytest.approx(100)
    assert share(Picker(candidates, 0.0, with_headroom(DEFAULTS, 2.0)), Health.HEALTHY) == pytest.approx(20)


any_candidate = st.builds(
    Candidate,
    name=st.uuids().map(str),
    health=st.sampled_from(Health),
    weight=st.sampled_from([0.1, 1.0, 2.5, 100.0]),
    is_draining=st.booleans(),
    healthy_since=st.none() | st.floats(-100, 100),
    succeeded_at=st.none() | st.integers(0, 3).map(float),
    degraded_weight=st.sampled_from([None, 0.2, 1.0]),
)
any_settings = st.builds(
    PickerSettings,
    overprovisioning=st.floats(1, 3),
    min_healthy=st.integers(1, 4),
    guard=st.floats(1, 5),
    panic_guard=st.floats(1, 5),
    unknown_tier=st.sampled_from([Health.HEALTHY, Health.DEGRADED, Health.UNKNOWN]),
    slow_start=st.sampled_from([0.0, 30.0]),
    degraded_weight=st.sampled_from([0.5, 1.0]),
)


@settings(max_examples=150, deadline=None)
@given(
    drawn_candidates=st.lists(any_candidate, max_size=12),
    picker_settings=any_settings,
    chance=st.floats(0, 1, exclude_max=True),
)
def test_laws_of_shares(
    drawn_candidates: list[Candidate], picker_settings: PickerSettings, chance: float
) -> None:
    """Shares add up, the guard holds while others have capacity, and panic needs a reason."""
    picker = Picker(drawn_candidates, 0.0, picker_settings)
    available = {candidate.name: candidate for candidate in drawn_candidates if not candidate.is_draining}
    assert bool(available) == bool(picker.shares)
    assert set(picker.shares) <= set(available)
    if not available:
        return
    assert sum(picker.shares.values()) == pytest.approx(1)
    pick = picker.pick(chance)
    assert pick is not None
    assert pick.name in picker.shares
    total = sum(candidate.weight for candidate in available.values())
    load = {name: part * total / available[name].weight for name, part in picker.shares.items()}
    without_share = [candidate for candidate in available.values() if candidate.name not in picker.shares]
    if any(candidate.health is Health.UNHEALTHY for candidate in without_share):
        for name, multiple in load.items():
            limit = (
                picker_settings.panic_guard
                if available[name].health is Health.UNHEALTHY
                else picker_settings.guard
            )
            assert multiple <= limit * 1.000001
    is_panic = any(available[name].health is Health.UNHEALTHY for name in picker.shares)
    if is_panic and picker_settings.slow_start == 0:
        usable = [
            candidate.name for candidate in available.values() if candidate.health is not Health.UNHEALTHY
        ]
        for name in usable:
            candidate = available[name]
            part = (
                picker_settings.degraded_weight
                if candidate.degraded_weight is None
                else candidate.degraded_weight
            )
            limit = picker_settings.guard * (part if candidate.health is Health.DEGRADED else 1)
            assert load.get(name, 0) >= limit * 0.999999
