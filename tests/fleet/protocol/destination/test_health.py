from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.protocol.destination.health import (
    LITERAL_SETTINGS,
    RECOMMENDED_SETTINGS,
    Destination,
    Health,
    HealthReason,
    HealthSettings,
    ProbeOutcome,
    RequestOutcome,
)

PROBES = {"S": ProbeOutcome.SUCCESS, "D": ProbeOutcome.DEGRADED, "F": ProbeOutcome.FAILURE}


def path(events: str, settings: HealthSettings = RECOMMENDED_SETTINGS) -> str:
    """Where each event leads: probes S, D, F a second apart; p is a proxied result "degraded"."""
    destination = Destination(0.0, settings)
    passed = []
    for at, event in enumerate(events, start=1):
        if event == "p":
            destination.record_request(RequestOutcome.DEGRADED, float(at))
        else:
            destination.record_probe(PROBES[event], float(at))
        passed.append(destination.active.signal.health.value[:3])
    return " ".join(passed)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ("S", "hea"),
        ("F", "unh"),
        ("SD", "hea deg"),
        ("Sp", "hea deg"),
        ("SFF", "hea hea deg"),
        ("SFSSSF", "hea hea hea hea hea deg"),
        ("SFSSSSF", "hea hea hea hea hea hea hea"),
        ("SFFSSS", "hea hea deg deg deg hea"),
        ("SFFFFF", "hea hea deg deg deg unh"),
        ("SFFSFSFS", "hea hea deg deg deg deg deg deg"),
        ("FS", "unh deg"),
        ("FFFFS", "unh unh unh unh deg"),
        ("FSSSS", "unh deg deg deg hea"),
        ("FSpSSS", "unh deg deg deg deg hea"),
        ("pF", "unk unh"),
        ("Fp", "unh unh"),
    ],
)
def test_diagram_takes_the_arrows_of_the_proposal(events: str, expected: str) -> None:
    """Each arrow, and what is just short of one."""
    assert path(events) == expected


@pytest.mark.parametrize(
    ("events", "recommended", "literal"),
    [
        ("D", "deg", "unh"),
        ("SDDDD", "hea deg deg deg deg", "hea deg deg unh unh"),
        ("FD", "unh deg", "unh unh"),
        ("SFFDFF", "hea hea deg deg deg deg", "hea hea deg unh unh unh"),
        ("SFFFFF", "hea hea deg deg deg unh", "hea hea deg unh unh unh"),
        ("FSSS", "unh deg deg deg", "unh deg deg hea"),
        ("SFFSSSF", "hea hea deg deg deg hea hea", "hea hea deg deg deg hea deg"),
        ("SFSFSSSF", "hea hea hea deg deg deg hea hea", "hea hea hea deg deg deg hea deg"),
    ],
)
def test_diagram_read_literally(events: str, recommended: str, literal: str) -> None:
    """Where the two readings part."""
    assert path(events) == recommended
    assert path(events, LITERAL_SETTINGS) == literal


def test_probe_late_is_dropped_and_one_after_a_clock_jump_counts() -> None:
    """The result of an older probe overtakes nothing; a clock set back by an hour does not deafen us for one."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 5_000.0)
    before = destination.active
    destination.record_probe(ProbeOutcome.FAILURE, 4_999.0)
    assert destination.active == before
    destination.record_probe(ProbeOutcome.DEGRADED, 1_400.0)
    assert destination.active.signal.health is Health.DEGRADED
    with pytest.raises(ValueError, match="finite"):
        destination.record_probe(ProbeOutcome.SUCCESS, float("nan"))


def test_verdict_names_the_reason_and_the_time() -> None:
    """What a page shows: not only what, but why and since when."""
    destination = Destination(1.0)
    assert destination.verdict(1.5).reason is HealthReason.NOTHING_SEEN
    for at, probe in enumerate("SFF", start=2):
        destination.record_probe(PROBES[probe], float(at))
    verdict = destination.verdict(100.0)
    assert (verdict.health, verdict.reason, verdict.at) == (
        Health.DEGRADED,
        HealthReason.FAILURES_IN_WINDOW,
        4.0,
    )


def test_declared_degraded_expires_and_is_withdrawn() -> None:
    """A word without an end ends by itself; said anew it holds on, from the first time."""
    destination = Destination(0.0, HealthSettings(declared_for=10))
    destination.record_probe(ProbeOutcome.SUCCESS, 1.0)
    destination.declare_degraded(2.0)
    destination.declare_degraded(8.0)
    said = destination.verdict(17.9)
    assert (said.health, said.reason, said.at) == (Health.DEGRADED, HealthReason.DECLARED, 2.0)
    assert said.active.health is Health.HEALTHY
    assert destination.verdict(18.0).health is Health.HEALTHY
    destination.declare_degraded(20.0, duration=1_000.0)
    assert destination.verdict(500.0).health is Health.DEGRADED
    destination.withdraw(500.0)
    assert destination.verdict(500.0).health is Health.HEALTHY


def test_declared_degraded_never_hides_what_is_worse() -> None:
    """The worst signal counts."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.FAILURE, 1.0)
    destination.declare_degraded(2.0)
    assert destination.verdict(3.0).health is Health.UNHEALTHY


