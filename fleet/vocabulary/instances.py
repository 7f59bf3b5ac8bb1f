"""Auth servers and proxies as the console knows them: facts seen by polls, and the state that follows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, TypeVar

from fleet.vocabulary.looks import NumberedEnum, Stroke
from fleet.vocabulary.verdicts import State
from fleet.vocabulary.watch import INITIAL_WATCH, InstanceWatch

PartT = TypeVar("PartT", "InstanceResource", "Poll")


class InstanceKind(StrEnum):
    """What an instance is."""

    AUTH = "auth"
    PROXY = "proxy"

    @property
    def load_unit(self) -> str:
        """What it has of agents, as its count names it."""
        return "agent" if self is InstanceKind.AUTH else "tunnel"


@dataclass(frozen=True, slots=True)
class InstanceLook:
    """The number of a state of instances, and how pages and sentences show it."""

    number: int
    #: The verdict whose colours it has. Not `STRANDED`: red is for agents.
    like: State
    #: Its symbol, 16 by 16.
    shape: tuple[Stroke, ...]
    #: What an instance does that harms those who depend on it, after its name; empty: nothing.
    complaint: str = ""


class InstanceState(NumberedEnum):
    """What follows from the facts; design: *State of an instance*. Values are in the packed record."""

    look: InstanceLook

    # fmt: off
    #: Never polled yet, or every poll of it is stale.
    UNKNOWN = InstanceLook(0, State.UNKNOWN, State.UNKNOWN.look.shape)
    OK = InstanceLook(1, State.HEALTHY, State.HEALTHY.look.shape)
    #: The last two attempts failed.
    SILENT = InstanceLook(
        2, State.AT_RISK, complaint="does not answer",
        shape=(Stroke("M5.2 1.5h5.6l3.7 3.7v5.6l-3.7 3.7H5.2l-3.7-3.7V5.2z"), Stroke("M4.4 8h7.2", 2.2, style="knock")),
    )
    #: It answers, but NOT_SERVING, or `/readyz` is not 200.
    UNHEALTHY = InstanceLook(3, State.AT_RISK, State.AT_RISK.look.shape, "is unhealthy")
    #: Its own resource expired.
    EXPIRED = InstanceLook(
        4, State.AT_RISK, (Stroke("M3.5 2h9L8 8l4.5 6h-9L8 8z", 1.6, style="round"),), "has expired"
    )
    #: Deregistered.
    GONE = InstanceLook(5, State.OFFLINE, State.RETIRED.look.shape, "has deregistered itself")
    # fmt: on

    @property
    def has_current_counts(self) -> bool:
        """Whether its counts are of now."""
        return self not in (InstanceState.UNKNOWN, InstanceState.SILENT)


#: It harms those who depend on it.
SICK_STATES = frozenset(state for state in InstanceState if state.look.complaint)
#: A fault of it. An instance that deregistered itself did as it was asked, though it harms those who depend on it.
FAULT_STATES = SICK_STATES - {InstanceState.GONE}
#: Agents drop it from their trackers.
LOST_STATES = frozenset({InstanceState.EXPIRED, InstanceState.GONE})
#: It passes nothing on.
CUT_OFF_STATES = frozenset({InstanceState.SILENT, InstanceState.GONE})
#: While it answers, connections to it hold.
CONNECTED_SICK_STATES = SICK_STATES - CUT_OFF_STATES
#: The states of auths that may be asked for lists, the better first.
READABLE_STATES = (InstanceState.OK, InstanceState.UNKNOWN)


class ServingStatus(IntEnum):
    """grpc.health.v1.HealthCheckResponse.ServingStatus."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class PollAttempt:
    """One try to reach an instance. Its failure is evidence too."""

    #: When it ended, seconds since the epoch.
    at: float
    ok: bool
    #: One line for a person; empty when it succeeded.
    error: str = ""


@dataclass(frozen=True)
class InstanceResource:
    """What an instance's resource in the presence lists says of it. Without slots: facts are made of its `vars`."""

    name: str
    #: host:port of gRPC.
    address: str
    diag_address: str = ""
    version: str = ""
    ttl: float | None = None
    expires_at: float | None = None
    gone_at: float | None = None
    group: str = ""
    generation: int = 0
    region: str = ""
    heartbeat_auth: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What polls of an instance gave. The record holds each field under its name."""

    #: The last two attempts of any kind to reach it, newest first.
    attempts: tuple[PollAttempt, ...] = ()
    #: The last answer of grpc.health.v1, and when it came.
    serving: ServingStatus | None = None
    serving_at: float | None = None
    #: The last HTTP code of `/readyz`, and when it came.
    readyz: int | None = None
    readyz_at: float | None = None
    #: What repeated polls make of it as a destination.
    watch: InstanceWatch = INITIAL_WATCH


@dataclass(frozen=True, slots=True)
class InstanceFacts(Poll):
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


def fields_of(poll: Poll) -> dict[str, Any]:
    """Return the fields of a poll, or of facts, by name."""
    return {name: getattr(poll, name) for name in poll.__dataclass_fields__}


def extract_part(part_type: type[PartT], facts: InstanceFacts) -> PartT:
    """Return the resource, or the poll, that facts were made of."""
    return part_type(**{name: getattr(facts, name) for name in part_type.__dataclass_fields__})
