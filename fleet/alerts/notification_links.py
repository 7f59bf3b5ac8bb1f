"""The links of the notifications of one evaluation: runbooks, and what helps the agents now.

What the notifications share is computed once: an outage may notify a hundred incidents within a second.
"""

from __future__ import annotations

from functools import cached_property

from fleet.alerts import notifications
from fleet.alerts.headlines.headline import ActionFinder
from fleet.alerts.notifications import NotificationLinks
from fleet.alerts.runbooks.finder import RunbookFinder
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import Incident


class LinkFinder:
    """Finds the links of notifications of one cluster. `table`: of the newest round; None: it cannot be read.

    `earliest_opened_at`: when the first of their incidents was opened, seconds since the epoch.
    """

    def __init__(
        self, console_url: str, cluster: str, table: FleetTable | None, earliest_opened_at: float
    ) -> None:
        self._console_url = console_url
        self._cluster = cluster
        self._table = table
        self._earliest_opened_at = earliest_opened_at
        self._action_finder = None if table is None else ActionFinder(table)

    @cached_property
    def _runbook_finder(self) -> RunbookFinder:
        return RunbookFinder(self._cluster, self._table, self._earliest_opened_at)

    def find(self, incident: Incident, incident_number: int, runbook_of_rule: str) -> NotificationLinks:
        """Return the links of a notification of an incident. `runbook_of_rule`: of its strongest rule, or empty."""
        runbook = runbook_of_rule or notifications.runbook_url(
            self._console_url, self._cluster, self._runbook_finder.find(incident), incident_number
        )
        actions = (
            self._action_finder.find(incident.key)
            if self._action_finder is not None and incident.affected_count
            else ()
        )
        return NotificationLinks(
            self._console_url,
            runbook,
            incident_number,
            tuple((action.label, action.path) for action in actions),
        )
