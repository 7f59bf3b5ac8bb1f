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


def health_path(events: str, settings: HealthSettings = RECOMMENDED_SETTINGS) -> str:
    """Return the health after each event: probes S, D and F one second apart; p is a proxied "degraded"
    result.
    """
    destination = Destination(0.0, settings)
    healths = []
    for at, event in enumerate(events, start=1):
        if event == "p":
            destination.record_request(RequestOutcome.DEGRADED, float(at))
        else:
            destination.record_probe(PROBES[event], float(at))
        healths.append(destination.active.signal.health.value[:3])
    return " ".join(healths)


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
def test_transitions_of_the_proposal(events: str, expected: str) -> None:
    """Every transition occurs, and none occurs one event too early."""
    assert health_path(events) == expected


@pytest.mark.parametrize(
    ("events", "recommended_path", "literal_path"),
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
def test_literal_settings_differ_from_the_recommended(
    events: str, recommended_path: str, literal_path: str
) -> None:
    assert health_path(events) == recommended_path
    assert health_path(events, LITERAL_SETTINGS) == literal_path


def test_late_probe_is_dropped_and_probe_after_a_clock_jump_counts() -> None:
    """A clock set back by an hour does not make probes count as late for an hour."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 5_000.0)
    before = destination.active
    destination.record_probe(ProbeOutcome.FAILURE, 4_999.0)
    assert destination.active == before
    destination.record_probe(ProbeOutcome.DEGRADED, 1_400.0)
    assert destination.active.signal.health is Health.DEGRADED
    with pytest.raises(ValueError, match="finite"):
        destination.record_probe(ProbeOutcome.SUCCESS, float("nan"))


def test_verdict_has_reason_and_time() -> None:
    """Pages show why a destination has its health, and since when."""
    destination = Destination(1.0)
    assert destination.verdict(1.5).reason is HealthReason.NOTHING_SEEN
    for at, probe in enumerate("SFF", start=2):
        destination.record_probe(PROBES[probe], float(at))
    verdict = destination.verdict(100.0)
    assert (verdict.health, verdict.reason, verdict.changed_at) == (
        Health.DEGRADED,
        HealthReason.FAILURES_IN_WINDOW,
        4.0,
    )


def test_declaration_expires_and_can_be_withdrawn() -> None:
    """A repeated declaration extends the first one, whose time is kept."""
    destination = Destination(0.0, HealthSettings(degraded_signal_duration=10))
    destination.record_probe(ProbeOutcome.SUCCESS, 1.0)
    destination.declare_degraded(2.0)
    destination.declare_degraded(8.0)
    verdict = destination.verdict(17.9)
    assert (verdict.health, verdict.reason, verdict.changed_at) == (
        Health.DEGRADED,
        HealthReason.DECLARED,
        2.0,
    )
    assert verdict.active.health is Health.HEALTHY
    assert destination.verdict(18.0).health is Health.HEALTHY
    destination.declare_degraded(20.0, duration=1_000.0)
    assert destination.verdict(500.0).health is Health.DEGRADED
    destination.withdraw(500.0)
    assert destination.verdict(500.0).health is Health.HEALTHY


def test_declaration_does_not_hide_worse_health() -> None:
    """The worst signal counts."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.FAILURE, 1.0)
    destination.declare_degraded(2.0)
    assert destination.verdict(3.0).health is Health.UNHEALTHY


def test_proxied_degraded_without_probes_expires() -> None:
    """The diagram has no transition from Unknown for it; it is a separate signal that expires."""
    destination = Destination(0.0, HealthSettings(degraded_signal_duration=10))
    destination.record_request(RequestOutcome.DEGRADED, 1.0)
    assert destination.active.signal.health is Health.UNKNOWN
    assert destination.verdict(10.9).reason is HealthReason.PROXIED_DEGRADED
    assert destination.verdict(11.0).health is Health.UNKNOWN


def test_proxied_degraded_with_literal_settings_changes_the_diagram_only() -> None:
    """Only Healthy has a transition for it; in other states it has no effect."""
    destination = Destination(0.0, LITERAL_SETTINGS)
    destination.record_request(RequestOutcome.DEGRADED, 1.0)
    verdict = destination.verdict(1.0)
    assert (verdict.health, verdict.passive.health) == (Health.UNKNOWN, Health.UNKNOWN)
    destination.record_probe(ProbeOutcome.SUCCESS, 2.0)
    destination.record_request(RequestOutcome.DEGRADED, 3.0)
    verdict = destination.verdict(1_000.0)
    assert (verdict.health, verdict.reason, verdict.changed_at) == (
        Health.DEGRADED,
        HealthReason.PROXIED_DEGRADED,
        3.0,
    )
    assert verdict.passive.health is Health.UNKNOWN


def test_whole_window_setting_waits_for_a_full_window() -> None:
    """Without the setting two failures of the first two probes are enough."""
    health_settings = HealthSettings(require_full_window=True)
    assert health_path("SFFSF", health_settings) == "hea hea hea hea hea"
    assert health_path("SSFFSF", health_settings) == "hea hea hea hea hea deg"


def test_several_first_failures_are_needed_if_set() -> None:
    """An instance that starts slowly is not Unhealthy after one probe; a success or "degraded" decides at
    once.
    """
    health_settings = HealthSettings(failures_from_unknown=3)
    assert health_path("FFF", health_settings) == "unk unk unh"
    assert health_path("FFSFF", health_settings) == "unk unk hea hea deg"
    assert health_path("FD", health_settings) == "unk deg"
    destination = Destination(0.0, health_settings)
    for at in (1.0, 2.0, 3.0):
        destination.record_probe(ProbeOutcome.FAILURE, at)
    assert destination.verdict(3.0).reason is HealthReason.FAILURES_IN_A_ROW


def test_proxied_degraded_ends_after_a_success_streak() -> None:
    """Three successful probes end it before it expires."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 1.0)
    destination.record_request(RequestOutcome.DEGRADED, 2.0)
    for now in (3.0, 4.0, 5.0):
        assert destination.verdict(now).health is Health.DEGRADED
        destination.record_probe(ProbeOutcome.SUCCESS, now)
    assert destination.verdict(5.0).health is Health.HEALTHY


def test_proxied_degraded_debounced_needs_several_within_the_window() -> None:
    """Two within 10 s count; two within 20 s do not."""
    destination = Destination(0.0, HealthSettings(degraded_responses_needed=2, degraded_responses_within=10))
    destination.record_probe(ProbeOutcome.SUCCESS, 1.0)
    destination.record_request(RequestOutcome.DEGRADED, 2.0)
    destination.record_request(RequestOutcome.DEGRADED, 20.0)
    assert destination.verdict(20.0).health is Health.HEALTHY
    destination.record_request(RequestOutcome.DEGRADED, 25.0)
    assert destination.verdict(25.0).health is Health.DEGRADED


def test_proxied_failure_rates_give_degraded_then_unhealthy() -> None:
    """3 of 10 failures: Degraded for a minute. 8 of 10: Unhealthy for a minute, then Degraded again."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 0.0)
    for at in range(1, 8):
        destination.record_request(RequestOutcome.SUCCESS, float(at))
    for now in (8.0, 9.0):
        destination.record_request(RequestOutcome.FAILURE, now)
        assert destination.verdict(now).health is Health.HEALTHY
    destination.record_request(RequestOutcome.FAILURE, 10.0)
    verdict = destination.verdict(69.9)
    assert (verdict.health, verdict.reason, verdict.changed_at) == (
        Health.DEGRADED,
        HealthReason.FAILURE_RATE,
        10.0,
    )
    assert destination.verdict(70.0).health is Health.HEALTHY

    for outcome in (*[RequestOutcome.SUCCESS] * 2, *[RequestOutcome.FAILURE] * 7):
        destination.record_request(outcome, 20.0)
    assert destination.verdict(20.0).health is Health.DEGRADED
    destination.record_request(RequestOutcome.FAILURE, 21.0)
    verdict = destination.verdict(80.9)
    assert (verdict.health, verdict.reason, verdict.changed_at) == (
        Health.UNHEALTHY,
        HealthReason.FAILURE_RATE,
        21.0,
    )
    verdict = destination.verdict(81.0)
    assert (verdict.health, verdict.reason, verdict.changed_at) == (
        Health.DEGRADED,
        HealthReason.FAILURE_RATE,
        81.0,
    )
    assert destination.verdict(141.0).health is Health.HEALTHY
    destination.record_request(RequestOutcome.FAILURE, 142.0)
    assert destination.verdict(142.0).health is Health.HEALTHY


def test_proxied_failures_of_a_dead_destination_give_degraded_first() -> None:
    """Ten failures make it Degraded, the next ten Unhealthy."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 0.0)
    for expected in (Health.DEGRADED, Health.UNHEALTHY):
        for _ in range(10):
            destination.record_request(RequestOutcome.FAILURE, 1.0)
        assert destination.verdict(1.0).health is expected


def test_proxied_failures_at_half_rate_never_give_unhealthy() -> None:
    """Half of its requests fail: other destinations are preferred, but it is still used if there are few."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 0.0)
    for number in range(2_000):
        destination.record_request(
            RequestOutcome.FAILURE if number % 2 else RequestOutcome.SUCCESS, number / 10
        )
        assert destination.verdict(number / 10).health in (Health.HEALTHY, Health.DEGRADED)
    verdict = destination.verdict(199.9)
    assert (verdict.health, verdict.changed_at) == (Health.DEGRADED, 0.9)


def test_proxied_failures_without_a_failure_rate_give_unhealthy_only() -> None:
    """It is never Degraded, neither before nor after."""
    destination = Destination(0.0, HealthSettings(failure_rate=None, unhealthy_rate=0.5, rate_min_requests=2))
    destination.record_request(RequestOutcome.FAILURE, 1.0)
    destination.record_request(RequestOutcome.FAILURE, 2.0)
    assert destination.verdict(61.9).health is Health.UNHEALTHY
    assert destination.verdict(62.0).health is Health.UNKNOWN


def test_proxied_failures_expire_after_the_window() -> None:
    """Nine failures a minute ago and one now count as one."""
    destination = Destination(0.0)
    for _ in range(9):
        destination.record_request(RequestOutcome.FAILURE, 1.0)
    destination.record_request(RequestOutcome.FAILURE, 61.0)
    assert destination.verdict(61.0).health is Health.UNKNOWN


def test_draining_is_independent_of_health() -> None:
    """Draining does not change health, and a reset does not end it."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 1.0)
    destination.drain("kernel update", 2.0)
    destination.drain("again", 3.0)
    verdict = destination.verdict(4.0)
    assert verdict.health is Health.HEALTHY
    assert verdict.drain_request is not None
    assert (verdict.drain_request.reason, verdict.drain_request.requested_at) == ("kernel update", 2.0)
    destination.reset(5.0)
    assert destination.verdict(5.0).drain_request is not None
    destination.undrain()
    assert destination.verdict(6.0).drain_request is None


def test_reset_clears_observations() -> None:
    """A destination with another address starts as Unknown."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.FAILURE, 1.0)
    destination.declare_degraded(1.0)
    destination.reset(2.0)
    verdict = destination.verdict(2.0)
    assert (verdict.health, verdict.reason, verdict.changed_at) == (Health.UNKNOWN, HealthReason.RESET, 2.0)


@pytest.mark.parametrize(
    "invalid",
    [
        {"streak_length": 0},
        {"window_failures": 6},
        {"window_failures": 0},
        {"degraded_responses_needed": 0},
        {"failures_from_unknown": 0},
        {"failure_rate": 0.0},
        {"unhealthy_rate": 1.1},
        {"failure_rate": 0.9},
    ],
)
def test_invalid_settings_are_refused(invalid: dict[str, float]) -> None:
    """The error names the limit."""
    with pytest.raises(ValueError, match=r"at least 1|above 0|must not be below"):
        replace(RECOMMENDED_SETTINGS, **invalid)  # type: ignore[arg-type]


def test_proxied_failures_while_unhealthy_do_not_count() -> None:
    """Otherwise requests in progress would keep it Unhealthy."""
    settings = HealthSettings(failure_rate=None, unhealthy_rate=0.5, rate_min_requests=2, reactivate_after=10)
    destination = Destination(0.0, settings)
    for at in (1.0, 1.0, 10.0, 10.0, 10.0):
        destination.record_request(RequestOutcome.FAILURE, at)
    assert destination.verdict(10.9).health is Health.UNHEALTHY
    destination.record_request(RequestOutcome.FAILURE, 11.0)
    assert destination.verdict(11.0).health is Health.UNKNOWN


def test_proxied_degraded_before_a_recovery_does_not_count() -> None:
    """A success streak of probes clears earlier "degraded" results."""
    destination = Destination(0.0, HealthSettings(degraded_responses_needed=2, degraded_responses_within=10))
    destination.record_probe(ProbeOutcome.DEGRADED, 1.0)
    destination.record_request(RequestOutcome.DEGRADED, 1.0)
    for at in (2.0, 3.0, 4.0):
        destination.record_probe(ProbeOutcome.SUCCESS, at)
    destination.record_request(RequestOutcome.DEGRADED, 5.0)
    assert destination.verdict(5.0).health is Health.HEALTHY
    destination.record_request(RequestOutcome.DEGRADED, 6.0)
    assert destination.verdict(6.0).health is Health.DEGRADED


def test_proxied_failures_end_early_after_a_success_streak() -> None:
    """Three successes make it Degraded; new failures make it Unhealthy again; late probes change nothing."""
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
    assert (verdict.health, verdict.reason, verdict.changed_at) == (
        Health.DEGRADED,
        HealthReason.SUCCESSES_IN_A_ROW,
        13.0,
    )
    for _ in range(9):  # It is Degraded already: ten are enough.
        destination.record_request(RequestOutcome.FAILURE, 14.0)
    assert destination.verdict(14.0).health is Health.DEGRADED
    destination.record_request(RequestOutcome.FAILURE, 14.0)
    verdict = destination.verdict(73.9)
    assert (verdict.health, verdict.reason, verdict.changed_at) == (
        Health.UNHEALTHY,
        HealthReason.FAILURE_RATE,
        14.0,
    )
    verdict = destination.verdict(74.0)
    assert (verdict.health, verdict.reason, verdict.changed_at) == (
        Health.DEGRADED,
        HealthReason.FAILURE_RATE,
        74.0,
    )
    assert destination.verdict(133.9).health is Health.DEGRADED
    assert destination.verdict(134.0).health is Health.HEALTHY


def test_proxied_failures_do_not_end_while_probes_flap() -> None:
    """Two successes, a failure and two successes are not a streak of three."""
    destination = Destination(0.0)
    destination.record_probe(ProbeOutcome.SUCCESS, 0.0)
    for _ in range(20):  # Degraded by the first ten
        destination.record_request(RequestOutcome.FAILURE, 1.0)
    for at, outcome in enumerate("SSFSS", start=2):
        destination.record_probe(ProbeOutcome.SUCCESS if outcome == "S" else ProbeOutcome.FAILURE, float(at))
    assert destination.verdict(7.0).passive.health is Health.UNHEALTHY
