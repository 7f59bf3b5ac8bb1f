"""Policies and rollouts as pages and API show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards.changes import change_rows
from fleet.changes.policies import desired
from fleet.changes.policies.matrix import Cell, Line
from fleet.models.changes import Change
from fleet.protocol import durations
from fleet.protocol.policies.env_policies import PLURALS, PolicyValueKind, EnvPolicy, of_role
from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import ServiceConfigError
from fleet.vocabulary.changes import ChangeState


def shown(policy: EnvPolicy, text: str) -> str:
    """A value for a person; JSON as what it makes agents do."""
    if policy.kind is PolicyValueKind.SWITCH:
        return {"true": "on", "false": "off"}.get(text, text)
    if policy.kind is not PolicyValueKind.JSON:
        return text or "never"
    try:
        config = service_config.from_environment({policy.name: text} if text else {})
    except ServiceConfigError:
        return "unreadable"
    return f"{config.mode}, health check" if config.health_check else config.mode.value


def cell(found: Cell) -> dict[str, Any]:
    """One cell of the matrix."""
    policy = found.policy
    return {
        "name": policy.name,
        "state": found.state.value,
        "word": found.state.label,
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


def rollout(change: Change) -> dict[str, Any]:
    """A rollout: its instances, how far they are, and what is desired of them."""
    return {
        **desired.progress_of(change),
        "steps": [
            {"row": row, "took": took(row.began_at, row.ended_at)} for row in change.rollout_steps.all()
        ],
        "waits_for": change.progress.get("waits_for", "") if change.state == ChangeState.RUNNING else "",
        "diff": policy_diff(change),
        "terms": change.parameters,
    }


def policy_diff(change: Change) -> list[dict[str, str]]:
    """What is wanted before and after, by target and policy."""
    before, after, names = change.before or {}, change.after or {}, change_rows.instance_names(change)
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


def took(began_at: float | None, ended_at: float | None) -> str:
    """How long something took; empty while it does."""
    return durations.format_seconds(round(ended_at - began_at, 1)) if began_at and ended_at else ""
