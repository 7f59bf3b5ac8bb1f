"""Counts over time, and two moments compared, in the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field

from dashboards.fleet.timeline.comparison import AgentDifference, AgentPlaces, DifferenceKind
from dashboards.fleet.timeline.comparison_rows import ComparedMoments
from dashboards.fleet.timeline.count_history import CountPeriod
from dashboards.shared.api.parameters import QueryParameters, Schema
from fleet.models.moments import to_moment
from fleet.monitoring.views import InstanceView

#: Most agents in a response, and without a parameter.
_MAX_LIMIT, _DEFAULT_LIMIT = 1000, 100


class FleetHistoryFilters(QueryParameters):
    """Query parameters of the counts over time."""

    since: str = ""
    """Start as ISO 8601 with an offset, `2026-11-23T10:14:07Z`. Empty: 24 h before now."""
    until: str = ""
    """End. Empty: now. The range has at least 5 min and at most 400 days."""


class CountPeriodItem(Schema):
    """Counts of one period. A period without a record is not in the list."""

    at: datetime
    """Start of the period."""
    stranded_peak: int
    """Most stranded agents in any round of the period."""
    at_risk_peak: int
    """Most agents at risk in any round of the period."""
    counts: dict[str, int] | None
    """Number of agents by state in the newest minute of the period; null if it was not recorded."""


class FleetHistoryResponse(Schema):
    """Number of agents over time, oldest first. No item for a period means: no data, not zero."""

    cluster: str
    """Id of the cluster."""
    since: datetime
    """Start of the first period."""
    until: datetime
    """End of the last period."""
    period_seconds: int
    """Length of a period: the shortest with which the range has at most 400 of them."""
    recorded_since: datetime | None
    """Start of the oldest record of the cluster; null if there is none."""
    periods: list[CountPeriodItem]
    """Periods with data."""


class ComparisonFilters(QueryParameters):
    """Query parameters of a comparison."""

    a: str
    """First moment as ISO 8601 with an offset, `2026-11-23T10:14:07Z`."""
    b: str = ""
    """Second moment. Empty: now."""
    difference: DifferenceKind | None = None
    """Only agents that differ in this: `state`, `tunnels` or `auth`."""
    offset: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Number of agents to skip: `next_offset` of the previous page, with the same `a` and `b`."""
    limit: Annotated[int, Field(ge=1, le=_MAX_LIMIT)] = _DEFAULT_LIMIT
    """Most agents in the response."""


class StateCountItem(Schema):
    """Number of agents in one state."""

    state: str
    """State."""
    a: int
    """Number of agents at the first moment."""
    b: int
    """Number of agents at the second moment."""


class InstanceStateItem(Schema):
    """State of an instance at one moment."""

    state: str
    """State, such as `ok` or `silent`."""
    health: str
    """Destination health."""
    is_draining: bool
    """Whether the instance was draining."""


class InstanceDifferenceItem(Schema):
    """An auth or proxy that differs."""

    name: str
    """Name."""
    kind: str
    """`auth` or `proxy`."""
    a: InstanceStateItem | None
    """State at the first moment; null: not known then."""
    b: InstanceStateItem | None
    """State at the second moment; null: not known then."""


class AgentPlacesItem(Schema):
    """State and places of an agent at one moment."""

    state: str
    """State."""
    auth: str
    """Name of the auth; empty without one."""
    proxies: list[str]
    """Names of up to three proxies with a tunnel."""


class AgentDifferenceItem(Schema):
    """An agent that differs."""

    id: str
    """Id of the agent."""
    name: str
    """Name of the agent."""
    a: AgentPlacesItem | None
    """At the first moment; null: not recorded yet."""
    b: AgentPlacesItem | None
    """At the second moment; null: not recorded yet."""


class ComparisonResponse(Schema):
    """Two moments of a cluster, and what differs."""

    cluster: str
    """Id of the cluster."""
    a: datetime
    """First moment."""
    b: datetime
    """Second moment."""
    is_a_stale: bool
    """Whether polling had stopped at the first moment: then every state except `retired` is `unknown`."""
    is_b_stale: bool
    """The same of the second moment."""
    counts: list[StateCountItem]
    """Number of agents by state; every state is present."""
    instances: list[InstanceDifferenceItem]
    """Auths and proxies whose state, destination health or drain differs."""
    agent_count: int
    """Number of agents that differ, on all pages."""
    agents: list[AgentDifferenceItem]
    """Agents that differ: first those with another state, the most urgent one at the second moment first."""
    next_offset: int | None
    """Value of `offset` for the next page; null on the last page."""


def fleet_history_response_of(
    cluster: str,
    periods: Sequence[CountPeriod],
    *,
    since: float,
    until: float,
    step: float,
    recorded_since: float | None,
) -> FleetHistoryResponse:
    """Return the response with counts over time."""
    return FleetHistoryResponse(
        cluster=cluster,
        since=to_moment(since),
        until=to_moment(until),
        period_seconds=round(step),
        recorded_since=None if recorded_since is None else to_moment(recorded_since),
        periods=[
            CountPeriodItem(
                at=to_moment(period.at),
                stranded_peak=period.stranded_peak,
                at_risk_peak=period.at_risk_peak,
                counts=None
                if period.counts is None
                else {state.slug: count for state, count in period.counts.items()},
            )
            for period in periods
        ],
    )


def comparison_response_of(
    cluster: str, compared: ComparedMoments, filters: ComparisonFilters
) -> ComparisonResponse:
    """Return the response with one page of a comparison."""
    comparison = compared.comparison
    indices = comparison.select(filters.difference)
    end = filters.offset + filters.limit
    return ComparisonResponse(
        cluster=cluster,
        a=to_moment(compared.before.now),
        b=to_moment(compared.after.now),
        is_a_stale=comparison.before.stale,
        is_b_stale=comparison.after.stale,
        counts=[
            StateCountItem(state=row.state.slug, a=row.before, b=row.after)
            for row in comparison.count_states()
        ],
        instances=[
            InstanceDifferenceItem(
                name=row.name,
                kind=row.kind.value,
                a=_instance_state_item_of(row.before),
                b=_instance_state_item_of(row.after),
            )
            for row in comparison.compare_instances()
        ],
        agent_count=len(indices),
        agents=[_agent_item_of(agent) for agent in comparison.describe_agents(indices[filters.offset : end])],
        next_offset=end if end < len(indices) else None,
    )


def _instance_state_item_of(view: InstanceView | None) -> InstanceStateItem | None:
    if view is None:
        return None
    return InstanceStateItem(
        state=view.state.slug, health=view.health.value, is_draining=view.drain_request is not None
    )


def _agent_item_of(agent: AgentDifference) -> AgentDifferenceItem:
    return AgentDifferenceItem(
        id=agent.id, name=agent.name, a=_places_item_of(agent.before), b=_places_item_of(agent.after)
    )


def _places_item_of(places: AgentPlaces) -> AgentPlacesItem | None:
    if places.state is None:
        return None
    return AgentPlacesItem(state=places.state.slug, auth=places.auth, proxies=list(places.proxies))
