"""What we conclude of an agent: docs/verdicts.md. Values are in the record and on the wire: never renumber."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class State(IntEnum):
    """The verdict on an agent, in the order in which rules are tried."""

    UNKNOWN = 0
    RETIRED = 1
    NEVER = 2
    STRANDED = 3
    OFFLINE = 4
    AT_RISK = 5
    WORKING = 6
    DEGRADED = 7
    EXCESS = 8
    HEALTHY = 9

    @property
    def slug(self) -> str:
        """Its name in the API, in URLs and in CSS: `at_risk`."""
        return self.name.lower()

    @property
    def label(self) -> str:
        """Its name in the UI: `at risk`."""
        return self.slug.replace("_", " ")


class Reason(IntEnum):
    """Why a verdict is what it is."""

    NONE = 0
    AUTH_UNHEALTHY = 1
    PROXY_UNHEALTHY = 2
    PROXY_EXPIRED = 3
    NO_TUNNEL = 4
    RESOURCE_EXPIRED = 5
    BACKEND_DOWN = 6
    CLUSTER_UNREACHABLE = 7
    DISAGREE = 8
    POLICY_OFF = 9
    # The evidence is too old, or we are blind.
    STALE = 10
    # A reconnect we asked for is under way.
    RECONNECTING = 11
    # Fewer, or more, live tunnels to desired proxies than wanted.
    TOO_FEW_TUNNELS = 12
    TOO_MANY_TUNNELS = 13
    OWN_HOST = 14
    # It rests on an instance whose destination health is Degraded.
    INSTANCE_DEGRADED = 15

    @property
    def slug(self) -> str:
        """Its code in the API: `auth-unhealthy`."""
        return self.name.lower().replace("_", "-")


class Recovery(IntEnum):
    """Will it recover by itself?"""

    # Nothing to recover from.
    NOT_NEEDED = 0
    # By itself, by the predicted time.
    BY_ITSELF = 1
    # Only if the cause recovers: its policy will not move it.
    ONLY_IF_CAUSE_RECOVERS = 2
    # We cannot tell.
    UNCLEAR = 3

    @property
    def slug(self) -> str:
        """Its code in the API: `by-itself`."""
        return self.name.lower().replace("_", "-")


#: The order in which people read states: what needs them first.
READING_ORDER = (
    State.STRANDED,
    State.AT_RISK,
    State.DEGRADED,
    State.OFFLINE,
    State.HEALTHY,
    State.WORKING,
    State.EXCESS,
    State.NEVER,
    State.UNKNOWN,
    State.RETIRED,
)
#: `cause_index` of a verdict without an instance as its cause.
NO_CAUSE = 0xFFFF
#: `cause_index` when all auths sickened within one TTL: the cause is `backend/<cluster>`.
BACKEND_CAUSE = 0xFFFE


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `classify` concludes of one agent. Times are seconds since the epoch."""

    state: State
    reason: Reason
    #: An instance id, `backend/<cluster>`, or empty.
    cause: str
    recovery: Recovery
    #: When it will be back by itself, at the latest; None when it will not, or need not.
    recovers_at: float | None
    #: When an agent at risk will be stranded; None when no clock is running.
    strands_at: float | None
    #: One sentence for a person, with names and without times.
    sentence: str
