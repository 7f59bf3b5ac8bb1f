"""Suggestions for the value of a condition: names of agents, agent sets, instances, causes and alert rules."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from itertools import islice

from dashboards.shared import record_reader
from fleet.alerts import store
from fleet.alerts.matchers import escape_name
from fleet.models.incidents import Incident
from fleet.models.inventory import Instance
from fleet.monitoring.state import StateError
from fleet.vocabulary.incidents import CauseKind, IncidentState, Severity

#: Suggestions that a list shows; who needs another one types more characters.
MAX_SUGGESTIONS = 20


def find_suggestions(field: str, text: str, cluster: str, now: float) -> list[tuple[str, str]]:
    """Return values and labels of a field that contain a text, those that begin with it first."""
    needle = text.strip().lower()
    matches = (
        (position > 0, len(name), name, label)
        for name, label in dict(_read_names(field, cluster, now)).items()
        if (position := name.lower().find(needle)) >= 0
    )
    # Short names first: `agent-1` before the thousand names that begin with it.
    names = nsmallest(MAX_SUGGESTIONS, matches) if needle else islice(matches, MAX_SUGGESTIONS)
    return [(escape_name(name), label) for _, _, name, label in names]


def _read_names(field: str, cluster: str, now: float) -> Iterable[tuple[str, str]]:
    match field:
        case "agent":
            try:
                table = record_reader.reader().table(cluster, now)
            except StateError:
                return []
            return ((name, "") for name in table.names)
        case "agent_set":
            return [(name, "") for name in sorted(store.read_agent_set_patterns(cluster))]
        case "cause":
            instances = (
                Instance.objects.filter(cluster=cluster).order_by("name", "pk").values_list("name", "kind")
            )
            incidents = Incident.objects.filter(cluster=cluster).exclude(state=IncidentState.RESOLVED.value)
            causes = [(store.incident_of(row).cause, row) for row in incidents[:200]]
            return [
                *((name, kind) for name, kind in instances),
                *((cause.name, f"incident {row.pk}") for cause, row in causes),
            ]
        case "kind":
            return [(kind.value, "") for kind in CauseKind]
        case "severity":
            return [(severity.slug, "") for severity in sorted(Severity, reverse=True)]
        case "rule":
            return [(rule.name, "") for rule in store.read_rules(cluster)]
    return []
