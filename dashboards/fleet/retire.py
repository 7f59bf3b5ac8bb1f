"""Retirement of an agent from a page or by the API, and who retired it and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from dashboards.fleet.agent_selection import AgentSelection
from dashboards.shared import record_reader, request_actor
from dashboards.shared.presenters import age_ms_of
from fleet.audit import RequestActor
from fleet.changes.operations import retirements
from fleet.changes.operations.retirements import RetireTarget
from fleet.models.changes import AuditEntry, Change
from fleet.models.inventory import Agent
from fleet.models.moments import to_seconds
from fleet.monitoring.views import Explanation, FleetTable
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.verdicts import State


def is_alive(explanation: Explanation) -> bool:
    """Return whether an agent is alive: it has an unexpired heartbeat or a live tunnel."""
    expires_at = explanation.view.expires_at
    return bool(explanation.view.proxies) or (
        expires_at is not None and expires_at > record_reader.current_time()
    )


def request_retirement(
    cluster: str, explanation: Explanation, actor: RequestActor, *, should_retire: bool, reason: str
) -> Change | None:
    """Retire or reinstate an agent, and have a worker update the fleet data; return the change.

    None when the agent is retired, or not retired, already.
    """
    view = explanation.view
    target = RetireTarget(view.id, view.name, view.index)
    change = retirements.request_retirement(
        cluster, [target], actor, reason.strip(), timezone.now, is_retired=should_retire
    )
    request_actor.enqueue("fleet.tasks.apply_retired")
    return change


def request_retirements(
    cluster: str,
    table: FleetTable,
    selection: AgentSelection,
    actor: RequestActor,
    *,
    should_retire: bool,
    reason: str,
) -> Change | None:
    """Retire or reinstate the selected agents as one change; see `request_retirement`."""
    targets = [RetireTarget(table.ids[index], table.names[index], index) for index in selection.indices]
    change = retirements.request_retirement(
        cluster, targets, actor, reason.strip(), timezone.now, is_retired=should_retire
    )
    request_actor.enqueue("fleet.tasks.apply_retired")
    return change


@dataclass(frozen=True, slots=True)
class Retirement:
    """The last request to retire or reinstate an agent that is retired, or whose state has not changed yet."""

    is_retired: bool
    #: Whether the agent's state reflects the request; the next poll applies it.
    is_in_force: bool
    #: Empty and None if the audit log has no entry any more.
    actor: str = ""
    reason: str = ""
    at: datetime | None = None
    age_ms: int | None = None


def retirement_of(cluster: str, explanation: Explanation, now: float) -> Retirement | None:
    """Return who retired an agent and why, or just reinstated it; None for an agent that is not retired."""
    view = explanation.view
    is_retired = Agent.objects.filter(cluster=cluster, agent_id=view.id, is_retired=True).exists()
    has_retired_verdict = view.state is State.RETIRED
    if not is_retired and not has_retired_verdict:
        return None
    action = AuditAction.AGENT_RETIRE if is_retired else AuditAction.AGENT_REINSTATE
    entry = (
        AuditEntry.objects.filter(
            cluster=cluster, action=action.value, outcome="succeeded", after__agent=view.id
        )
        .order_by("-pk")
        .first()
    )
    if entry is None:
        return Retirement(is_retired, is_retired is has_retired_verdict)
    entry_age_ms = age_ms_of(to_seconds(entry.at), now)
    return Retirement(
        is_retired, is_retired is has_retired_verdict, entry.actor_name, entry.reason, entry.at, entry_age_ms
    )
