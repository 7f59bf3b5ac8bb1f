"""Campaigns and their agents as pages and API show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.db.models import F, QuerySet

from dashboards.changes import change_rows
from fleet.changes.campaigns import campaigns
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.protocol import durations
from fleet.vocabulary import campaigns as campaign_rules
from fleet.vocabulary.campaigns import CampaignAgentState

#: Agents on the page of a campaign, those something happened to last; all of them are in the API.
_PAGE_SIZE = 50
_TAB_STATES = (CampaignAgentState.OK, CampaignAgentState.FAILED, CampaignAgentState.SKIPPED, CampaignAgentState.ASKED)


def find_agent_rows(change: Change, state: str = "") -> QuerySet[CampaignAgent]:
    """Agents of a campaign, those something happened to first."""
    rows = change.campaign_agents.all()
    return rows.filter(state=state) if state else rows.exclude(state=CampaignAgentState.WAITING.value)


def agent_result_of(row: CampaignAgent, names: Mapping[str, str]) -> dict[str, Any]:
    """One agent of a campaign."""
    return {
        "id": row.agent_id,
        "name": row.name,
        "state": row.state,
        "reason": row.reason,
        "leaves": names.get(row.leaves, row.leaves),
        "via": names.get(row.via, row.via),
        "new_proxy": names.get(row.new_proxy, row.new_proxy),
        "new_auth": names.get(row.new_auth, row.new_auth),
        "seconds": round(row.ended_at - row.asked_at, 1) if row.asked_at and row.ended_at else None,
    }


def campaign_context(change: Change, state: str, now: float) -> dict[str, Any]:
    """A campaign: how far it is, its pace, and its agents, all or those of one state."""
    progress, names = campaigns.describe_progress(change, now), change_rows.instance_names_of(change)
    total = max(progress["total"], 1)
    offset, bar_parts = 0.0, []
    for bar_state in (*_TAB_STATES, CampaignAgentState.DUE):
        width = 100 * progress[bar_state] / total
        bar_parts.append({"name": bar_state.value, "x": round(offset, 3), "w": round(width, 3)})
        offset += width
    eta, counts = progress["eta"], {**progress, CampaignAgentState.ASKED.value: progress["asked"] + progress["due"]}
    rows = find_agent_rows(change, state if state in set(map(str, CampaignAgentState)) else "").order_by(
        F("ended_at").desc(nulls_last=True), F("asked_at").desc(nulls_last=True)
    )
    settings = campaigns.settings_of(change)
    return {
        **progress,
        "connection": change.parameters.get("connection", campaign_rules.ConnectionKind.TUNNEL.value),
        "parts": bar_parts,
        "eta_said": durations.format_seconds(round(eta)) if eta else "",
        "rows": [agent_result_of(row, names) for row in rows[:_PAGE_SIZE]],
        "more": max(rows.count() - _PAGE_SIZE, 0),
        "state": state,
        "tabs": [("", "All"), *((state_tab.value, state_tab.label) for state_tab in _TAB_STATES)],
        "figures": [(state_tab, counts[state_tab]) for state_tab in _TAB_STATES],
        "reasons": campaigns.count_by_skip_reason(change),
        "pace": [(label, f"{asdict(settings)[name]:,} {unit}".strip()) for name, (_, _, label, unit) in
                 campaign_rules.RANGES.items()],
        "window": "" if settings.window_from == settings.window_to else
        f"{campaign_rules.format_time_of_day(settings.window_from)} to {campaign_rules.format_time_of_day(settings.window_to)} UTC",
        "seconds_said": durations.format_seconds(round(change.plan.get("seconds", 0))),
    }  # fmt: skip
