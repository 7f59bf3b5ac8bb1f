"""Heartbeats of auths and proxies: their schedule, and the process state that results from them.

RFD 226, "Proposed Improvements" (announce TTLs), and Teleport's process state, docs/reference/nodes.md. Times are
seconds of any
one clock; chance is a number in [0, 1). A value that does not parse, or is too short, is an error here; Teleport
silently uses its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from fleet.protocol import durations

AUTH_TTL_VARIABLE = "TELEPORT_UNSTABLE_AUTH_ANNOUNCE_TTL"
PROXY_TTL_VARIABLE = "TELEPORT_UNSTABLE_PROXY_ANNOUNCE_TTL"

#: Teleport's ServerAnnounceTTL.
DEFAULT_TTL = 600.0
#: Heartbeats come every half of the TTL: with a shorter one, a slightly late heartbeat lets the resource expire.
SHORTEST_TTL = 0.1
#: Teleport's HeartbeatCheckPeriod: seconds between two checks whether a heartbeat is due.
CHECK_PERIOD = 5.0
#: Teleport's ServerKeepAliveTTL: seconds until a failed heartbeat is repeated.
RETRY_AFTER = 60.0
#: Seconds until an agent's heartbeat about news, plus as much random jitter. The response has the networking config.
NEWS_DELAY = 0.5


class AnnounceError(ValueError):
    """An announce TTL that cannot be used; the message names its source."""


def parse_ttl(text: str, *, name: str) -> float:
    """Return a Go duration of at least SHORTEST_TTL in seconds. Raises AnnounceError with `name`."""
    try:
        ttl = durations.parse(text)
    except durations.DurationError as error:
        raise AnnounceError(f"{name}: {error}") from None
    if ttl < SHORTEST_TTL:
        least = durations.format_seconds(SHORTEST_TTL)
        raise AnnounceError(f"{name}: {text!r} is shorter than {least}. Use a duration such as 30s or 10m")
    return ttl


def ttl_from(environment: Mapping[str, str], variable: str) -> float:
    """Return the announce TTL of a variable, seconds; the default when unset or empty. Raises AnnounceError."""
    text = environment.get(variable, "")
    return parse_ttl(text, name=variable) if text else DEFAULT_TTL


@dataclass(frozen=True, slots=True)
class HeartbeatSchedule:
    """Heartbeat schedule. Seconds."""

    #: Lifetime of the resource after a heartbeat.
    ttl: float
    #: Between two successful heartbeats.
    interval: float
    #: Between two checks; shorter for a short TTL, so that `recovering` can end within it.
    check_interval: float
    #: Between a failed heartbeat and the next.
    retry_interval: float


def draw_schedule(ttl: float, chance: float) -> HeartbeatSchedule:
    """Return a random schedule, drawn once per start: interval = TTL/2 + U[0, TTL/10)."""
    interval = ttl / 2 + chance * ttl / 10
    return HeartbeatSchedule(
        ttl=ttl,
        interval=interval,
        check_interval=min(CHECK_PERIOD, ttl / 20),
        retry_interval=min(RETRY_AFTER, interval),
    )


class ComponentState(IntEnum):
    """State of a component or of the process; the values are Teleport's metric `process_state`."""

    OK = 0
    RECOVERING = 1
    DEGRADED = 2
    STARTING = 3


@dataclass(frozen=True, slots=True)
class Component:
    """State of one component that sends heartbeats."""

    state: ComponentState = ComponentState.STARTING
    #: When the recovery began; only for RECOVERING.
    recovering_since: float = 0.0


def after_failure(component: Component) -> Component:
    """Return the state after a failed heartbeat: degraded."""
    return component if component.state is ComponentState.DEGRADED else Component(ComponentState.DEGRADED)


def after_success(component: Component, now: float, tick: float) -> Component:
    """Return the state after a successful heartbeat: OK, or, after DEGRADED, first RECOVERING."""
    if component.state is ComponentState.DEGRADED:
        return Component(ComponentState.RECOVERING, now)
    if component.state is ComponentState.RECOVERING and now - component.recovering_since <= 2 * tick:
        return component
    return Component(ComponentState.OK)


def process_state(components: Iterable[Component]) -> ComponentState:
    """Return the process state: degraded or recovering if any component is, OK if all are, else starting."""
    states = {component.state for component in components}
    if ComponentState.DEGRADED in states:
        return ComponentState.DEGRADED
    if ComponentState.RECOVERING in states:
        return ComponentState.RECOVERING
    return ComponentState.OK if states == {ComponentState.OK} else ComponentState.STARTING


#: Status codes and messages of `/readyz`, as in Teleport.
_READYZ = {
    ComponentState.OK: (200, "ok"),
    ComponentState.RECOVERING: (400, "teleport is recovering from a degraded state, check logs for details"),
    ComponentState.DEGRADED: (503, "teleport is in a degraded state, check logs for details"),
    ComponentState.STARTING: (400, "teleport is starting and hasn't joined the cluster yet"),
}


def readyz_response(state: ComponentState) -> tuple[int, str]:
    """Return the status code of `/readyz` and the `status` of its JSON body."""
    return _READYZ[state]


def is_serving(state: ComponentState) -> bool:
    """Return whether gRPC health reports SERVING: only in state OK."""
    return state is ComponentState.OK
