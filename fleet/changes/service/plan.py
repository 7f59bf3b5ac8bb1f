"""Plans to take an instance out of service, or to bring it back. docs/reference/changes.md, "Service changes"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from fleet.audit import RequestActor, record_outcome
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.campaigns.campaigns import (
    campaign_parameters_of,
    campaign_plan_of,
    save_target_agents,
)
from fleet.changes.campaigns.forecast import CampaignForecast, TargetAgents, forecast_campaign
from fleet.changes.engine import ChangeDraft
from fleet.changes.operations import drains
from fleet.changes.operations.drains import InstanceDrainRequest
from fleet.models.changes import Change
from fleet.models.drains import Drain
from fleet.monitoring.last_tunnels import (
    describe_unreachable_agents,
    find_proxy_agents,
    is_responding,
)
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.campaigns import CampaignSettings, ConnectionKind
from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.counts import format_agent_count
from fleet.vocabulary.instances import InstanceKind


@dataclass(frozen=True, slots=True)
class ServiceForecast:
    """What happens to the agents of an instance that is taken out of service."""

    target_agents: TargetAgents
    campaign: CampaignForecast
    #: Why Refloat cannot move the agents of a proxy that does not respond, as sentences; empty: it responds.
    unreachable_text: str = ""

    @property
    def moves_agents(self) -> bool:
        """Whether a campaign can move at least one agent."""
        return bool(self.campaign.reconnect_count)


def forecast_out_of_service(table: FleetTable, view: InstanceView) -> ServiceForecast:
    """Return the forecast of taking an instance out of service. Raises NoEvidenceError without current data."""
    facts = view.facts
    if facts.kind is InstanceKind.AUTH:
        # Also agents that it strands, and if it does not respond: requests reach them through their tunnels.
        indices = np.flatnonzero(table.memory["last_auth"] == facts.index)
        target_agents = TargetAgents(indices, f"of {facts.name}", (facts.id,), ConnectionKind.AUTH)
        return ServiceForecast(target_agents, forecast_campaign(table, target_agents))
    agents = find_proxy_agents(table, view)
    target_agents = TargetAgents(
        agents.remaining_agents, f"of {facts.name}", (facts.id,), ConnectionKind.TUNNEL
    )
    unreachable_text = (
        describe_unreachable_agents(facts.name, len(agents.remaining_agents), len(agents.moved_agents))
        if is_cut_off(view)
        else ""
    )
    return ServiceForecast(target_agents, forecast_campaign(table, target_agents), unreachable_text)


def is_cut_off(view: InstanceView) -> bool:
    """Return whether an instance is a proxy that does not respond, so that its agents cannot be asked to move."""
    return view.facts.kind is InstanceKind.PROXY and not is_responding(view)


def plan_out_of_service(
    cluster: str,
    table: FleetTable,
    view: InstanceView,
    settings: CampaignSettings,
    actor: RequestActor,
    now: datetime,
    shuffle: Callable[[list[int]], None],
    *,
    undone_change_id: int | None = None,
) -> Change:
    """Plan to drain an instance and to move its agents, and return the change; see `docs/reference/changes.md`.

    Without an agent that can move, the change only drains. Raises NoEvidenceError.
    """
    forecast = forecast_out_of_service(table, view)
    facts, campaign = view.facts, forecast.campaign
    if not forecast.moves_agents:
        return plan_drain(
            cluster,
            view,
            actor,
            now,
            is_drained=True,
            notes=_notes_of(view, forecast),
            affected_count=campaign.target_count,
            undone_change_id=undone_change_id,
        )
    question = f"Take {facts.name} out of service and move {format_agent_count(campaign.reconnect_count)}?"
    draft = ChangeDraft(
        kind=ChangeKind.SERVICE,
        title=f"Take {facts.name} out of service",
        before=document_of(view, is_drained=is_drain_requested(cluster, view)),
        after=document_of(view, is_drained=True),
        plan={
            "question": question,
            "notes": _notes_of(view, forecast),
            **campaign_plan_of(table, forecast.target_agents, campaign, settings),
        },
        affected_count=campaign.target_count,
        parameters=campaign_parameters_of(forecast.target_agents, settings),
        undone_change_id=undone_change_id,
    )
    return engine.create_change(
        cluster,
        draft,
        actor,
        now,
        lambda change: save_target_agents(change, table, forecast.target_agents.indices.tolist(), shuffle),
    )


def plan_drain(
    cluster: str,
    view: InstanceView,
    actor: RequestActor,
    now: datetime,
    *,
    is_drained: bool,
    notes: Sequence[str] = (),
    affected_count: int | None = None,
    undone_change_id: int | None = None,
) -> Change:
    """Plan to drain an instance without moving its agents, or to bring it back, and return the change.

    `affected_count`: its agents; None: as many as it has now, or had when it last responded.
    """
    draft = _draft_drain(
        cluster,
        view,
        is_drained=is_drained,
        notes=notes,
        affected_count=affected_count,
        undone_change_id=undone_change_id,
    )
    return engine.create_change(cluster, draft, actor, now)


def request_drain(
    cluster: str,
    view: InstanceView,
    actor: RequestActor,
    reason: str,
    clock: Callable[[], datetime],
    *,
    is_drained: bool,
    affected_count: int | None = None,
) -> tuple[Change, Drain]:
    """Drain an instance without moving its agents, or bring it back, at once; return the change and its request.

    `fleet.tasks.apply_drains` sends the request. `affected_count`: as in `plan_drain`.
    """
    draft = _draft_drain(cluster, view, is_drained=is_drained, affected_count=affected_count)
    attempt = actor.create_attempt(
        _action_of(is_drained=is_drained),
        cluster,
        view.facts.name,
        reason=reason,
        before=draft.before,
        after=draft.after,
    )
    request = InstanceDrainRequest(view.facts.id, view.facts.name, is_drained, reason, actor)
    with record_outcome(attempt, clock):
        change = engine.create_request(
            cluster,
            draft,
            actor,
            reason,
            clock(),
            ChangeState.VERIFYING,
            lambda _: drains.save_drain_request(cluster, request, clock()),
        )
        attempt.change_id = change.pk
    return change, Drain.objects.get(cluster=cluster, instance=view.facts.id)


def store_drain(change: Change, actor: RequestActor, now: datetime) -> None:
    """Store the request of a service change, with an audit entry, for `fleet.tasks.apply_drains` to send."""
    document = engine.document_of(change)
    request = InstanceDrainRequest(
        document["instance"], document["name"], document["is_drained"], change.reason, actor
    )
    attempt = actor.create_attempt(
        _action_of(is_drained=request.is_drained),
        change.cluster_id,
        request.name,
        reason=change.reason,
        before=change.before,
        after=change.after,
    )
    attempt.change_id = change.pk
    with record_outcome(attempt, lambda: now):
        drains.save_drain_request(change.cluster_id, request, now)


def require_view(table: FleetTable, instance_id: str, name: str) -> InstanceView:
    """Return an instance of the fleet. Raises ChangeRefusedError when it was deregistered."""
    for view in table.instances.values():
        if view.facts.id == instance_id:
            return view
    raise ChangeRefusedError(f"{name} is no longer in the fleet")


def document_of(view: InstanceView, *, is_drained: bool) -> dict[str, Any]:
    """Return whether an instance is drained, as a document of a change."""
    return {
        "instance": view.facts.id,
        "name": view.facts.name,
        "kind": view.facts.kind.value,
        "is_drained": is_drained,
    }


def is_drain_requested(cluster: str, view: InstanceView) -> bool:
    """Return whether an instance is drained, or will be as soon as it responds."""
    row = Drain.objects.filter(cluster=cluster, instance=view.facts.id).first()
    return view.drain_request is not None if row is None else row.is_drained


def has_campaign(change: Change) -> bool:
    """Return whether a service change moves agents."""
    return "settings" in change.parameters


def drains_first(document: Mapping[str, Any]) -> bool:
    """Return whether the drain comes before the campaign.

    A proxy that drains keeps its tunnels, and gets no agents back. A draining auth loses all agents with their next
    heartbeats, so an auth drains when the campaign has moved its agents at its own rate.
    """
    return bool(document["kind"] == InstanceKind.PROXY)


def _draft_drain(
    cluster: str,
    view: InstanceView,
    *,
    is_drained: bool,
    notes: Sequence[str] = (),
    affected_count: int | None = None,
    undone_change_id: int | None = None,
) -> ChangeDraft:
    name = view.facts.name
    title = f"Drain {name}" if is_drained else f"Bring {name} back into service"
    return ChangeDraft(
        kind=ChangeKind.SERVICE,
        title=title,
        before=document_of(view, is_drained=is_drain_requested(cluster, view)),
        after=document_of(view, is_drained=is_drained),
        plan={"question": f"{title}?", "notes": list(notes or [_effect_of(view, is_drained=is_drained)])},
        affected_count=(view.agent_count if affected_count is None else affected_count) if is_drained else 0,
        undone_change_id=undone_change_id,
    )


def _effect_of(view: InstanceView, *, is_drained: bool) -> str:
    name = view.facts.name
    if is_drained and is_cut_off(view):
        return _describe_late_drain(name)
    if not is_drained:
        return (
            f"{name} accepts new connections again. Agents move there only when they reconnect. To move some of them "
            "now, spread the agents with a campaign."
        )
    if view.facts.kind is InstanceKind.AUTH:
        return f"{name} accepts no new connections. Its agents connect to another auth with their next heartbeat."
    return f"{name} accepts no new connections and keeps its tunnels."


def _describe_late_drain(name: str) -> str:
    return f"{name} accepts no new connections as soon as it responds."


def _notes_of(view: InstanceView, service_forecast: ServiceForecast) -> list[str]:
    """Return what happens to the agents that a campaign cannot move."""
    name, kind, forecast = view.facts.name, view.facts.kind, service_forecast.campaign
    if service_forecast.unreachable_text:
        return [_describe_late_drain(name), service_forecast.unreachable_text]
    notes = []
    if kind is InstanceKind.PROXY:
        notes.append(f"{name} accepts no new connections from the start of the change.")
    else:
        notes.append(f"{name} accepts no new connections when its agents have moved.")
    if forecast.cut_off_count:
        loss = "tunnel" if kind is InstanceKind.PROXY else "auth connection"
        are_only = "is the only one" if forecast.cut_off_count == 1 else "are their only ones"
        notes.append(
            f"{format_agent_count(forecast.cut_off_count)} cannot move, and their {loss}s to {name} {are_only}: "
            f"they lose them when {name} stops."
        )
    elif forecast.skipped_count:
        notes.append(
            f"{format_agent_count(forecast.skipped_count)} need not move: they stay reachable without {name}."
        )
    return notes


def _action_of(*, is_drained: bool) -> AuditAction:
    return AuditAction.INSTANCE_DRAIN if is_drained else AuditAction.INSTANCE_UNDRAIN
