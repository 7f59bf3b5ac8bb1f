"""Links to the map: the live map, filtered, and the map as it was at a moment."""

from __future__ import annotations

from shlex import quote
from urllib.parse import urlencode

from dashboards.shared.rewind import AT_PARAMETER, format_at
from fleet.vocabulary.incidents import Cause, CauseKind

#: Kinds of causes that the agent query `cause:` selects by name.
_QUERY_KINDS = frozenset({CauseKind.AUTH, CauseKind.PROXY})


def map_url_of(url_prefix: str, *, at: float | None = None, query: str = "") -> str:
    """Return the URL of the map in the cluster with this URL prefix.

    `at`: show the map at that moment (seconds since the epoch); `query`: filter it by an agent query.
    """
    parameters = [(AT_PARAMETER, format_at(at))] if at is not None else []
    if query:
        parameters.append(("q", query))
    return f"{url_prefix}/map/{'?' + urlencode(parameters, safe=':') if parameters else ''}"


def cause_query_of(cause: Cause) -> str:
    """Return the agent query of the agents that a cause affects; empty if no query selects them."""
    if cause.kind is CauseKind.BACKEND:
        return "cause:backend"
    return quote(f"cause:{cause.name}") if cause.kind in _QUERY_KINDS else ""
