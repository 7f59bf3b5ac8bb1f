"""Reconnect campaigns as far as they dial nobody: plans, and how far one is. docs/campaigns.md.

What people do to one is in `kind.py`, asking agents in `run.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import Count

from fleet.audit import By
from fleet.changes import Blind, Refused, engine
from fleet.changes.campaigns.moves import Move, Sight, move_of
from fleet.changes.engine import Draft
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.models.moments import to_seconds
from fleet.monitoring.views import FleetTable
from fleet.vocabulary import campaigns
from fleet.vocabulary.campaigns import AgentState, Connection, Counts, Pace
from fleet.vocabulary.changes import PLAN_KEEPS, ChangeKind, ChangeState

_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class Chosen:
    """Whom somebody wants to reconnect, and how they said it."""

    #: Rows of the table.
    indices: npt.NDArray[np.intp]
    #: In words: "state:degraded", "agents of proxy-1".
    words: str
    #: Proxies, or auths, to be left, by instance id; empty: whichever.
    leave: tuple[str, ...] = ()
    #: Which connection is moved.
    connection: Connection = Connection.TUNNEL


def refuse_blind(table: FleetTable) -> None:
    """Raise Blind when the table says nothing of now."""
    if table.as_of is None or table.stale:
        raise Blind("the pollers are blind: the newest round is too old to ask anybody to move")


def plan(
    cluster: str,
    table: FleetTable,
    chosen: Chosen,
    pace: Pace,
    by: By,
    now: datetime,
    shuffle: Callable[[list[int]], None],
) -> Change:
    """Plan a campaign and freeze its list of agents. Raises Blind, Refused when nobody is chosen or could move."""
    refuse_blind(table)
    if not len(chosen.indices):
        raise Refused("no agent matches", {"chosen": "no agent matches"})
    move = move_of(chosen.connection, chosen.leave)
    indices = [int(index) for index in chosen.indices]
    sight = Sight(table, {table.ids[index] for index in indices})
    skips, leaving = Counter[str](), Counter[str]()
    for index in indices:
        seen = sight.agent(table.ids[index])
        why = move.why_skip(seen, sight)
        if why:
            skips[why] += 1
        elif seen is not None:
            leaving[move.leaves(seen, sight, table.ids[index])] += 1
    asked = len(indices) - skips.total()
    if not asked:
        raise Refused(
            f"nobody could be asked: {skips.most_common(1)[0][0]}", {"chosen": skips.most_common(1)[0][0]}
        )
    _forget_old_plans(cluster, now)
    draft = Draft(
        kind=ChangeKind.RECONNECT,
        title=_title(chosen, len(indices)),
        before=None,
        after={"chosen": chosen.words, "agents": len(indices), "connection": chosen.connection.value},
        plan={
            "asked": asked,
            "connection": chosen.connection.value,
            "question": _question(chosen.connection, asked, skips.total()),
            "skipped": dict(skips.most_common(8)),
            "leaving": dict(sorted((sight.name_of(instance), n) for instance, n in leaving.items())),
            "destinations": _destinations(chosen, sight, leaving),
            "seconds": campaigns.eta(Counts(waiting=asked), pace),
            "as_of": table.as_of,
        },
        agents=len(indices),
        parameters={
            "pace": asdict(pace),
            "leave": list(chosen.leave),
            "connection": chosen.connection.value,
        },
    )
    return engine.create(cluster, draft, by, now, lambda change: _freeze(change, table, indices, shuffle))


def _title(chosen: Chosen, agents: int) -> str:
    if chosen.connection is Connection.AUTH:
        return f"Move the auth connections of {agents:,} agents: {chosen.words}"[:200]
    return f"Reconnect {agents:,} agents: {chosen.words}"[:200]


def _question(connection: Connection, asked: int, skipped: int) -> str:
    """The question of its confirmation, with the number in it."""
    others = f" ({skipped:,} more would be skipped)" if skipped else ""
    what = "connect to another auth" if connection is Connection.AUTH else "reconnect elsewhere"
    return f"Have {asked:,} agent{'s' if asked != 1 else ''} {what}{others}?"


def _destinations(chosen: Chosen, sight: Sight, leaving: Collection[str]) -> dict[str, int]:
    """Return the auths with room for agents that leave theirs, and how many agents each has; nothing for tunnels."""
    if chosen.connection is not Connection.AUTH:
        return {}
    left = {*chosen.leave, *(leaving if len(leaving) == 1 else ())}
    usable = {
        instance: auth for instance, auth in sight.auths.items() if auth.usable and instance not in left
    }
    return dict(sorted((auth.name, auth.agents) for auth in usable.values()))


def move_in(change: Change) -> Move:
    """Return how a campaign moves its agents; one planned before there was a choice moves tunnels."""
    parameters = change.parameters
    return move_of(parameters.get("connection", Connection.TUNNEL), parameters.get("leave", ()))


def pace_of(change: Change) -> Pace:
    """How it goes about it."""
    return Pace(**change.parameters["pace"])


def counts_of(change: Change) -> Counts:
    """How far it is."""
    rows = change.campaign_agents.values_list("state").annotate(n=Count("pk")).order_by()
    return Counts(**{str(state): int(n) for state, n in rows})


def advisory_of(change: Change) -> str:
    """The one name of its intent, at every proxy: a proxy advises nobody twice under it."""
    return f"campaign-{change.pk}-{int(to_seconds(change.created_at))}"


def close(change: Change, why: str, now: float) -> Change:
    """Give every agent that has none yet its result, and write the totals."""
    skip_unasked(change, why, now)
    change.campaign_agents.filter(state=AgentState.ASKED.value).update(
        state=AgentState.SKIPPED.value, reason=f"asked, and not watched to the end: {why}"[:255], ended_at=now
    )
    return engine.note(change, outcome={**asdict(counts_of(change)), "ended": why})


def skip_unasked(change: Change, why: str, now: float) -> None:
    """Skip everybody who was not asked yet."""
    waiting = (AgentState.WAITING.value, AgentState.DUE.value)
    change.campaign_agents.filter(state__in=waiting).update(
        state=AgentState.SKIPPED.value, reason=why[:255], ended_at=now
    )


def skipped_by_reason(change: Change) -> list[tuple[str, str, int]]:
    """(state, reason, how many) of those that did not move, most first."""
    rows = (
        change.campaign_agents.filter(state__in=(AgentState.FAILED.value, AgentState.SKIPPED.value))
        .values_list("state", "reason")
        .annotate(n=Count("pk"))
        .order_by("-n")
    )
    return [(str(state), str(reason), int(n)) for state, reason, n in rows]


def _freeze(
    change: Change, table: FleetTable, indices: Sequence[int], shuffle: Callable[[list[int]], None]
) -> None:
    order = list(indices)
    shuffle(order)
    rows = (
        CampaignAgent(
            change=change, position=position, agent_id=table.ids[index], name=table.names[index][:255]
        )
        for position, index in enumerate(order)
    )
    CampaignAgent.objects.bulk_create(rows, batch_size=_CHUNK)


def _forget_old_plans(cluster: str, now: datetime) -> None:
    """A plan that nobody can agree to any more needs no list of agents."""
    old = Change.objects.filter(
        cluster=cluster,
        kind=ChangeKind.RECONNECT.value,
        state=ChangeState.PLANNED.value,
        created_at__lt=now - timedelta(seconds=PLAN_KEEPS[ChangeKind.RECONNECT]),
    )
    CampaignAgent.objects.filter(change__in=old).delete()


def described(change: Change, now: float) -> dict[str, Any]:
    """How far it is, for page and API."""
    counts, pace = counts_of(change), pace_of(change)
    total = max(counts.total, 1)
    return {
        **asdict(counts),
        "total": counts.total,
        "done": counts.done,
        "remaining": counts.remaining,
        "percent": 100 * counts.done // total,
        "eta": campaigns.eta(counts, pace) if change.state == ChangeState.RUNNING else None,
        "waits_for": str(change.progress.get("waits_for", "")) if change.state == ChangeState.RUNNING else "",
        "stepped_ago": max(0.0, now - change.progress["stepped_at"])
        if "stepped_at" in change.progress
        else None,
    }
