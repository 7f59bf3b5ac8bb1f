"""An open incident of proxy-1 with a long timeline."""

from __future__ import annotations

from fleet.models.clusters import Cluster
from fleet.models.incidents import Incident, IncidentEvent
from fleet.vocabulary.incidents import IncidentState, Severity, TimelineKind


def make_incident(cluster: str) -> int:
    """Create an incident with a long timeline, and return its number."""
    incident = Incident.objects.create(
        cluster=Cluster.objects.get(pk=cluster),
        key="proxy/proxy-1-id",
        cause_kind="proxy",
        cause_id="proxy-1-id",
        cause_name="proxy-1",
        generation=1,
        state=IncidentState.FIRING.value,
        severity=int(Severity.CRITICAL),
        opened_at=1_700_000_000.0,
        summary="50 agents stranded because proxy-1 is not responding.",
    )
    for number in range(30):
        IncidentEvent.objects.create(
            incident=incident,
            at=1_700_000_000.0 + number,
            kind=TimelineKind.NOTE.value,
            actor_name="ada",
            text=f"Note {number}",
        )
    return incident.pk
