"""What an agent says of itself in full, read through its tunnel. docs/nodes.md, "What an agent tells of itself".

The document is the agent's JSON; ages and durations in it are milliseconds, counted from when it was asked for.
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
    """A document that is no report; the sentence says where it goes wrong."""


class _Part(BaseModel):
    # Agents of other versions say more, or less.
    model_config = ConfigDict(frozen=True, extra="ignore")


class TrackedProxy(_Part):
    """A proxy its tracker knows."""

    proxy_id: _Text
    group: _Text = ""
    generation: _Count = 0
    expires_in_ms: _Milliseconds = 0
    desired: bool = False
    #: It takes no new tunnels.
    draining: bool = False


class ReportedTracker(_Part):
    """Its proxy tracker."""

    #: 0 means one tunnel to every desired proxy (agent mesh).
    desired_count: _Count = 0
    claimed: tuple[_Text, ...] = ()
    #: Proxies whose tunnels it lets go, and of those the ones that go away themselves.
    leaving: tuple[_Text, ...] = ()
    going: tuple[_Text, ...] = ()
    #: Dials under way.
    inflight: _Count = 0
    ttl_seen_ms: _Milliseconds = 0
    topology_age_ms: _Milliseconds | None = None
    proxies: tuple[TrackedProxy, ...] = ()


class ReportedPolicy(_Part):
    """The load balancing policy it runs with."""

    mode: _Text = ""
    health_check: bool = False
    auth_id: _Text = ""
    read_age_ms: _Milliseconds = 0


class ReportedAuthReconnect(_Part):
    """When it moves its auth connection; flags of the agent."""

    #: From an unhealthy auth to the first attempt at another, at most; None: 2 s to 3 s, as Teleport waits.
    first_wait_ms: _Milliseconds | None = None
    #: RPCs on a connection that was left end by force after this; None: never.
    drain_timeout_ms: _Milliseconds | None = None
    #: It moves to a new connection this often; None: never.
    every_ms: _Milliseconds | None = None


class ReportedTunnel(_Part):
    """A tunnel as the agent has it."""

    proxy_id: _Text = ""
    open_for_ms: _Milliseconds = 0
    #: User connections on it.
    sessions: _Count = 0
    #: Its proxy asked it to reconnect.
    advised: bool = False
    #: It closes when its last user connection has ended.
    retired: bool = False


class AgentReport(_Part):
    """The whole document."""

    agent_id: _Text
    name: _Text = ""
    version: _Text = ""
    tracker: ReportedTracker = ReportedTracker()
    policy: ReportedPolicy | None = None
    #: None of an agent that does not say.
    auth_reconnect: ReportedAuthReconnect | None = None
    tunnels: tuple[ReportedTunnel, ...] = ()
    services: tuple[_Text, ...] = ()


def parse_agent_report(document: bytes | str) -> AgentReport:
    """Read a document. Raises ReportError."""
    try:
        return AgentReport.model_validate_json(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(str(part) for part in first["loc"]) or "the document"
        raise ReportError(f"{location}: {first['msg']}") from None


@dataclass(frozen=True, slots=True)
class AgentReportResponse:
    """What came of asking an agent."""

    #: When it was asked, seconds since the epoch.
    at: float
    #: Instance index of the proxy it was asked through.
    proxy: int
    #: None when it did not answer; then `error` says why.
    report: AgentReport | None
    error: str = ""
