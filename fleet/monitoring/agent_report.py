"""Full report of an agent about itself, read through its tunnel. docs/reference/nodes.md, "Agent services and status".

The document is the agent's JSON; ages and durations in it are milliseconds, counted from the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleet.protocol.durations import LONGEST_MS

_Text = Annotated[str, Field(max_length=256)]
_Count = Annotated[int, Field(ge=0, le=2**63)]
_Milliseconds = Annotated[int, Field(ge=-LONGEST_MS, le=LONGEST_MS)]


class ReportError(ValueError):
    """A document is not a valid report; the message names the wrong field."""


class _Part(BaseModel):
    # Agents of other versions have more or fewer fields.
    model_config = ConfigDict(frozen=True, extra="ignore")


class TrackedProxy(_Part):
    """A proxy that the agent's tracker knows."""

    proxy_id: _Text
    group: _Text = ""
    generation: _Count = 0
    expires_in_ms: _Milliseconds = 0
    is_desired: bool = False
    #: The proxy accepts no new tunnels.
    is_draining: bool = False


class ReportedTracker(_Part):
    """The agent's proxy tracker."""

    #: Desired number of tunnels; 0: one to every desired proxy (agent mesh).
    desired_count: _Count = 0
    claimed_proxies: tuple[_Text, ...] = ()
    #: Proxies whose tunnels the agent is closing, and those of them that shut down.
    leaving_proxies: tuple[_Text, ...] = ()
    departing_proxies: tuple[_Text, ...] = ()
    #: Number of dials in progress.
    inflight: _Count = 0
    ttl_seen_ms: _Milliseconds = 0
    topology_age_ms: _Milliseconds | None = None
    proxies: tuple[TrackedProxy, ...] = ()


class ReportedPolicy(_Part):
    """Load balancing policy of the agent's auth connection."""

    mode: _Text = ""
    health_check: bool = False
    auth_id: _Text = ""
    read_age_ms: _Milliseconds = 0


class ReportedAuthReconnect(_Part):
    """Settings of the agent's auth reconnects, from its flags."""

    #: Longest wait from an unhealthy auth to the first attempt at another; None: 2 s to 3 s, as in Teleport.
    first_wait_ms: _Milliseconds | None = None
    #: Time after which calls on the previous connection are cancelled; None: never.
    drain_timeout_ms: _Milliseconds | None = None
    #: Interval between two moves to a new connection; None: never.
    every_ms: _Milliseconds | None = None


class ReportedTunnel(_Part):
    """A tunnel of the agent."""

    proxy_id: _Text = ""
    open_for_ms: _Milliseconds = 0
    #: Number of user connections on the tunnel.
    sessions: _Count = 0
    #: The proxy asked the agent to reconnect.
    is_advised: bool = False
    #: The tunnel closes when its last user connection ends.
    is_retired: bool = False


class AgentReport(_Part):
    """Status that an agent reports through its tunnel."""

    agent_id: _Text
    name: _Text = ""
    version: _Text = ""
    tracker: ReportedTracker = ReportedTracker()
    policy: ReportedPolicy | None = None
    #: None when the agent does not report it.
    auth_reconnect: ReportedAuthReconnect | None = None
    tunnels: tuple[ReportedTunnel, ...] = ()
    services: tuple[_Text, ...] = ()


def parse_agent_report(document: bytes | str) -> AgentReport:
    """Return the report in a document. Raises ReportError."""
    try:
        return AgentReport.model_validate_json(document)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(str(part) for part in first_error["loc"]) or "the document"
        raise ReportError(f"{location}: {first_error['msg']}") from None


@dataclass(frozen=True, slots=True)
class AgentReportResponse:
    """Result of asking an agent for its report."""

    #: When the agent was asked, seconds since the epoch.
    requested_at: float
    #: Instance index of the proxy that carried the request.
    proxy: int
    #: None when the agent did not respond; `error` then has the reason.
    report: AgentReport | None
    error: str = ""
