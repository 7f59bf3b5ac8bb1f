"""Choose the runbook of an incident by its cause. Pure. docs/reference/alerts.md, "Runbooks"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.alerts.findings import INSTANCE_DRIFT_CAUSE_ID
from fleet.alerts.rules import RuleKind
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.runbooks import RUNBOOK_BY_CAUSE_KIND, RunbookCause
from fleet.vocabulary.verdicts import Reason


@dataclass(frozen=True, slots=True)
class RunbookFacts:
    """What decides which runbook an incident has."""

    cause: Cause
    #: The instances of the cause got another version shortly before, or one version sets the affected agents apart.
    has_new_version: bool = False


#: Runbooks of fleet-wide causes, whose ids are rule kinds or the drift of instances.
_RUNBOOK_BY_FLEET_CAUSE: Mapping[str, RunbookCause] = {
    RuleKind.RATE: RunbookCause.AGENTS,
    RuleKind.EXCESS: RunbookCause.EXCESS,
    RuleKind.DRIFT: RunbookCause.DRIFT,
    INSTANCE_DRIFT_CAUSE_ID: RunbookCause.DRIFT,
}
#: Runbooks of agents without a failing instance as the cause, by their reason; all others have that of their hosts.
_RUNBOOK_BY_REASON: Mapping[str, RunbookCause] = {
    Reason.AUTH_UNHEALTHY.slug: RunbookCause.AUTH,
    #: With pick_first, agents stay with an auth that does not renew their heartbeats.
    Reason.POLICY_OFF.slug: RunbookCause.AUTH,
    Reason.PROXY_UNHEALTHY.slug: RunbookCause.PROXY,
    Reason.PROXY_EXPIRED.slug: RunbookCause.PROXY,
    Reason.BACKEND_DOWN.slug: RunbookCause.BACKEND,
    Reason.CLUSTER_UNREACHABLE.slug: RunbookCause.CLUSTER,
    Reason.STALE.slug: RunbookCause.CONSOLE,
}
#: Runbooks whose incidents a new version explains better. All auths at once point to the backend, which they share.
_EXPLAINED_BY_VERSION = frozenset(
    {RunbookCause.AUTH, RunbookCause.PROXY, RunbookCause.REGION, RunbookCause.AGENTS}
)
#: Runbooks of the incidents that a kind of rule opens.
RUNBOOKS_BY_RULE_KIND: Mapping[RuleKind, tuple[RunbookCause, ...]] = {
    RuleKind.STRANDED: (
        RunbookCause.AUTH, RunbookCause.PROXY, RunbookCause.BACKEND, RunbookCause.REGION, RunbookCause.AGENTS,
        RunbookCause.VERSION,
    ),
    RuleKind.AT_RISK: (
        RunbookCause.AUTH, RunbookCause.PROXY, RunbookCause.BACKEND, RunbookCause.REGION, RunbookCause.AGENTS,
        RunbookCause.VERSION,
    ),
    RuleKind.INSTANCE: (RunbookCause.AUTH, RunbookCause.PROXY, RunbookCause.REGION, RunbookCause.VERSION),
    RuleKind.BACKEND: (RunbookCause.BACKEND,),
    RuleKind.UNREACHABLE: (RunbookCause.CLUSTER,),
    RuleKind.RATE: (RunbookCause.AGENTS, RunbookCause.VERSION),
    RuleKind.EXCESS: (RunbookCause.EXCESS,),
    RuleKind.DRIFT: (RunbookCause.DRIFT,),
    RuleKind.BLIND: (RunbookCause.CONSOLE,),
    RuleKind.IDENTITY: (RunbookCause.CLUSTER,),
}  # fmt: skip


def choose_runbook(facts: RunbookFacts) -> RunbookCause:
    """Return the runbook of an incident."""
    cause = facts.cause
    runbook = RUNBOOK_BY_CAUSE_KIND[cause.kind]
    if cause.kind is CauseKind.FLEET:
        runbook = _RUNBOOK_BY_FLEET_CAUSE.get(cause.id, runbook)
    elif cause.kind is CauseKind.AGENTS:
        runbook = _RUNBOOK_BY_REASON.get(cause.id, runbook)
    return RunbookCause.VERSION if facts.has_new_version and runbook in _EXPLAINED_BY_VERSION else runbook


def choose_runbook_of_rule_kind(kind: RuleKind, instance_kind: InstanceKind | None) -> RunbookCause | None:
    """Return where an address from before there was a runbook per cause leads; None: to the list of runbooks.

    `instance_kind`: of the instance that the address names.
    """
    runbooks = RUNBOOKS_BY_RULE_KIND[kind]
    if kind is RuleKind.RATE or len(runbooks) == 1:
        return runbooks[0]
    return None if instance_kind is None else RunbookCause(instance_kind.value)