def test_proxied_degraded_without_probes_expires() -> None:
    """The diagram has no arrow from Unknown for it: it holds for a while beside it."""
    destination = Destination(0.0, HealthSettings(declared_for=10))
    destination.record_request(RequestOutcome.DEGRADED, 1.0)
    assert destination.active.signal.health is Health.UNKNOWN
    assert destination.verdict(10.9).reason is HealthReason.PROXIED_DEGRADED
    assert destination.verdict(11.0).health is Health.UNKNOWN


def test_proxied_degraded_read_literally_moves_the_diagram_only() -> None:
    """Only Healthy has an arrow for it: from elsewhere nothing stays of it, in the verdict neither."""
    destination = Destination(0.0, LITERAL_SETTINGS)
    destination.record_request(RequestOutcome.DEGRADED, 1.0)
    verdict = destination.verdict(1.0)
    assert (verdict.health, verdict.passive.health) == (Health.UNKNOWN, Health.UNKNOWN)
    destination.record_probe(ProbeOutcome.SUCCESS, 2.0)
    destination.record_request(RequestOutcome.DEGRADED, 3.0)
    verdict = destination.verdict(1_000.0)
    assert (verdict.health, verdict.reason, verdict.at) == (
        Health.DEGRADED,
        HealthReason.PROXIED_DEGRADED,
        3.0,
    )
    assert verdict.passive.health is Health.UNKNOWN


def test_window_that_must_be_whole_counts_no_failures_before() -> None:
    """Two of the first two are two of two: it may be wanted to wait for five."""
    whole = HealthSettings(whole_window=True)
    assert path("SFFSF", whole) == "hea hea hea hea hea"
    assert path("SSFFSF", whole) == "hea hea hea hea hea deg"


def test_first_failures_that_must_be_several_leave_it_unknown() -> None:
    """What merely starts late is not condemned by one probe; a success or a degraded answer decides at once."""
    patient = HealthSettings(first_failures=3)
    assert path("FFF", patient) == "unk unk unh"
    assert path("FFSFF", patient) == "unk unk hea hea deg"
    assert path("FD", patient) == "unk deg"
    destination = Destination(0.0, patient)
    for at in (1.0, 2.0, 3.0):
        destination.record_probe(ProbeOutcome.FAILURE, at)
    assert destination.verdict(3.0).reason is HealthReason.FAILURES_IN_A_ROW


