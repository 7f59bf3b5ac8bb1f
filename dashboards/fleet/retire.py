"""Retirement of an agent from a page or by the API, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from dashboards.shared import record_reader, request_actor
from dashboards.shared.presenters import age_ms
from fleet.audit import RequestActor
from fleet.changes.standing import retirements
from fleet.changes.standing.retirements import RetireRequest
from fleet.models.changes import AuditEntry
from fleet.models.inventory import Agent
from fleet.models.moments import to_seconds
from fleet.monitoring.views import Explanation
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.verdicts import State


def is_alive(explanation: Explanation) -> bool:
    """Return whether an agent shows a sign of life: an unexpired heartbeat, or a tunnel."""
    expires_at = explanation.view.expires_at
    return bool(explanation.view.proxies) or (
        expires_at is not None and expires_at > record_reader.current_time()
    )


def request_retirement(cluster: str, explanation: Explanation, actor: RequestActor, *, retired: bool, reason: str) -> None:
    """Keep the request to retire or to reinstate an agent, and have the record follow."""
    view = explanation.view
    request = RetireRequest(view.id, view.name, view.index, retired, reason.strip(), actor)
    retirements.record_retire_request(cluster, request, timezone.now)
    request_actor.enqueue("fleet.tasks.apply_retired")


@dataclass(frozen=True, slots=True)
class Retirement:
    """The last request of an operator about an agent that is retired, or is about to be retired or reinstated."""

    is_retired: bool
    #: Whether the agent's verdict already follows from it; the next round sees to that.
    in_force: bool
    #: Empty and None where the log of that time is gone.
    actor: str = ""
    reason: str = ""
    at: datetime | None = None
    at_ms: int | None = None


def retirement_of(cluster: str, explanation: Explanation, now: float) -> Retirement | None:
    """Return who retired an agent and why, or reinstated it a moment ago; None for one that nobody retired."""
    view = explanation.view
    is_retired = Agent.objects.filter(cluster=cluster, agent_id=view.id, retired=True).exists()
    has_retired_verdict = view.state is State.RETIRED
    if not is_retired and not has_retired_verdict:
        return None
    action = AuditAction.AGENT_RETIRE if is_retired else AuditAction.AGENT_UNRETIRE
    entry = (
        AuditEntry.objects.filter(cluster=cluster, action=action.value, outcome="done", after__agent=view.id)
        .order_by("-pk")
        .first()
    )
    if entry is None:
        return Retirement(is_retired, is_retired is has_retired_verdict)
    ago = age_ms(to_seconds(entry.at), now)
    return Retirement(is_retired, is_retired is has_retired_verdict, entry.who, entry.reason, entry.at, ago)
