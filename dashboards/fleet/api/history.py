"""History of an agent in the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from dashboards.fleet.agent_history import AgentChangeRow
from dashboards.shared.api.parameters import QueryParameters, Schema

#: Most changes in a response, and without a parameter.
_MAX_LIMIT, _DEFAULT_LIMIT = 500, 50


class AgentHistoryFilters(QueryParameters):
    """Query parameters of the history of an agent."""

    before: AwareDatetime | None = None
    """Only changes before this time; `next` of the previous page."""
    limit: Annotated[int, Field(ge=1, le=_MAX_LIMIT)] = _DEFAULT_LIMIT
    """Most changes in the response."""


class AgentChangeItem(Schema):
    """A change of an agent's state, or a move to another auth or proxy."""

    at: datetime
    """When the round ended that found the change."""
    old: str
    """State before the change; equal to `new` if the agent only moved, or only its reason or recovery changed."""
    new: str
    """State after the change."""
    reason: str
    """Reason of the new state; empty without one."""
    cause: str
    """Name of the instance that caused it, or `backend/<cluster>`; empty without one."""
    recovery: str
    """Predicted recovery: `not-needed`, `by-itself`, `only-if-cause-recovers` or `unclear`."""
    recovers_at: datetime | None
    """Latest time of the automatic recovery that was predicted; null without one."""
    auth: str | None
    """Name of the auth after the change; empty without one, null if it was not recorded."""
    proxies: list[str] | None
    """Names of the proxies with a tunnel after the change, the current proxy first; null if not recorded."""
    moves: list[str]
    """What changed of auth and tunnels, in words: `moved from proxy-1 to proxy-3`."""


class AgentHistoryResponse(Schema):
    """Changes of one agent, newest first."""

    cluster: str
    """Id of the cluster."""
    agent: str
    """Id of the agent."""
    changes: list[AgentChangeItem]
    """Changes of state, and moves."""
    next: datetime | None
    """Value of `before` for the next page; null on the last page."""


def agent_history_response_of(
    cluster: str, agent: str, rows: Sequence[AgentChangeRow], limit: int
) -> AgentHistoryResponse:
    """Return the response with the changes of an agent."""
    return AgentHistoryResponse(
        cluster=cluster,
        agent=agent,
        changes=[
            AgentChangeItem(
                at=row.at,
                old=row.old.slug,
                new=row.new.slug,
                reason=row.reason,
                cause=row.cause,
                recovery=row.recovery.slug,
                recovers_at=row.recovers_at,
                auth=row.auth,
                proxies=None if row.proxies is None else list(row.proxies),
                moves=list(row.moves),
            )
            for row in rows
        ],
        next=rows[-1].at if len(rows) == limit else None,
    )
