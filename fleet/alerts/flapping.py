"""Flapping: incidents that open and recover again and again. Pure. docs/reference/alerts.md, "Incident lifecycle"."""

from __future__ import annotations

from dataclasses import replace

from fleet.protocol.durations import format_readable
from fleet.vocabulary.incidents import Incident, IncidentState, TimelineEntry, TimelineKind

#: State changes within `FLAP_SECONDS` that make an incident flap; so many seconds without one end the flapping.
FLAP_COUNT = 4
FLAP_SECONDS = 1800.0


def append_flap_time(flap_times: tuple[float, ...], now: float) -> tuple[float, ...]:
    """Return the times of state changes with a new one, without those that no longer count for flapping."""
    return (*(at for at in flap_times if now - at < FLAP_SECONDS), now)


def update_flapping(incident: Incident, now: float) -> tuple[Incident, list[TimelineEntry]]:
    """Start or end the flapping of an incident; return it with the timeline entries about that."""
    recent_flap_times = [at for at in incident.flap_times if now - at < FLAP_SECONDS]
    if incident.flapping_since is None and len(recent_flap_times) >= FLAP_COUNT:
        text = f"The incident changed state {len(recent_flap_times)} times within {format_readable(FLAP_SECONDS)}."
        return replace(incident, flapping_since=now), [TimelineEntry(now, TimelineKind.FLAPPING, text)]
    if (
        incident.flapping_since is not None
        and not recent_flap_times
        and incident.state is IncidentState.FIRING
    ):
        return replace(incident, flapping_since=None), [
            TimelineEntry(now, TimelineKind.STABLE, "The incident is stable again.")
        ]
    return incident, []
