"""Auth servers and proxies as the console knows them: facts seen by polls, and the state that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from fleet.vocabulary.watch import UNWATCHED, Watch


class InstanceKind(StrEnum):
    """What an instance is."""

    AUTH = "auth"
    PROXY = "proxy"


class InstanceState(IntEnum):
    """What follows from the facts; design: *State of an instance*. Values are in the packed record."""

    #: Never polled yet, or every poll of it is stale.
    UNKNOWN = 0
    OK = 1
    #: The last two attempts failed.
    SILENT = 2
    #: It answers, but NOT_SERVING, or `/readyz` is not 200.
    UNHEALTHY = 3
    #: Its own resource expired.
    EXPIRED = 4
    #: Deregistered.
    GONE = 5

    @property
    def slug(self) -> str:
        """Its name in the API."""
        return self.name.lower()


#: It harms those who depend on it.
SICK = frozenset({InstanceState.SILENT, InstanceState.UNHEALTHY, InstanceState.EXPIRED, InstanceState.GONE})
#: A fault of it. An instance that deregistered itself did as it was asked, though it harms those who depend on it.
FAULTS = SICK - {InstanceState.GONE}
#: Agents drop it from their trackers.
LOST = frozenset({InstanceState.EXPIRED, InstanceState.GONE})
#: It passes nothing on.
CUT_OFF = frozenset({InstanceState.SILENT, InstanceState.GONE})
#: While it answers, connections to it hold.
HOLDING = SICK - CUT_OFF
#: The states of auths that may be asked for lists, the better first.
READABLE = (InstanceState.OK, InstanceState.UNKNOWN)

#: What a sick instance does, after its name.
COMPLAINTS: Mapping[InstanceState, str] = {
    InstanceState.SILENT: "does not answer",
    InstanceState.UNHEALTHY: "is unhealthy",
    InstanceState.EXPIRED: "has expired",
    InstanceState.GONE: "has deregistered itself",
}


class ServingStatus(IntEnum):
    """grpc.health.v1.HealthCheckResponse.ServingStatus."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to reach an instance. Its failure is evidence too."""

    #: When it ended, seconds since the epoch.
    at: float
    ok: bool
    #: One line for a person; empty when it succeeded.
    error: str = ""


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """Everything seen of one instance; nothing in it is derived. Times are seconds since the epoch."""

    #: Host UUID, unique in the cluster.
    id: str
    #: Dense index in the cluster's packed columns; never reused.
    index: int
    kind: InstanceKind
    #: The short name people use: `proxy-1`.
    name: str
    #: host:port of gRPC.
    address: str
    #: host:port of `/healthz`, `/readyz`, `/metrics`; empty when unknown.
    diag_address: str = ""
    version: str = ""
    #: Its announce TTL in seconds, from its resource; None when it was never seen.
    ttl: float | None = None
    #: When its resource expires; None when its resource was never seen.
    expires_at: float | None = None
    #: When it was seen to be deregistered before its resource expired.
    gone_at: float | None = None
    #: The last two attempts of any kind to reach it, newest first.
    attempts: tuple[Attempt, ...] = ()
    #: The last answer of grpc.health.v1, and when it came.
    serving: ServingStatus | None = None
    serving_at: float | None = None
    #: The last HTTP code of `/readyz`, and when it came.
    readyz: int | None = None
    readyz_at: float | None = None
    #: When it was first found unhealthy, silent or expired in the present spell.
    sick_since: float | None = None
    #: Proxy group, for the tracker's rule.
    group: str = ""
    generation: int = 0
    #: Where it runs, as it says; what fails there together has one cause.
    region: str = ""
    #: Of a proxy: id of the auth that took its newest heartbeat; empty for one that writes its resource itself.
    heartbeat_auth: str = ""
    #: When the list of instances was last answered, with or without it: an expiry later than that has not been
    #: seen, and does not count. None takes `expires_at` at its word.
    listed_at: float | None = None
    #: What repeated polls make of it as a destination.
    watch: Watch = UNWATCHED
