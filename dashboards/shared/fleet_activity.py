"""The changes in progress in a cluster, and what ended there recently, for its headline."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import Error
from django.db.models import Q

from fleet.alerts import store
from fleet.alerts.headlines.activity import (
    MAX_RECOVERIES,
    NO_ACTIVITY,
    RECENT_SECONDS,
    Activity,
    ChangeProgress,
    RecentRecovery,
)
from fleet.alerts.notifications import headline_of as summary_of_incident
from fleet.changes import engine
from fleet.changes.campaigns import campaigns
from fleet.models.changes import Change
from fleet.models.incidents import Incident
from fleet.models.moments import to_moment, to_seconds
from fleet.vocabulary.campaigns import CampaignCounts, ConnectionKind
from fleet.vocabulary.changes import EXCLUSIVE_STATES, ChangeKind, ChangeState
from fleet.vocabulary.incidents import IncidentState
from fleet.vocabulary.rollouts import IN_PROGRESS_STATES, RolloutSettings, RolloutStepState

#: Maximum number of changes to read.
_MAX_CHANGES = 3
_PLURALS = {"auth": "auths", "proxy": "proxies"}
#: By cluster: a campaign, its step, and the number of its agents by state. Counting 100,000 agents takes a while.
_counts_by_cluster: dict[str, tuple[tuple[object, ...], CampaignCounts]] = {}


def read_activity(cluster: str, now: float) -> Activity:
    """Return what happens on purpose now, and what ended recently; nothing while the database is down."""
    try:
        return Activity(_read_changes(cluster, now), *_read_recoveries(cluster, now))
    except Error:
        return NO_ACTIVITY


def read_activity_at(cluster: str, at: float) -> Activity:
    """Return the changes that were in progress at a past moment, without their progress: it was not recorded."""
    moment = to_moment(at)
    rows = engine.select_carried_out_between(cluster, moment, moment).order_by("-started_at")[:_MAX_CHANGES]
    return Activity(
        tuple(
            replace(_describe_without_progress(row), state=ChangeState.RUNNING, ended_at=None, detail="")
            for row in rows
        )
    )


def _read_changes(cluster: str, now: float) -> tuple[ChangeProgress, ...]:
    since = to_moment(now) - timedelta(seconds=RECENT_SECONDS)
    is_running = Q(state__in=[state.value for state in EXCLUSIVE_STATES])
    rows = (
        engine.select_carried_out(cluster)
        .select_related("user")
        .filter(is_running | Q(ended_at__gte=since))
        .order_by("-started_at")[:_MAX_CHANGES]
    )
    return tuple(_describe(row) for row in rows)


def _read_recoveries(cluster: str, now: float) -> tuple[tuple[RecentRecovery, ...], int]:
    """Return the newest incidents that ended recently, and the number of all."""
    rows = Incident.objects.filter(
        cluster=cluster,
        state=IncidentState.RESOLVED.value,
        resolved_at__gte=now - RECENT_SECONDS,
        peak_count__gt=0,
    ).order_by("-resolved_at")
    incidents = [(row.pk, store.incident_of(row)) for row in rows[:MAX_RECOVERIES]]
    recoveries = tuple(
        RecentRecovery(
            number,
            summary_of_incident(incident),
            incident.cause.label,
            incident.recovering_since or incident.resolved_at,
        )
        for number, incident in incidents
        if incident.resolved_at is not None
    )
    return recoveries, rows.count() if len(recoveries) == MAX_RECOVERIES else len(recoveries)


def _describe(row: Change) -> ChangeProgress:
    match ChangeKind(row.kind):
        case ChangeKind.RECONNECT:
            return _describe_campaign(row)
        case ChangeKind.SERVICE if row.parameters:
            return _describe_campaign(row)
        case ChangeKind.POLICY:
            return _describe_rollout(row)
        case _:
            return _describe_without_progress(row)


def _describe_without_progress(row: Change) -> ChangeProgress:
    return ChangeProgress(**_common_fields_of(row))


def _describe_campaign(row: Change) -> ChangeProgress:
    counts = _count_agents(row)
    # Whoever ends a campaign early has its remaining agents skipped; they were to move all the same.
    is_cut_short = row.state == ChangeState.CANCELLED.value
    return ChangeProgress(
        **_common_fields_of(row),
        total_count=counts.total_count - (0 if is_cut_short else counts.skipped_count),
        finished_count=counts.succeeded_count + counts.failed_count,
        failed_count=counts.failed_count,
    )


def _describe_rollout(row: Change) -> ChangeProgress:
    steps = [
        (str(name), RolloutStepState(state), since)
        for name, state, since in row.rollout_steps.values_list("name", "state", "since")
    ]
    count_by_state = Counter(state for _, state, _ in steps)
    soak_seconds = RolloutSettings(**row.parameters).soak_seconds
    failed_count = count_by_state[RolloutStepState.FAILED]
    return ChangeProgress(
        **_common_fields_of(row),
        total_count=len(steps),
        skipped_count=count_by_state[RolloutStepState.SKIPPED],
        finished_count=count_by_state[RolloutStepState.SUCCEEDED] + failed_count,
        failed_count=failed_count,
        steps=tuple((name, state) for name, state, _ in steps if state in IN_PROGRESS_STATES),
        checks_end_at=max(
            (
                since + soak_seconds
                for _, state, since in steps
                if state is RolloutStepState.VERIFYING and since
            ),
            default=None,
        ),
    )


def _common_fields_of(row: Change) -> dict[str, Any]:
    state = ChangeState(row.state)
    is_running = state is ChangeState.RUNNING
    plan = row.plan or {}
    assert row.started_at is not None, "only changes that were carried out are read"
    return {
        "number": row.pk,
        "kind": ChangeKind(row.kind),
        "state": state,
        "title": row.title,
        "actor_name": row.actor_name if row.user is None else row.user.username,
        "started_at": to_seconds(row.started_at),
        "ended_at": None if row.ended_at is None else to_seconds(row.ended_at),
        "connection": ConnectionKind(plan.get("connection", ConnectionKind.TUNNEL.value)),
        "instances_to_leave": tuple(plan.get("agents_by_instance", ())),
        "instances_noun": _instances_noun_of(row),
        "detail": str(row.progress.get("waiting_for", "")) if is_running else row.detail,
    }


def _instances_noun_of(row: Change) -> str:
    """Return what a rollout restarts: `proxies`, if its desired values differ in this role only."""
    before, after = row.before or {}, row.after or {}
    targets = {target for target in {*before, *after} if before.get(target) != after.get(target)}
    return _PLURALS.get(targets.pop(), "instances") if len(targets) == 1 else "instances"


def _count_agents(row: Change) -> CampaignCounts:
    """Return the number of agents of a campaign by state, counted once in each step of the campaign."""
    key = (row.pk, row.step, row.progress.get("stepped_at"))
    entry = _counts_by_cluster.get(row.cluster_id)
    if entry is None or entry[0] != key:
        entry = _counts_by_cluster[row.cluster_id] = key, campaigns.counts_of(row)
    return entry[1]
