"""Policies, rollouts and campaigns as pages and API show them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.db.models import QuerySet

from fleet.changes.campaigns import campaigns
from fleet.changes.policies import desired
from fleet.changes.policies.matrix import Cell, CellState, Line
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.protocol import durations
from fleet.protocol.policies.env_policies import PLURALS, Kind, Policy, of_role
from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import Mode, ServiceConfigError
from fleet.vocabulary import campaigns as campaign
from fleet.vocabulary.changes import ChangeKind, ChangeState

WORDS = {
    CellState.FREE: "not managed",
    CellState.SAME: "as wanted",
    CellState.RESTART: "restart needed",
    CellState.DRIFT: "drift",
    CellState.LEFT: "left over",
    CellState.UNKNOWN: "unknown",
}
#: Agents on the page of a campaign, those something happened to last; all of them are in the API.
_PAGE = 50


def shown(policy: Policy, text: str) -> str:
    """A value for a person; JSON as what it makes agents do."""
    if policy.kind is Kind.SWITCH:
        return {"true": "on", "false": "off"}.get(text, text)
    if policy.kind is not Kind.JSON:
        return text or "never"
    try:
        config = service_config.from_environment({policy.name: text} if text else {})
    except ServiceConfigError:
        return "unreadable"
    mode = "reconnect" if config.mode is Mode.RECONNECT else "pick_first"
    return f"{mode}, health check" if config.health_check else mode


def cell(found: Cell) -> dict[str, Any]:
    """One cell of the matrix."""
    policy = found.policy
    return {
        "name": policy.name,
        "state": found.state.value,
        "word": WORDS[found.state],
        "now": shown(policy, found.now) if found.now is not None else "?",
        "raw": found.now or "",
        "source": found.source.value if found.source else "",
        "desired": shown(policy, found.desired) if found.desired else "",
        "desired_of": found.desired_of,
        "following": shown(policy, found.following) if found.following is not None else "",
        "beneath": shown(policy, found.report.beneath.text) if found.report and found.report.beneath else "",
    }


def tables(
    lines: tuple[Line, ...], wanted: Mapping[str, Mapping[str, str]], now: float
) -> list[dict[str, Any]]:
    """One table for each role: its policies, what all of it is to run with, and its instances."""
    made = []
    for role in ("auth", "proxy"):
        here = [line for line in lines if line.role == role]
        made.append(
            {
                "role": role,
                "plural": PLURALS[role],
                "policies": of_role(role),
                "wanted": [
                    shown(policy, wanted.get(role, {}).get(policy.name, ""))
                    if policy.name in wanted.get(role, {})
                    else ""
                    for policy in of_role(role)
                ],
                "lines": [
                    {
                        "line": line,
                        "cells": [cell(one) for one in line.cells],
                        "ago": None if line.asked_at is None else max(0, round(now - line.asked_at)),
                        "own": bool(wanted.get(line.id)),
                    }
                    for line in here
                ],
            }
        )
    return made


def action(change: Change, state: str = "") -> dict[str, Any]:
    """What the page of a change shows of a rollout or a campaign, and what may be done to it."""
    now = time.time()
    running, paused = change.state == ChangeState.RUNNING, change.state == ChangeState.PAUSED
    made: dict[str, Any] = {"campaign": None, "rollout": None, "doings": []}
    if change.kind == ChangeKind.RECONNECT:
        made["campaign"] = _campaign(change, state, now)
        doings = [("pause", "Pause")] if running else [("resume", "Resume")] if paused else []
        made["doings"] = (
            [*doings, ("stop", "Stop, watch to the end"), ("abort", "Abort now")] if doings else []
        )
    elif change.kind == ChangeKind.POLICY:
        made["rollout"] = {
            **desired.progress_of(change),
            "steps": [
                {"row": row, "took": took(row.began_at, row.ended_at)} for row in change.rollout_steps.all()
            ],
            "waits_for": change.progress.get("waits_for", "") if running else "",
            "diff": policy_diff(change),
            "terms": change.parameters,
        }
        doings = [("pause", "Pause")] if running else [("resume", "Resume")] if paused else []
        made["doings"] = [*doings, ("abort", "Cancel the rest")] if doings else []
    return made


def policy_diff(change: Change) -> list[dict[str, str]]:
    """What is wanted before and after, by target and policy."""
    before, after, names = change.before or {}, change.after or {}, instance_names(change)
    return [
        {
            "target": f"all {PLURALS[target]}" if target in PLURALS else names.get(target, target),
            "name": name,
            "before": before.get(target, {}).get(name, ""),
            "after": after.get(target, {}).get(name, ""),
        }
        for target in sorted({*before, *after})
        for name in sorted({*before.get(target, {}), *after.get(target, {})})
        if before.get(target, {}).get(name) != after.get(target, {}).get(name)
    ]


def three_way(
    role: str, base: Mapping[str, str], theirs: Mapping[str, str], mine: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The policies that either of two people changed, in all three versions."""
    return [
        {
            "label": policy.label,
            "base": base.get(policy.name, ""),
            "theirs": theirs.get(policy.name, ""),
            "mine": mine.get(policy.name, ""),
            "clash": len({one.get(policy.name, "") for one in (base, theirs, mine)}) == 3,
        }
        for policy in of_role(role)
        if len({one.get(policy.name, "") for one in (base, theirs, mine)}) > 1
    ]


def took(began_at: float, ended_at: float) -> str:
    """How long something took; empty while it does."""
    return durations.format_seconds(round(ended_at - began_at, 1)) if began_at and ended_at else ""


def results(change: Change, state: str = "") -> QuerySet[CampaignAgent]:
    """Agents of a campaign, those something happened to first."""
    rows = change.campaign_agents.all()
    return rows.filter(state=state) if state else rows.exclude(state="waiting")


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


def instance_names(change: Change) -> dict[str, str]:
    """Names of instances by id."""
    return dict(change.cluster.instances.values_list("instance_id", "name"))


def _campaign(change: Change, state: str, now: float) -> dict[str, Any]:
    found, names = campaigns.described(change, now), instance_names(change)
    total = max(found["total"], 1)
    x, parts = 0.0, []
    for part in ("ok", "failed", "skipped", "asked", "due"):
        width = 100 * found[part] / total
        parts.append({"name": part, "x": round(x, 3), "w": round(width, 3)})
        x += width
    eta = found["eta"]
    rows = results(change, state if state in set(map(str, campaign.AgentState)) else "").order_by(
        "-ended_at", "-asked_at"
    )
    pace = campaigns.pace_of(change)
    return {
        **found,
        "connection": change.parameters.get("connection", campaign.Connection.TUNNEL.value),
        "in_flight": found["asked"] + found["due"],
        "parts": parts,
        "eta_said": durations.format_seconds(round(eta)) if eta else "",
        "rows": [agent_result(row, names) for row in rows[:_PAGE]],
        "more": max(rows.count() - _PAGE, 0),
        "state": state,
        "tabs": [("", "All"), ("ok", "Moved"), ("failed", "Failed"), ("skipped", "Skipped"), ("asked", "Under way")],
        "reasons": campaigns.skipped_by_reason(change),
        "pace": [(label, f"{asdict(pace)[name]:,} {unit}".strip()) for name, (_, _, label, unit) in
                 campaign.RANGES.items()],
        "window": "" if pace.window_from == pace.window_to else
        f"{campaign.clock_of(pace.window_from)} to {campaign.clock_of(pace.window_to)} UTC",
        "seconds_said": durations.format_seconds(round(change.plan.get("seconds", 0))),
    }  # fmt: skip
