"""What the page and the API show of one instance beside its card: agents, heartbeat, polls, policies and links."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from dashboards.changes import policy_rows
from dashboards.fleet import agent_query
from dashboards.fleet.agent_query import AgentQuery
from dashboards.shared import presenters, record_reader
from dashboards.shared.map_links import map_url_of
from dashboards.shared.presenters import Counts, age_ms_of, to_moment_or_none
from dashboards.shared.rewind import add_at
from fleet.alerts.matchers import Matcher, escape_name, format_matchers
from fleet.changes.policies import desired_state, planner
from fleet.changes.policies.matrix import InstanceRow
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.campaigns import ConnectionKind
from fleet.vocabulary.instances import InstanceKind, PollAttempt, ServingStatus
from fleet.vocabulary.verdicts import State

#: Share of the TTL after which a heartbeat is late: heartbeats are sent after half of it.
_LATE_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class InstanceHeartbeat:
    """The heartbeat of an instance against its TTL."""

    at: datetime | None
    age_ms: int | None
    expires_at: datetime | None
    expires_age_ms: int | None
    ttl_seconds: float
    #: Age as a share of the TTL, 0 to 100.
    percent: int
    is_late: bool
    is_expired: bool


@dataclass(frozen=True, slots=True)
class PollRow:
    """One attempt of Refloat to reach the instance."""

    at: datetime | None
    age_ms: int | None
    is_success: bool
    error: str


@dataclass(frozen=True, slots=True)
class InstanceLinks:
    """Pages that show more of the instance, below the prefix of its cluster; empty: there is none."""

    agents: str
    #: Query string of the list of agents, without a state.
    agents_query: str
    map: str
    reconnect: str
    silence: str
    service: str
    degrade: str
    policies: str
    audit: str


def count_agents_by_state(table: FleetTable, view: InstanceView) -> Counts:
    """Return the agents that *Agents* lists for an instance by state: with a tunnel or last seen there, or its auth."""
    facts = view.facts
    query = (
        AgentQuery(proxies=(facts.id,)) if facts.kind is InstanceKind.PROXY else AgentQuery(auths=(facts.id,))
    )
    states = table.verdicts["state"][agent_query.select(table, query)]
    counts = np.bincount(states, minlength=len(State))
    return presenters.order_counts({state: int(counts[state]) for state in State})


def heartbeat_of(view: InstanceView, now: float) -> InstanceHeartbeat | None:
    """Return the heartbeat; None if Refloat has not seen one."""
    facts = view.facts
    if facts.expires_at is None or not facts.ttl:
        return None
    written_at = facts.expires_at - facts.ttl
    share = (now - written_at) / facts.ttl
    return InstanceHeartbeat(
        to_moment_or_none(written_at),
        age_ms_of(written_at, now),
        to_moment_or_none(facts.expires_at),
        age_ms_of(facts.expires_at, now),
        facts.ttl,
        percent=round(100 * min(max(share, 0.0), 1.0)),
        is_late=share > _LATE_SHARE,
        is_expired=now > facts.expires_at,
    )


def poll_rows_of(view: InstanceView, now: float) -> list[PollRow]:
    """Return the last attempts to reach the instance, newest first."""
    return [_poll_row_of(attempt, now) for attempt in view.facts.attempts]


def _poll_row_of(attempt: PollAttempt, now: float) -> PollRow:
    return PollRow(to_moment_or_none(attempt.at), age_ms_of(attempt.at, now), attempt.ok, attempt.error)


def check_rows_of(view: InstanceView, now: float) -> list[tuple[str, str, datetime | None, int | None]]:
    """Return (check, result, time, age) of the health check of gRPC and of `/readyz`."""
    facts, rows = view.facts, []
    if facts.serving is not None:
        problem = f": {facts.serving_problem}" if facts.serving_problem else ""
        text = "SERVING" if facts.serving is ServingStatus.SERVING else f"{facts.serving.name}{problem}"
        rows.append(
            ("gRPC health", text, to_moment_or_none(facts.serving_at), age_ms_of(facts.serving_at, now))
        )
    if facts.readyz is not None:
        rows.append(
            (
                "/readyz",
                str(facts.readyz),
                to_moment_or_none(facts.readyz_at),
                age_ms_of(facts.readyz_at, now),
            )
        )
    return rows


def links_of(view: InstanceView, query_term: str, past_at: float | None) -> InstanceLinks:
    """Return the links of an instance; `query_term`: what filters of agents call it."""
    facts = view.facts
    kind = facts.kind.value
    agents_query = urlencode({kind: query_term})
    connection = {"connection": ConnectionKind.AUTH.value} if facts.kind is InstanceKind.AUTH else {}
    matchers = format_matchers([Matcher("cause", escape_name(f"{kind}/{facts.id}"))])
    return InstanceLinks(
        agents=add_at(f"/agents/?{agents_query}", past_at),
        agents_query=agents_query,
        map=map_url_of("", at=past_at, query=shlex.quote(f"{kind}:{query_term}")),
        reconnect=f"/reconnect/?{urlencode({**connection, kind: query_term})}",
        silence=f"/silences/new/?{urlencode({'matchers': matchers})}",
        service=f"/instances/{quote(facts.id, safe='')}/service/",
        degrade=f"/instances/{quote(facts.id, safe='')}/degrade/",
        policies=f"/policies/{quote(facts.id, safe='')}/",
        audit=f"/audit/?{urlencode({'object': facts.id})}",
    )


def policy_cells_of(cluster: str, instance_id: str) -> tuple[InstanceRow, list[dict[str, Any]]] | None:
    """Return the policies of an instance, and their cells for the template; None for a deregistered instance."""
    desired_values = desired_state.desired_values_of(cluster)
    rows = planner.instance_rows_of(cluster, desired_values, record_reader.take_record_snapshot())
    row = next((row for row in rows if row.id == instance_id), None)
    if row is None:
        return None
    return row, [policy_rows.cell_context_of(cell, "", row.cells) for cell in row.cells]
