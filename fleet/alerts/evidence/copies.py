"""Take copies of the evidence of incidents during evaluations, and store them: the I/O around `evidence`.

docs/reference/alerts.md, "Evidence of an incident".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.alerts.evidence.evidence import (
    CopyMark,
    DescribeVerdicts,
    Evidence,
    copy_evidence,
    count_agents_by_pair,
    has_grown,
    is_copy_due,
    mark_of,
    pack_evidence,
    unpack_agent_ids,
    unpack_evidence,
)
from fleet.alerts.facts import AffectedAgents
from fleet.models.incidents import Incident as IncidentRow
from fleet.models.incidents import IncidentEvidence
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import Incident, IncidentState

#: Maximum number of copies in one evaluation, those of the largest incidents: alerts must not wait for copies.
_MAX_COPIES = 8
#: Seconds between two writes of a growing incident. The last copy is written when the incident starts to recover.
_WRITE_INTERVAL_SECONDS = 15.0


class EvidenceCopies:
    """The newest copies of the unresolved incidents of one cluster. Copies wait here until they are written."""

    def __init__(self) -> None:
        self._marks: dict[str, CopyMark] = {}
        self._unsaved: dict[str, Evidence] = {}
        self._saved_at: dict[str, float] = {}
        #: Ids of the incidents whose stored copy was looked up.
        self._loaded_ids: set[int] = set()
        #: Incidents that have grown were left for the next evaluation.
        self.has_remaining = False

    def load_marks(self, rows_by_key: Mapping[str, IncidentRow]) -> None:
        """Read the size of the stored copies of incidents that this process has not copied itself."""
        key_by_id = {row.pk: key for key, row in rows_by_key.items() if row.pk not in self._loaded_ids}
        if not key_by_id:
            return
        self._loaded_ids = {row.pk for row in rows_by_key.values()}
        stored = IncidentEvidence.objects.filter(incident__in=key_by_id)
        columns = ("incident", "affected_count", "stranded_count", "taken_at")
        for incident_id, affected_count, stranded_count, taken_at in stored.values_list(*columns):
            mark = CopyMark(affected_count, stranded_count, taken_at)
            self._marks.setdefault(key_by_id[incident_id], mark)

    def take(
        self,
        incidents: Iterable[Incident],
        table: FleetTable,
        describe: DescribeVerdicts,
    ) -> None:
        """Copy the affected agents of incidents that have grown. `describe`: see `copy_evidence`."""
        as_of = table.as_of or 0.0
        grown = [incident for incident in incidents if has_grown(incident, self._marks.get(incident.key))]
        due = [incident for incident in grown if is_copy_due(incident, self._marks.get(incident.key), as_of)]
        due.sort(key=lambda incident: -incident.affected_count)
        del due[_MAX_COPIES:]
        self.has_remaining = len(grown) > len(due)
        if not due:
            return
        affected_agents, agent_count_by_pair = AffectedAgents(table), count_agents_by_pair(table)
        for incident in due:
            affected = affected_agents.indices_of(incident.key)
            if len(affected):
                self._unsaved[incident.key] = copy_evidence(table, affected, describe, agent_count_by_pair)
            self._marks[incident.key] = mark_of(incident, as_of)

    def save(
        self, incidents: Iterable[Incident], rows_by_key: Mapping[str, IncidentRow], now: float
    ) -> list[str]:
        """Write the copies that are due and return the keys of their incidents, for `mark_saved` after the commit."""
        evidence_by_key = {
            incident.key: self._unsaved[incident.key]
            for incident in incidents
            if self._is_write_due(incident, now) and incident.key in rows_by_key
        }
        save_evidence((rows_by_key[key], evidence) for key, evidence in evidence_by_key.items())
        return list(evidence_by_key)

    def mark_saved(self, saved_keys: Iterable[str], unresolved_keys: Iterable[str], now: float) -> None:
        """Drop the copies that were committed, and all of incidents that have ended."""
        for key in saved_keys:
            self._unsaved.pop(key, None)
            self._saved_at[key] = now
        kept_keys = frozenset(unresolved_keys)
        for by_key in (self._marks, self._unsaved, self._saved_at):
            for key in by_key.keys() - kept_keys:
                del by_key[key]

    def _is_write_due(self, incident: Incident, now: float) -> bool:
        """Return whether the copy of an incident is due: at once when it fires, and when it starts to recover."""
        if incident.key not in self._unsaved or incident.state is IncidentState.PENDING:
            return False
        saved_at = self._saved_at.get(incident.key)
        return (
            saved_at is None
            or incident.state is not IncidentState.FIRING
            or now >= saved_at + _WRITE_INTERVAL_SECONDS
        )


def save_evidence(evidence_by_row: Iterable[tuple[IncidentRow, Evidence]]) -> None:
    """Store copies as the evidence of incidents, in place of earlier ones."""
    IncidentEvidence.objects.bulk_create(
        [
            IncidentEvidence(
                incident=row,
                taken_at=evidence.taken_at,
                affected_count=evidence.affected_count,
                stranded_count=evidence.stranded_count,
                content=pack_evidence(evidence),
            )
            for row, evidence in evidence_by_row
        ],
        update_conflicts=True,
        unique_fields=("incident",),
        update_fields=("taken_at", "affected_count", "stranded_count", "content"),
    )


def read_evidence(incident_id: int) -> Evidence | None:
    """Return the stored copy of an incident; None if there is none. Raises EvidenceError."""
    content = _read_content(incident_id)
    return None if content is None else unpack_evidence(content)


def read_agent_ids(incident_id: int) -> tuple[str, ...]:
    """Return the ids of the agents in the stored copy of an incident; none without a copy. Raises EvidenceError."""
    content = _read_content(incident_id)
    return () if content is None else unpack_agent_ids(content)


def _read_content(incident_id: int) -> bytes | None:
    content = IncidentEvidence.objects.filter(incident=incident_id).values_list("content", flat=True).first()
    return None if content is None else bytes(content)


def read_copy_mark(incident_id: int) -> CopyMark | None:
    """Return size and time of the stored copy of an incident; None if there is none."""
    columns = ("affected_count", "stranded_count", "taken_at")
    mark = IncidentEvidence.objects.filter(incident=incident_id).values_list(*columns).first()
    return None if mark is None else CopyMark(*mark)
