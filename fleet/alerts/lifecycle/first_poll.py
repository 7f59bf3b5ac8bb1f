"""Time for the first poll of a cluster, before missing data means that Refloat is blind. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fleet.alerts.facts import ClusterFacts, make_paused_facts
from fleet.vocabulary.incidents import CauseKind, Incident

#: Seconds from adding or resuming a cluster until its first round must have ended.
FIRST_ROUND_SECONDS = 60.0


class FirstPollGrace:
    """Knows which clusters wait for their first poll: after a start, or because they were added or resumed."""

    def __init__(self, start_grace_seconds: float = 0.0) -> None:
        """`start_grace_seconds`: time after the first evaluation, because the workers start with alerting."""
        self._start_grace_seconds = start_grace_seconds
        #: End of the grace of the start by cluster.
        self._starts_until: dict[str, float] = {}
        #: When each cluster was last seen paused.
        self._paused_at: dict[str, float] = {}

    def apply(self, facts: ClusterFacts, incidents: Iterable[Incident], created_at: float) -> ClusterFacts:
        """Return the facts of a cluster; while it waits for its first poll, those of one that is not blind.

        `incidents`: the open ones; one about Refloat itself stays until there is data. `created_at`: when the cluster
        was added.
        """
        if facts.is_paused:
            self._paused_at[facts.cluster] = facts.now
            return facts
        if not facts.can_read:
            return facts
        starts_until = self._starts_until.setdefault(facts.cluster, facts.now + self._start_grace_seconds)
        if facts.is_fresh:
            self._starts_until[facts.cluster] = 0.0
            return facts
        if self._is_first_round_due(facts, created_at):
            return make_paused_facts(facts.cluster, facts.now)
        if facts.now < starts_until and all(
            incident.cause.kind is not CauseKind.CONSOLE for incident in incidents
        ):
            return replace(facts, is_starting=True)
        return facts

    def _is_first_round_due(self, facts: ClusterFacts, created_at: float) -> bool:
        """Return whether a cluster has no current data because it was just added or resumed."""
        started_at = self._paused_at.get(facts.cluster, 0.0)
        if facts.as_of is None:
            started_at = max(started_at, created_at)
        return facts.now - started_at < FIRST_ROUND_SECONDS
