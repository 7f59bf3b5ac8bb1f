"""Heartbeats of auths and proxies: how often, and what their outcome makes of the process.

RFD 226, "Proposed Improvements" (announce TTLs) and Teleport's process state, docs/nodes.md. Times are
seconds of any one clock; chance is a number in [0, 1). A value that does not parse, or is too short to be
kept, is an error here, where Teleport silently takes its default.
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
#: Heartbeats come every half of it: below this, one that is a little late is a resource that expired.
SHORTEST_TTL = 0.1
#: Teleport's HeartbeatCheckPeriod: how often it looks whether a heartbeat is due.
CHECK_PERIOD = 5.0
#: Teleport's ServerKeepAliveTTL: when a failed heartbeat is tried again.
RETRY_AFTER = 60.0


class AnnounceError(ValueError):
    """A TTL that cannot be used; the sentence names where it came from."""


def parse_ttl(text: str, *, name: str) -> float:
    """Read a Go duration of at least SHORTEST_TTL as seconds. Raises AnnounceError, which says `name`."""
    try:
        ttl = durations.parse(text)
    except durations.DurationError as error:
        raise AnnounceError(f"{name}: {error}") from None
    if ttl < SHORTEST_TTL:
        least = durations.format_seconds(SHORTEST_TTL)
        raise AnnounceError(f"{name}: {text!r} is shorter than {least}: write it like 30s or 10m")
    return ttl


def ttl_from(environment: Mapping[str, str], variable: str) -> float:
    """The announce TTL of an environment, seconds; the default when unset or empty. Raises AnnounceError."""
    text = environment.get(variable, "")
    return parse_ttl(text, name=variable) if text else DEFAULT_TTL


@dataclass(frozen=True, slots=True)
class Schedule:
    """When heartbeats are sent. Seconds."""

    #: How long the resource lives after a heartbeat.
    ttl: float
    #: From one good heartbeat to the next.
    interval: float
    #: Shorter TTLs get a shorter one, so that `recovering` can end within them.
    tick: float
    #: From a failed heartbeat to the next.
    retry: float


def schedule(ttl: float, chance: float) -> Schedule:
    """Draw the schedule, once per start: interval = TTL/2 + U[0, TTL/10)."""
    interval = ttl / 2 + chance * ttl / 10
    return Schedule(
        ttl=ttl,
        interval=interval,
        tick=min(CHECK_PERIOD, ttl / 20),
        retry=min(RETRY_AFTER, interval),
    )


class ComponentState(IntEnum):
    """State of a component or of the process; the values are Teleport's metric `process_state`."""

    OK = 0
    RECOVERING = 1
    DEGRADED = 2
    STARTING = 3


@dataclass(frozen=True, slots=True)
class Component:
    """One thing that heartbeats."""

    state: ComponentState = ComponentState.STARTING
    #: When it began to recover; meaningless in other states.
    recovering_since: float = 0.0


def after_failure(component: Component) -> Component:
    """A heartbeat failed: degraded, from any state."""
    return component if component.state is ComponentState.DEGRADED else Component(ComponentState.DEGRADED)


def after_success(component: Component, now: float, tick: float) -> Component:
    """A heartbeat succeeded: starting is over; a degraded component recovers by a second success."""
    if component.state is ComponentState.DEGRADED:
        return Component(ComponentState.RECOVERING, now)
    if component.state is ComponentState.RECOVERING and now - component.recovering_since <= 2 * tick:
        return component
    return Component(ComponentState.OK)


def process_state(components: Iterable[Component]) -> ComponentState:
    """What the components make of the process: the worst of degraded and recovering, ok only if all are."""
    states = {component.state for component in components}
    if ComponentState.DEGRADED in states:
        return ComponentState.DEGRADED
    if ComponentState.RECOVERING in states:
        return ComponentState.RECOVERING
    return ComponentState.OK if states == {ComponentState.OK} else ComponentState.STARTING


#: `/readyz`: Teleport's codes and sentences.
_READYZ = {
    ComponentState.OK: (200, "ok"),
    ComponentState.RECOVERING: (400, "teleport is recovering from a degraded state, check logs for details"),
    ComponentState.DEGRADED: (503, "teleport is in a degraded state, check logs for details"),
    ComponentState.STARTING: (400, "teleport is starting and hasn't joined the cluster yet"),
}


def readyz(state: ComponentState) -> tuple[int, str]:
    """The HTTP code of `/readyz` and the `status` of its JSON body."""
    return _READYZ[state]


def is_serving(state: ComponentState) -> bool:
    """Whether gRPC health says SERVING: only when all is well."""
    return state is ComponentState.OK
