"""Find the runbooks of the incidents of a cluster: the facts for `choice.choose_runbook`, read once for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fleet.alerts.facts import AffectedAgents
from fleet.alerts.runbooks.choice import RunbookFacts, choose_runbook
from fleet.alerts.runbooks.new_versions import are_updated, find_distinctive_version, find_member_ids
from fleet.models.incidents import VersionChange
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import CauseKind, Incident
from fleet.vocabulary.runbooks import RunbookCause


@dataclass(frozen=True, slots=True)
class VersionUpdate:
    """An instance that got another version; `at`: seconds since the epoch."""

    instance_id: str
    name: str
    old: str
    new: str
    at: float


#: A new version within so many seconds before an incident may have caused it, as on the page of the incident.
_LOOKBACK_SECONDS = 1800.0


class RunbookFinder:
    """Finds the runbook of each incident. `table`: of the newest round; None or out of date: not known.

    `earliest_opened_at`: when the first of the incidents was opened, seconds since the epoch.
    """

    def __init__(self, cluster: str, table: FleetTable | None, earliest_opened_at: float) -> None:
        self._table = None if table is None or table.stale else table
        updates = VersionChange.objects.filter(
            cluster=cluster, at__gte=earliest_opened_at - _LOOKBACK_SECONDS
        ).exclude(old="")
        columns = updates.order_by("at").values_list("instance_id", "name", "old", "new", "at")
        self._updates = [VersionUpdate(*row) for row in columns]

    def find(self, incident: Incident) -> RunbookCause:
        """Return the runbook of an incident."""
        return choose_runbook(RunbookFacts(incident.cause, self._has_new_version(incident)))

    def find_updates(self, incident: Incident) -> tuple[VersionUpdate, ...]:
        """Return the instances of the cause of an incident that got another version shortly before, the first first."""
        since = incident.opened_at - _LOOKBACK_SECONDS
        updates = [update for update in self._updates if since <= update.at <= incident.opened_at]
        # Without updates, which is the rule, the members need not be looked for.
        member_ids = find_member_ids(incident.cause, self._table) if updates else frozenset()
        return tuple(update for update in updates if update.instance_id in member_ids)

    def find_agent_version(self, incident: Incident) -> str:
        """Return the version that sets the affected agents of an incident without an instance apart; or empty."""
        if self._table is None or incident.cause.kind not in (CauseKind.AGENTS, CauseKind.FLEET):
            return ""
        return find_distinctive_version(self._table, self._affected_agents.indices_of(incident.key))

    def _has_new_version(self, incident: Incident) -> bool:
        if self.find_agent_version(incident):
            return True
        updated_ids = {update.instance_id for update in self.find_updates(incident)}
        return bool(updated_ids) and are_updated(find_member_ids(incident.cause, self._table), updated_ids)

    @cached_property
    def _affected_agents(self) -> AffectedAgents:
        assert self._table is not None, "asked only with a table"
        return AffectedAgents(self._table)
