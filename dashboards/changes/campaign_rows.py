"""Presents campaigns and their agents for pages and the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.db.models import Count, F, QuerySet

from dashboards.changes import change_rows
from dashboards.changes.load_bars import describe_difference, load_bars_of
from dashboards.changes.pictures.campaign_chart import CampaignChart, campaign_chart_of
from fleet.changes.campaigns import campaigns
from fleet.changes.load_forecast import loads_of_plan
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.models.moments import to_seconds
from fleet.protocol import durations
from fleet.vocabulary import campaigns as campaign_rules
from fleet.vocabulary.campaigns import CampaignAgentState, CampaignSettings
from fleet.vocabulary.changes import ChangeState

#: Agents on the page of a campaign, those with the newest results; the API has all of them.
_PAGE_SIZE = 50
_TAB_STATES = (
    CampaignAgentState.SUCCEEDED,
    CampaignAgentState.FAILED,
    CampaignAgentState.SKIPPED,
    CampaignAgentState.IN_PROGRESS,
)


def find_agent_rows(change: Change, agent_state: str = "") -> QuerySet[CampaignAgent]:
    """Return the agents of a campaign in one state; all but the pending ones without `state`."""
    rows = change.campaign_agents.all()
    return (
        rows.filter(state=agent_state)
        if agent_state
        else rows.exclude(state=CampaignAgentState.PENDING.value)
    )


def campaign_agent_row_of(row: CampaignAgent, instance_names: Mapping[str, str]) -> dict[str, Any]:
    """Return one agent of a campaign as a row. `names`: names of instances by id."""
    return {
        "id": row.agent_id,
        "name": row.name,
        "state": row.state,
        "reason": row.reason,
        "from_instance": instance_names.get(row.from_instance, row.from_instance),
        "via_proxy": instance_names.get(row.via_proxy, row.via_proxy),
        "new_proxy": instance_names.get(row.new_proxy, row.new_proxy),
        "new_auth": instance_names.get(row.new_auth, row.new_auth),
        "duration_seconds": round(row.ended_at - row.requested_at, 1)
        if row.requested_at and row.ended_at
        else None,
    }


def campaign_context_of(change: Change, agent_state: str, now: float) -> dict[str, Any]:
    """Return a campaign for its page: progress, settings, and agents, all or those in one state."""
    progress, names = campaigns.progress_of(change, now), change_rows.instance_names_of(change)
    total_count = max(progress["total_count"], 1)
    offset, bar_parts = 0.0, []
    for bar_state in (*_TAB_STATES, CampaignAgentState.SCHEDULED):
        width = 100 * progress[campaigns.count_field_of(bar_state)] / total_count
        bar_parts.append({"name": bar_state.value, "x": round(offset, 3), "w": round(width, 3)})
        offset += width
    eta = progress["eta_seconds"]
    counts = {
        **progress,
        "in_progress_count": progress["in_progress_count"] + progress["scheduled_count"],
    }
    rows = find_agent_rows(
        change, agent_state if agent_state in set(map(str, CampaignAgentState)) else ""
    ).order_by(F("ended_at").desc(nulls_last=True), F("requested_at").desc(nulls_last=True))
    settings = campaigns.settings_of(change)
    load_bars = load_bars_of(loads_of_plan(change.plan), change.outcome.get("actual_loads", {}))
    return {
        **progress,
        "connection": change.parameters.get("connection", campaign_rules.ConnectionKind.TUNNEL.value),
        "parts": bar_parts,
        "eta_text": durations.format_readable(round(eta)) if eta else "",
        "rows": [
            {**campaign_agent_row_of(row, names), "label": CampaignAgentState(row.state).label}
            for row in rows[:_PAGE_SIZE]
        ],
        "more": max(rows.count() - _PAGE_SIZE, 0),
        "state": agent_state,
        "tabs": [("", "All"), *((tab_state.value, tab_state.label.capitalize()) for tab_state in _TAB_STATES)],
        "figures": [(tab_state, counts[campaigns.count_field_of(tab_state)]) for tab_state in _TAB_STATES],
        "reasons": campaigns.count_agents_by_reason(change),
        "settings": [(label, f"{asdict(settings)[name]:,} {unit.replace('seconds', 's')}")
                     for name, (_, _, label, unit) in campaign_rules.SETTING_RANGES.items()],
        "window": "" if settings.window_start == settings.window_end else
        f"{campaign_rules.format_time_of_day(settings.window_start)} to "
        f"{campaign_rules.format_time_of_day(settings.window_end)} UTC",
        "chart": _chart_of(change, progress, settings, now),
        "load_bars": load_bars,
        "load_sentence": describe_difference(load_bars),
        "actual_duration_text": _format_actual_duration(change),
        "duration_text": durations.format_readable(round(change.plan.get("duration_seconds", 0))),
    }  # fmt: skip


def _format_actual_duration(change: Change) -> str:
    """Return how long a campaign took; empty while it runs."""
    if change.started_at is None or change.ended_at is None:
        return ""
    return durations.format_readable(round(to_seconds(change.ended_at) - to_seconds(change.started_at)))


def _chart_of(
    change: Change, progress: Mapping[str, Any], settings: CampaignSettings, now: float
) -> CampaignChart | None:
    """Return the waves of a campaign. The database counts its agents: there may be many thousands."""
    moving_count = progress["total_count"] - progress["skipped_count"]
    if change.state == ChangeState.PLANNED or not progress["total_count"]:
        moving_count = change.plan.get("reconnect_count", 0)
    started_at = None if change.started_at is None else to_seconds(change.started_at)
    ended_at = None if change.ended_at is None else to_seconds(change.ended_at)
    results: list[tuple[float, str, int]] = []
    if started_at is not None:
        # The agents of one step have the same time.
        rows = (
            change.campaign_agents.filter(ended_at__isnull=False)
            .values_list("ended_at", "state")
            .annotate(agent_count=Count("pk"))
            .order_by("ended_at")
        )
        results = [(max(at - started_at, 0.0), str(state), int(count)) for at, state, count in rows if at]
    return campaign_chart_of(
        moving_count,
        settings,
        float(change.plan.get("duration_seconds", 0.0)),
        results,
        None if started_at is None else max((ended_at or now) - started_at, 0.0),
        is_running=ended_at is None,
    )
