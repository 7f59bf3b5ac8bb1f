from __future__ import annotations

from dataclasses import replace

from fleet.alerts.flapping import FLAP_COUNT, FLAP_SECONDS, append_flap_time, update_flapping
from fleet.vocabulary.incidents import Incident, IncidentState, TimelineKind
from tests.fakes.alerting import PROXY

_FIRING = Incident("default", PROXY, 1, IncidentState.FIRING, 0.0)


def test_state_changes_count_for_half_an_hour() -> None:
    """Older ones are dropped when a new one is added."""
    assert append_flap_time((0.0, 100.0), FLAP_SECONDS) == (100.0, FLAP_SECONDS)


def test_four_state_changes_start_the_flapping_and_a_quiet_time_ends_it() -> None:
    """With one timeline entry each; three changes are not enough."""
    flap_times = tuple(float(number) for number in range(FLAP_COUNT))
    assert update_flapping(replace(_FIRING, flap_times=flap_times[1:]), 10.0)[1] == []

    flapping_incident, entries = update_flapping(replace(_FIRING, flap_times=flap_times), 10.0)
    assert (flapping_incident.flapping_since, [entry.kind for entry in entries]) == (
        10.0,
        [TimelineKind.FLAPPING],
    )
    assert entries[0].text == "The incident changed state 4 times within 30 min."
    assert update_flapping(flapping_incident, 11.0) == (flapping_incident, [])

    quiet_at = flap_times[-1] + FLAP_SECONDS
    recovering_incident = replace(flapping_incident, state=IncidentState.RECOVERING)
    assert update_flapping(recovering_incident, quiet_at) == (recovering_incident, [])
    stable_incident, entries = update_flapping(flapping_incident, quiet_at)
    assert (stable_incident.flapping_since, [entry.kind for entry in entries]) == (
        None,
        [TimelineKind.STABLE],
    )
