from __future__ import annotations

import random

import pytest

from fleet.protocol.destination.health import (
    RECOMMENDED_SETTINGS,
    Destination,
    Health,
    ProbeOutcome,
    RequestOutcome,
)
from fleet.protocol.destination.probe_schedule import (
    ProbeSettings,
    can_health_change_soon,
    current_interval,
    earlier_probe_at,
    first_probe_at,
    next_probe_at,
)

PROBES = {"S": ProbeOutcome.SUCCESS, "D": ProbeOutcome.DEGRADED, "F": ProbeOutcome.FAILURE}
SETTINGS = ProbeSettings(interval=10, fast_interval=1, down_interval=3, timeout=1, jitter=0)


def destination_after(events: str) -> Destination:
    """Return a destination after probes one second apart; p is a proxied "degraded" result."""
    destination = Destination(0.0)
    for at, event in enumerate(events, start=1):
        if event == "p":
            destination.record_request(RequestOutcome.DEGRADED, float(at))
        else:
            destination.record_probe(PROBES[event], float(at))
    return destination


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ("", 1),  # Unknown: the first probe decides
        ("S", 10),
        ("SS", 10),
        ("SF", 1),  # one more failure of five makes it Degraded
        ("SFSSS", 1),
        ("SFSSSSS", 10),  # and now it does not
        ("SFF", 1),  # Degraded: three probes lead out
        ("SFFS", 1),
        ("SFFSSS", 10),
        ("SD", 10),  # declared by the instance: repeated, it changes nothing
        ("SDD", 10),
        ("SDS", 1),
        ("SDF", 1),
        ("Sp", 1),
        ("F", 3),
        ("SFFFFF", 3),
        ("FS", 1),
    ],
)
def test_interval_is_short_while_a_streak_is_open(events: str, expected: float) -> None:
    """The interval that follows each series of probes."""
    assert current_interval(destination_after(events).active, SETTINGS) == expected


def test_interval_without_down_interval_is_the_usual() -> None:
    assert current_interval(destination_after("F").active, ProbeSettings(interval=7)) == 7


def test_interval_is_measured_from_start_to_start() -> None:
    """A slow response does not shift the schedule; after one slower than the interval the next probe is sent
    at once.
    """
    active = destination_after("S").active
    assert next_probe_at(active, 100.0, 100.4, 0.5, SETTINGS) == 110.0
    assert next_probe_at(active, 100.0, 112.0, 0.5, SETTINGS) == 112.0


def test_next_probe_is_jittered_both_ways() -> None:
    """The jitter is 10 %, and 0 on average."""
    active, settings = destination_after("S").active, ProbeSettings(interval=10, jitter=0.1)
    chances = random.Random(1)
    waits = [next_probe_at(active, 0.0, 0.0, chances.random(), settings) for _ in range(2_000)]
    assert min(waits) >= 9.0
    assert max(waits) <= 11.0
    assert sum(waits) / len(waits) == pytest.approx(10.0, abs=0.1)


def test_probes_of_many_destinations_spread() -> None:
    """Fifty destinations probed at once are probed in different seconds after a few minutes."""
    settings, chances = ProbeSettings(interval=10, jitter=0.1), random.Random(2)
    active = destination_after("S").active
    due = [0.0] * 50
    for _ in range(40):
        due = [next_probe_at(active, at, at, chances.random(), settings) for at in due]
    assert max(due) - min(due) > settings.interval
    assert len({int(at % settings.interval) for at in due}) == 10


def test_first_probes_are_soon_and_apart() -> None:
    """New destinations are Unknown, and probed within the fast interval."""
    chances = random.Random(3)
    times = sorted(first_probe_at(5.0, chances.random(), SETTINGS) for _ in range(100))
    assert 5.0 <= times[0] < 5.1
    assert 5.9 < times[-1] < 6.0


def test_failed_request_brings_the_next_probe_forward() -> None:
    """A probe is never postponed, nor sent more often than the fast interval."""
    active = destination_after("S").active
    assert earlier_probe_at(110.0, active, 100.0, 0.5, SETTINGS) == 101.0
    assert earlier_probe_at(100.5, active, 100.0, 0.5, SETTINGS) == 100.5
    assert earlier_probe_at(103.0, destination_after("F").active, 100.0, 0.5, SETTINGS) == 103.0


def test_detection_is_as_fast_as_the_fast_interval_allows() -> None:
    """A dead destination is Degraded after two probes and Unhealthy after five; only the first waits for the
    interval.
    """
    destination, now = destination_after("S"), 10.0
    while destination.active.signal.health is not Health.UNHEALTHY:
        destination.record_probe(ProbeOutcome.FAILURE, now)
        now = next_probe_at(destination.active, now, now, 0.5, SETTINGS)
    assert destination.active.signal.changed_at == 10.0 + 4 * SETTINGS.fast_interval
    assert not can_health_change_soon(destination.active)
    assert len(destination.active.recent_outcomes) <= RECOMMENDED_SETTINGS.window_size


@pytest.mark.parametrize(
    ("invalid", "error"),
    [
        ({"interval": 0.0}, "above 0"),
        ({"timeout": float("inf")}, "above 0"),
        ({"down_interval": -1.0}, "above 0"),
        ({"interval": 0.5}, "must not exceed"),
        ({"down_interval": 0.5}, "must not exceed"),
        ({"jitter": 1.0}, "jitter"),
    ],
)
def test_invalid_settings_are_refused(invalid: dict[str, float], error: str) -> None:
    """They would give probes without pause, or none."""
    with pytest.raises(ValueError, match=error):
        ProbeSettings(**invalid)
