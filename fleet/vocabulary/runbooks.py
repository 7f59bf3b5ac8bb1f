"""The runbooks, one per cause of incidents, and their addresses. Pure. docs/reference/alerts.md, "Runbooks"."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from fleet.vocabulary.enum_types import LabelledEnum
from fleet.vocabulary.incidents import CauseKind

#: Path of the list of runbooks, below the prefix of a cluster.
RUNBOOKS_PATH = "/alerts/runbooks/"


class RunbookCause(LabelledEnum):
    """What a runbook is about. The values are in addresses and in the database."""

    AUTH = "auth", "Auth failed"
    PROXY = "proxy", "Proxy failed"
    BACKEND = "backend", "Auth backend failed"
    REGION = "region", "Region failed"
    AGENTS = "agents", "Hosts or networks of agents failed"
    VERSION = "version", "New version fails"
    CLUSTER = "cluster", "Cluster unreachable"
    CONSOLE = "console", "No monitoring data"
    DRIFT = "drift", "Policy drift"
    #: No failure: nothing is urgent.
    EXCESS = "excess", "Excess tunnels"


#: The runbook of each kind of cause. Incidents of the whole fleet have one by the id of their cause.
RUNBOOK_BY_CAUSE_KIND: Mapping[CauseKind, RunbookCause] = {
    CauseKind.CONSOLE: RunbookCause.CONSOLE,
    CauseKind.CLUSTER: RunbookCause.CLUSTER,
    CauseKind.BACKEND: RunbookCause.BACKEND,
    CauseKind.REGION: RunbookCause.REGION,
    CauseKind.AUTH: RunbookCause.AUTH,
    CauseKind.GROUP: RunbookCause.PROXY,
    CauseKind.PROXY: RunbookCause.PROXY,
    CauseKind.AGENTS: RunbookCause.AGENTS,
    CauseKind.FLEET: RunbookCause.AGENTS,
    CauseKind.IDENTITY: RunbookCause.CLUSTER,
}


def runbook_path_of(cause: RunbookCause, *, incident_number: int | None = None, instance_id: str = "") -> str:
    """Return the path of a runbook below the prefix of a cluster, about one incident or one instance if given."""
    query: dict[str, str] = {}
    if incident_number is not None:
        query["incident"] = str(incident_number)
    if instance_id:
        query["instance"] = instance_id
    return f"{RUNBOOKS_PATH}{cause.value}/{f'?{urlencode(query)}' if query else ''}"
