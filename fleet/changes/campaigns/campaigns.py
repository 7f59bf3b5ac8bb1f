"""Plans and progress of reconnect campaigns, without connections to instances. docs/reference/campaigns.md.

The actions of operators are in `kind.py`; the steps of a running campaign are in `run.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.db.models import Count

from fleet.audit import RequestActor
from fleet.changes import engine
from fleet.changes.campaigns.forecast import (
    CampaignForecast,
    TargetAgents,
    forecast_campaign,
    require_moves,
)
from fleet.changes.campaigns.move_strategies import MoveStrategy, create_move_strategy
from fleet.changes.engine import ChangeDraft
from fleet.changes.load_forecast import loads_to_json
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.models.moments import to_seconds
from fleet.monitoring.views import FleetTable
from fleet.vocabulary import campaigns
from fleet.vocabulary.campaigns import CampaignAgentState, CampaignCounts, CampaignSettings, ConnectionKind
from fleet.vocabulary.changes import PLAN_TTL_SECONDS, ChangeKind, ChangeState
from fleet.vocabulary.counts import format_agent_count

_BATCH_SIZE = 1000
#: Reasons of skipped agents in a plan, the most frequent ones.
_MAX_SKIP_REASONS = 8


def plan_campaign(
    cluster: str,
    table: FleetTable,
    target_agents: TargetAgents,
    settings: CampaignSettings,
    actor: RequestActor,
    now: datetime,
    shuffle: Callable[[list[int]], None],
) -> Change:
    """Plan a campaign, fix its target agents, and return the change.

    Raises NoEvidenceError; ChangeRefusedError when no agent can move.
    """
    forecast = forecast_campaign(table, target_agents)
    require_moves(forecast, target_agents.description)
    _delete_expired_plan_agents(cluster, now)
    draft = ChangeDraft(
        kind=ChangeKind.RECONNECT,
        title=_title_of(target_agents, forecast),
        before=None,
        after={
            "target_agents": target_agents.description,
            "agent_count": forecast.target_count,
            "connection": target_agents.connection.value,
        },
        plan={
            "question": _question_of(target_agents, forecast),
            "action": _action_of(target_agents, forecast),
            **campaign_plan_of(table, target_agents, forecast, settings),
        },
        affected_count=forecast.target_count,
        parameters=campaign_parameters_of(target_agents, settings),
    )
    return engine.create_change(
        cluster,
        draft,
        actor,
        now,
        lambda change: save_target_agents(change, table, target_agents.indices.tolist(), shuffle),
    )


def campaign_plan_of(
    table: FleetTable, target_agents: TargetAgents, forecast: CampaignForecast, settings: CampaignSettings
) -> dict[str, Any]:
    """Return a forecast as the plan of a change."""
    return {
        "reconnect_count": forecast.reconnect_count,
        "connection": target_agents.connection.value,
        "skipped_by_reason": dict(list(forecast.skipped_by_reason.items())[:_MAX_SKIP_REASONS]),
        "agents_by_instance": dict(forecast.agents_by_instance),
        "destinations": forecast.destinations,
        "loads": loads_to_json(forecast.loads),
        "duration_seconds": campaigns.estimate_remaining_seconds(
            CampaignCounts(pending_count=forecast.reconnect_count), settings
        ),
        "as_of": table.as_of,
    }


def campaign_parameters_of(target_agents: TargetAgents, settings: CampaignSettings) -> dict[str, Any]:
    """Return what the steps of a campaign need, as parameters of its change."""
    return {
        "settings": asdict(settings),
        "instances_to_leave": list(target_agents.instances_to_leave),
        "connection": target_agents.connection.value,
    }


def _title_of(target_agents: TargetAgents, forecast: CampaignForecast) -> str:
    """Return the title, which names the filter, and the instance to leave unless the filter does."""
    if target_agents.is_spread:
        return f"Spread {format_agent_count(forecast.target_count)}{_describe_spread(target_agents)}"
    verb = (
        "Reconnect" if target_agents.connection is ConnectionKind.TUNNEL else "Move the auth connections of"
    )
    name = forecast.only_instance_to_leave
    source_note = f", off {name}" if name and name not in target_agents.description else ""
    filter_text = target_agents.description[:150]
    return f"{verb} {format_agent_count(forecast.target_count)} {filter_text}{source_note}"[:200]


def _action_of(target_agents: TargetAgents, forecast: CampaignForecast) -> str:
    """Return what the campaign does, for its button: with the instance to leave, if that is only one."""
    agents_text, name = format_agent_count(forecast.reconnect_count), forecast.only_instance_to_leave
    if target_agents.is_spread:
        return f"Spread {agents_text}"
    return f"Move {agents_text} off {name}" if name else f"Reconnect {agents_text}"


def _question_of(target_agents: TargetAgents, forecast: CampaignForecast) -> str:
    """Return the question that a person confirms."""
    skipped_note = f" ({forecast.skipped_count:,} more will be skipped)" if forecast.skipped_count else ""
    instance_kind = "auth" if target_agents.connection is ConnectionKind.AUTH else "proxy"
    destination = (
        _describe_spread(target_agents) if target_agents.is_spread else f" to another {instance_kind}"
    )
    return f"{_action_of(target_agents, forecast)}{destination}{skipped_note}?"


def _describe_spread(target_agents: TargetAgents) -> str:
    instance_kinds = "auths" if target_agents.connection is ConnectionKind.AUTH else "proxies"
    return f" evenly over the {instance_kinds}"


def move_strategy_of(change: Change) -> MoveStrategy:
    """Return how a campaign moves its agents; campaigns without a stored connection move tunnels."""
    parameters = change.parameters
    return create_move_strategy(
        parameters.get("connection", ConnectionKind.TUNNEL), parameters.get("instances_to_leave", ())
    )


def settings_of(change: Change) -> CampaignSettings:
    """Return the settings of a campaign."""
    return CampaignSettings(**change.parameters["settings"])


def counts_of(change: Change) -> CampaignCounts:
    """Return the number of agents of a campaign in each state."""
    rows = change.campaign_agents.values_list("state").annotate(n=Count("pk")).order_by()
    return CampaignCounts(**{count_field_of(state): int(count) for state, count in rows})


def count_field_of(state: str) -> str:
    """Return the field of `CampaignCounts` for a state: `in_progress_count`."""
    return f"{state.replace('-', '_')}_count"


def advisory_id_of(change: Change) -> str:
    """Return the advisory id of a campaign: a proxy asks no agent twice under the same id."""
    return f"campaign-{change.pk}-{int(to_seconds(change.created_at))}"


def close_campaign(
    change: Change, reason: str, now: float, actual_loads: Mapping[str, int] = MappingProxyType({})
) -> Change:
    """Skip every agent that has no result yet, and store the totals, with the loads of the instances where known."""
    skip_pending_agents(change, reason, now)
    change.campaign_agents.filter(state=CampaignAgentState.IN_PROGRESS.value).update(
        state=CampaignAgentState.SKIPPED.value,
        reason=f"result unknown: {reason} while the agent was in progress"[:255],
        ended_at=now,
    )
    outcome: dict[str, Any] = {**asdict(counts_of(change)), "end_reason": reason}
    if actual_loads:
        outcome["actual_loads"] = dict(actual_loads)
    return engine.update_change(change, outcome=outcome)


def skip_pending_agents(change: Change, reason: str, now: float) -> None:
    """Skip every agent that Refloat has not asked to reconnect yet."""
    pending_states = (CampaignAgentState.PENDING.value, CampaignAgentState.SCHEDULED.value)
    change.campaign_agents.filter(state__in=pending_states).update(
        state=CampaignAgentState.SKIPPED.value, reason=reason[:255], ended_at=now
    )


def count_agents_by_reason(change: Change) -> list[tuple[str, str, int]]:
    """Return (state, reason, number) of the failed and skipped agents, most frequent first."""
    rows = (
        change.campaign_agents.filter(
            state__in=(CampaignAgentState.FAILED.value, CampaignAgentState.SKIPPED.value)
        )
        .values_list("state", "reason")
        .annotate(n=Count("pk"))
        .order_by("-n")
    )
    return [(str(state), str(reason), int(count)) for state, reason, count in rows]


def main_skip_reason_of(change: Change) -> str:
    """Return the most frequent reason of skipped agents; empty when no agent was skipped."""
    reasons = count_agents_by_reason(change)
    return next((reason for state, reason, _ in reasons if state == CampaignAgentState.SKIPPED), "")


def save_target_agents(
    change: Change, table: FleetTable, indices: Sequence[int], shuffle: Callable[[list[int]], None]
) -> None:
    """Store the target agents of a campaign, in an order that `shuffle` makes."""
    order = list(indices)
    shuffle(order)
    rows = (
        CampaignAgent(
            change=change, position=position, agent_id=table.ids[index], name=table.names[index][:255]
        )
        for position, index in enumerate(order)
    )
    CampaignAgent.objects.bulk_create(rows, batch_size=_BATCH_SIZE)


def _delete_expired_plan_agents(cluster: str, now: datetime) -> None:
    """Delete the agents of plans that are too old to be confirmed."""
    expired_plans = Change.objects.filter(
        cluster=cluster,
        kind=ChangeKind.RECONNECT.value,
        state=ChangeState.PLANNED.value,
        created_at__lt=now - timedelta(seconds=PLAN_TTL_SECONDS[ChangeKind.RECONNECT]),
    )
    CampaignAgent.objects.filter(change__in=expired_plans).delete()


def progress_of(change: Change, now: float) -> dict[str, Any]:
    """Return the progress of a campaign, for the page and the API."""
    counts, settings = counts_of(change), settings_of(change)
    canaries_finished_at = change.progress.get("canaries_finished_at")
    has_estimate = change.state == ChangeState.RUNNING and not campaigns.is_waiting_for_canaries(
        counts, settings, canaries_finished_at
    )
    return {
        **asdict(counts),
        "total_count": counts.total_count,
        "finished_count": counts.finished_count,
        "percent": 100 * counts.finished_count // max(counts.total_count, 1),
        "eta_seconds": campaigns.estimate_remaining_seconds(
            counts, settings, canaries_finished_at=canaries_finished_at, now=now
        )
        if has_estimate
        else None,
        "waiting_for": str(change.progress.get("waiting_for", ""))
        if change.state == ChangeState.RUNNING
        else "",
        "resume_warning": campaigns.describe_resume_risk(counts, settings)
        if change.state == ChangeState.PAUSED
        else "",
    }