def test_proxied_degraded_is_over_when_probes_say_so() -> None:
    """Three successes end it, as in the diagram, not only its expiry."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 1.0)
    destination.record_request(RequestOutcome.DEGRADED, 2.0)
    for now in (3.0, 4.0, 5.0):
        assert destination.verdict(now).health is Health.DEGRADED
        destination.record_probe(ProbeOutcome.SUCCESS, now)
    assert destination.verdict(5.0).health is Health.HEALTHY


def test_proxied_degraded_debounced_needs_several_near_each_other() -> None:
    """Two within ten seconds are a word, two within twenty are none."""
    destination = Destination(0.0, HealthSettings(proxied_needed=2, proxied_within=10))
    destination.record_probe(ProbeOutcome.SUCCESS, 1.0)
    destination.record_request(RequestOutcome.DEGRADED, 2.0)
    destination.record_request(RequestOutcome.DEGRADED, 20.0)
    assert destination.verdict(20.0).health is Health.HEALTHY
    destination.record_request(RequestOutcome.DEGRADED, 25.0)
    assert destination.verdict(25.0).health is Health.DEGRADED


def test_proxied_failures_are_degraded_first_and_unhealthy_by_their_own_rate() -> None:
    """Three of ten fail: Degraded for a minute. Then eight of ten: Unhealthy for a minute, then Degraded again."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 0.0)
    for at in range(1, 8):
        destination.record_request(RequestOutcome.SUCCESS, float(at))
    for now in (8.0, 9.0):
        destination.record_request(RequestOutcome.FAILURE, now)
        assert destination.verdict(now).health is Health.HEALTHY
    destination.record_request(RequestOutcome.FAILURE, 10.0)
    verdict = destination.verdict(69.9)
    assert (verdict.health, verdict.reason, verdict.at) == (Health.DEGRADED, HealthReason.FAILURE_RATE, 10.0)
    assert destination.verdict(70.0).health is Health.HEALTHY

    for result in (*[RequestOutcome.SUCCESS] * 2, *[RequestOutcome.FAILURE] * 7):
        destination.record_request(result, 20.0)
    assert destination.verdict(20.0).health is Health.DEGRADED
    destination.record_request(RequestOutcome.FAILURE, 21.0)
    verdict = destination.verdict(80.9)
    assert (verdict.health, verdict.reason, verdict.at) == (Health.UNHEALTHY, HealthReason.FAILURE_RATE, 21.0)
    verdict = destination.verdict(81.0)
    assert (verdict.health, verdict.reason, verdict.at) == (Health.DEGRADED, HealthReason.FAILURE_RATE, 81.0)
    assert destination.verdict(141.0).health is Health.HEALTHY
    destination.record_request(RequestOutcome.FAILURE, 142.0)
    assert destination.verdict(142.0).health is Health.HEALTHY


def test_proxied_failures_of_a_dead_destination_are_degraded_first_too() -> None:
    """All ten of the first ten fail: Degraded by those, and Unhealthy by the next ten only."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 0.0)
    for expected in (Health.DEGRADED, Health.UNHEALTHY):
        for _ in range(10):
            destination.record_request(RequestOutcome.FAILURE, 1.0)
        assert destination.verdict(1.0).health is expected


def test_proxied_failures_of_a_gray_destination_never_make_it_unhealthy() -> None:
    """Half of its requests fail for ever: others are preferred, and it still serves where there are few of them."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 0.0)
    for number in range(2_000):
        destination.record_request(
            RequestOutcome.FAILURE if number % 2 else RequestOutcome.SUCCESS, number / 10
        )
        assert destination.verdict(number / 10).health in (Health.HEALTHY, Health.DEGRADED)
    verdict = destination.verdict(199.9)
    assert (verdict.health, verdict.at) == (Health.DEGRADED, 0.9)


def test_proxied_failures_without_a_failure_rate_end_at_once() -> None:
    """For who needs one answer rather than a share: Unhealthy without Degraded before or after."""
    destination = Destination(0.0, HealthSettings(failure_rate=None, unhealthy_rate=0.5, rate_minimum=2))
    destination.record_request(RequestOutcome.FAILURE, 1.0)
    destination.record_request(RequestOutcome.FAILURE, 2.0)
    assert destination.verdict(61.9).health is Health.UNHEALTHY
    assert destination.verdict(62.0).health is Health.UNKNOWN


def test_proxied_failures_are_forgotten_after_the_window() -> None:
    """Nine failures of a minute ago and one of now are one failure."""
    destination = Destination(0.0)
    for _ in range(9):
        destination.record_request(RequestOutcome.FAILURE, 1.0)
    destination.record_request(RequestOutcome.FAILURE, 61.0)
    assert destination.verdict(61.0).health is Health.UNKNOWN


def test_draining_stands_beside_health() -> None:
    """An operator's word is no observation: it neither heals nor harms, and a reset leaves it."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 1.0)
    destination.drain("kernel update", 2.0)
    destination.drain("again", 3.0)
    verdict = destination.verdict(4.0)
    assert verdict.health is Health.HEALTHY
    assert verdict.drain_request is not None
    assert (verdict.drain_request.reason, verdict.drain_request.at) == ("kernel update", 2.0)
    destination.reset(5.0)
    assert destination.verdict(5.0).drain_request is not None
    destination.undrain()
    assert destination.verdict(6.0).drain_request is None


def test_reset_forgets_what_was_seen() -> None:
    """Another address is another destination."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.FAILURE, 1.0)
    destination.declare_degraded(1.0)
    destination.reset(2.0)
    verdict = destination.verdict(2.0)
    assert (verdict.health, verdict.reason, verdict.at) == (Health.UNKNOWN, HealthReason.RESET, 2.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"streak": 0},
        {"window_failures": 6},
        {"window_failures": 0},
        {"proxied_needed": 0},
        {"first_failures": 0},
        {"failure_rate": 0.0},
        {"unhealthy_rate": 1.1},
        {"failure_rate": 0.9},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    """One clear error instead of a destination that never changes."""
    with pytest.raises(ValueError, match=r"at least 1|above 0|must not be below"):
        replace(RECOMMENDED_SETTINGS, **wrong)  # type: ignore[arg-type]


