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
from fleet.vocabulary import campaigns as campaign
from fleet.vocabulary.campaigns import AgentState

#: Agents on the page of a campaign, those something happened to last; all of them are in the API.
_PAGE = 50
_TABS = (AgentState.OK, AgentState.FAILED, AgentState.SKIPPED, AgentState.ASKED)


def results(change: Change, state: str = "") -> QuerySet[CampaignAgent]:
    """Agents of a campaign, those something happened to first."""
    rows = change.campaign_agents.all()
    return rows.filter(state=state) if state else rows.exclude(state=AgentState.WAITING.value)


def agent_result(row: CampaignAgent, names: Mapping[str, str]) -> dict[str, Any]:
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


def campaign_page(change: Change, state: str, now: float) -> dict[str, Any]:
    """A campaign: how far it is, its pace, and its agents, all or those of one state."""
    found, names = campaigns.described(change, now), change_rows.instance_names(change)
    total = max(found["total"], 1)
    x, parts = 0.0, []
    for part in (*_TABS, AgentState.DUE):
        width = 100 * found[part] / total
        parts.append({"name": part.value, "x": round(x, 3), "w": round(width, 3)})
        x += width
    eta, counts = found["eta"], {**found, AgentState.ASKED.value: found["asked"] + found["due"]}
    rows = results(change, state if state in set(map(str, AgentState)) else "").order_by(
        F("ended_at").desc(nulls_last=True), F("asked_at").desc(nulls_last=True)
    )
    pace = campaigns.pace_of(change)
    return {
        **found,
        "connection": change.parameters.get("connection", campaign.Connection.TUNNEL.value),
        "parts": parts,
        "eta_said": durations.format_seconds(round(eta)) if eta else "",
        "rows": [agent_result(row, names) for row in rows[:_PAGE]],
        "more": max(rows.count() - _PAGE, 0),
        "state": state,
        "tabs": [("", "All"), *((one.value, one.label) for one in _TABS)],
        "figures": [(one, counts[one]) for one in _TABS],
        "reasons": campaigns.skipped_by_reason(change),
        "pace": [(label, f"{asdict(pace)[name]:,} {unit}".strip()) for name, (_, _, label, unit) in
                 campaign.RANGES.items()],
        "window": "" if pace.window_from == pace.window_to else
        f"{campaign.clock_of(pace.window_from)} to {campaign.clock_of(pace.window_to)} UTC",
        "seconds_said": durations.format_seconds(round(change.plan.get("seconds", 0))),
    }  # fmt: skip