def test_proxied_failures_while_it_is_out_are_not_held_against_it() -> None:
    """Else what was on its way would keep it out for ever."""
    settings = HealthSettings(failure_rate=None, unhealthy_rate=0.5, rate_minimum=2, reactivate_after=10)
    destination = Destination(0.0, settings)
    for at in (1.0, 1.0, 10.0, 10.0, 10.0):
        destination.record_request(RequestOutcome.FAILURE, at)
    assert destination.verdict(10.9).health is Health.UNHEALTHY
    destination.record_request(RequestOutcome.FAILURE, 11.0)
    assert destination.verdict(11.0).health is Health.UNKNOWN


def test_proxied_degraded_of_before_a_recovery_is_half_of_no_word() -> None:
    """Probes that succeeded in a row are newer than what came before them."""
    destination = Destination(0.0, HealthSettings(proxied_needed=2, proxied_within=10))
    destination.record_probe(ProbeOutcome.DEGRADED, 1.0)
    destination.record_request(RequestOutcome.DEGRADED, 1.0)
    for at in (2.0, 3.0, 4.0):
        destination.record_probe(ProbeOutcome.SUCCESS, at)
    destination.record_request(RequestOutcome.DEGRADED, 5.0)
    assert destination.verdict(5.0).health is Health.HEALTHY
    destination.record_request(RequestOutcome.DEGRADED, 6.0)
    assert destination.verdict(6.0).health is Health.DEGRADED


def test_proxied_failures_are_over_sooner_when_probes_succeed_in_a_row() -> None:
    """Three in a row use it again, as a Degraded one; new failures take it out again; late probes change nothing."""
    destination = Destination(0.0)
    for _ in range(20):  # Degraded by the first ten
        destination.record_request(RequestOutcome.FAILURE, 10.0)
    for at in (9.0, 11.0, 12.0):
        destination.record_probe(ProbeOutcome.SUCCESS, at)
    assert destination.verdict(12.0).health is Health.UNHEALTHY
    destination.record_probe(ProbeOutcome.SUCCESS, 11.5)
    assert destination.verdict(12.0).health is Health.UNHEALTHY
    destination.record_probe(ProbeOutcome.SUCCESS, 13.0)
    verdict = destination.verdict(13.0)
    assert (verdict.health, verdict.reason, verdict.at) == (
        Health.DEGRADED,
        HealthReason.SUCCESSES_IN_A_ROW,
        13.0,
    )
    for _ in range(9):  # It is Degraded already: ten are enough.
        destination.record_request(RequestOutcome.FAILURE, 14.0)
    assert destination.verdict(14.0).health is Health.DEGRADED
    destination.record_request(RequestOutcome.FAILURE, 14.0)
    verdict = destination.verdict(73.9)
    assert (verdict.health, verdict.reason, verdict.at) == (Health.UNHEALTHY, HealthReason.FAILURE_RATE, 14.0)
    verdict = destination.verdict(74.0)
    assert (verdict.health, verdict.reason, verdict.at) == (Health.DEGRADED, HealthReason.FAILURE_RATE, 74.0)
    assert destination.verdict(133.9).health is Health.DEGRADED
    assert destination.verdict(134.0).health is Health.HEALTHY


def test_proxied_failures_are_not_over_when_probes_flap() -> None:
    """Two successes, a failure, two successes are no row of three."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 0.0)
    for _ in range(20):  # Degraded by the first ten
        destination.record_request(RequestOutcome.FAILURE, 1.0)
    for at, outcome in enumerate("SSFSS", start=2):
        destination.record_probe(ProbeOutcome.SUCCESS if outcome == "S" else ProbeOutcome.FAILURE, float(at))
    assert destination.verdict(7.0).passive.health is Health.UNHEALTHY
