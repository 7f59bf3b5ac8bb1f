"""Instances (auths and proxies): facts that polls collect, and the states that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, TypeVar

from fleet.vocabulary.enum_types import NumberedEnum, Stroke
from fleet.vocabulary.verdicts import State
from fleet.vocabulary.watch import INITIAL_WATCH, InstanceWatch

PartT = TypeVar("PartT", "InstanceResource", "Poll")


class InstanceKind(StrEnum):
    """Auth or proxy."""

    AUTH = "auth"
    PROXY = "proxy"

    @property
    def load_unit(self) -> str:
        """Return the noun for its count: an auth counts agents, a proxy counts tunnels."""
        return "agent" if self is InstanceKind.AUTH else "tunnel"


@dataclass(frozen=True, slots=True)
class InstanceLook:
    """Number of an instance state, and how pages and sentences show it."""

    number: int
    #: Agent state with the same colours. Not `STRANDED`: red is for agents.
    colour_state: State
    #: Symbol, 16 by 16.
    shape: tuple[Stroke, ...]
    #: The problem as a clause that follows the name of the instance; empty: no problem.
    complaint: str = ""
    #: Name on pages; empty: the slug.
    label: str = ""


class InstanceState(NumberedEnum):
    """State of an instance: docs/reference/verdicts.md, "Instance states". Values are in the packed record."""

    look: InstanceLook

    # fmt: off
    #: Never polled, or every poll of it is stale.
    UNKNOWN = InstanceLook(0, State.UNKNOWN, State.UNKNOWN.look.shape)
    OK = InstanceLook(1, State.HEALTHY, State.HEALTHY.look.shape, label="OK")
    #: The last two attempts failed.
    SILENT = InstanceLook(
        2, State.AT_RISK, complaint="is not responding", label="not responding",
        shape=(Stroke("M5.2 1.5h5.6l3.7 3.7v5.6l-3.7 3.7H5.2l-3.7-3.7V5.2z"), Stroke("M4.4 8h7.2", 2.2, style="knock")),
    )
    #: It responds, but with NOT_SERVING, or `/readyz` is not 200.
    UNHEALTHY = InstanceLook(3, State.AT_RISK, State.AT_RISK.look.shape, "is unhealthy")
    #: Its own resource expired.
    EXPIRED = InstanceLook(
        4, State.AT_RISK, (Stroke("M3.5 2h9L8 8l4.5 6h-9L8 8z", 1.6, style="round"),), "has expired"
    )
    #: Deregistered before its resource expired.
    GONE = InstanceLook(5, State.OFFLINE, State.RETIRED.look.shape, "was deregistered", "deregistered")
    # fmt: on

    @property
    def label(self) -> str:
        """Return the name on pages: `not responding`."""
        return self.look.label or self.slug

    @property
    def has_current_counts(self) -> bool:
        """Return whether the counts of the instance are current."""
        return self not in (InstanceState.UNKNOWN, InstanceState.SILENT)


#: States that harm the agents of an instance.
SICK_STATES = frozenset(state for state in InstanceState if state.look.complaint)
#: States that are faults. Deregistration is intended, although it harms the agents of the instance.
FAULT_STATES = SICK_STATES - {InstanceState.GONE}
#: States of instances that agents drop from their trackers.
LOST_STATES = frozenset({InstanceState.EXPIRED, InstanceState.GONE})
#: States of instances that forward no traffic.
CUT_OFF_STATES = frozenset({InstanceState.SILENT, InstanceState.GONE})
#: States in which connections to an instance survive while it responds.
CONNECTED_SICK_STATES = SICK_STATES - CUT_OFF_STATES
#: States of instances that have responded to their newest poll, also if the response was bad.
RESPONSIVE_STATES = frozenset({InstanceState.OK, InstanceState.UNHEALTHY, InstanceState.EXPIRED})
#: States of auths that Refloat reads lists from, the preferred first.
READABLE_STATES = (InstanceState.OK, InstanceState.UNKNOWN)


#: Status codes of `/readyz`: heartbeats fail; they succeed again, but not for long enough.
READYZ_DEGRADED, READYZ_RECOVERING = 503, 400


class ServingStatus(IntEnum):
    """grpc.health.v1.HealthCheckResponse.ServingStatus."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class PollAttempt:
    """One attempt to reach an instance. A failure is evidence too."""

    #: When it ended, seconds since the epoch.
    at: float
    ok: bool
    #: Error in one line for people; empty after a success.
    error: str = ""


@dataclass(frozen=True)
class InstanceResource:
    """An instance's resource in the presence lists. Without slots: facts are made from its `vars`."""

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
    """Results of polling an instance. The record holds each field under its name."""

    #: The last two attempts of any kind to reach the instance, newest first.
    attempts: tuple[PollAttempt, ...] = ()
    #: Last response of grpc.health.v1, and its time.
    serving: ServingStatus | None = None
    serving_at: float | None = None
    #: Why the instance is not serving, as a clause; empty: it does not tell.
    serving_problem: str = ""
    #: Last HTTP status code of `/readyz`, and its time.
    readyz: int | None = None
    readyz_at: float | None = None
    #: Seconds by which the clock of the instance was ahead of that of the worker then, negative: behind; None: it does
    #: not report it.
    clock_offset: float | None = None
    #: Connections that the instance counts by type of resource, sorted: tunnels of a proxy, connected resources of an
    #: auth. Of products that do not name the agents of tunnels.
    connection_counts: tuple[tuple[str, int], ...] = ()
    #: Tunnels that a proxy expects and does not have; None: it does not report them.
    missing_tunnel_count: int | None = None
    #: When the instance reported these counts.
    counted_at: float | None = None
    #: Destination health after repeated polls.
    watch: InstanceWatch = INITIAL_WATCH


@dataclass(frozen=True, slots=True)
class InstanceFacts(Poll):
    """Facts about one instance, none of them derived. Times are seconds since the epoch."""

    #: Host UUID, unique in the cluster.
    id: str
    #: Dense index in the cluster's packed columns; never reused.
    index: int
    kind: InstanceKind
    #: The short name people use: `proxy-1`.
    name: str
    #: host:port of gRPC.
    address: str
    #: host:port of `/healthz`, `/readyz` and `/metrics`; empty when unknown.
    diag_address: str = ""
    version: str = ""
    #: Announce TTL of its resource in seconds; None when the resource was never seen.
    ttl: float | None = None
    #: When its resource expires; None when its resource was never seen.
    expires_at: float | None = None
    #: When it was found deregistered before its resource expired.
    gone_at: float | None = None
    #: Start of the present problem: when it was first found unhealthy, silent or expired.
    sick_since: float | None = None
    #: Proxy group, for the tracker's rule.
    group: str = ""
    generation: int = 0
    #: Region that the instance reports; failures of one region at the same time have one cause.
    region: str = ""
    #: Of a proxy: id of the auth that received its newest heartbeat; empty when the proxy writes its resource itself.
    heartbeat_auth: str = ""
    #: When the list of instances was last read, with or without this instance: a later expiry is not observed and
    #: does not count. None: `expires_at` counts as it is.
    listed_at: float | None = None

    @property
    def poll_address(self) -> str:
        """host:port to poll: that of gRPC, else that of the diag port; empty without either."""
        return self.address or self.diag_address

    @property
    def last_error(self) -> str:
        """Original text of the newest error of the last two attempts; empty if both succeeded."""
        return next((attempt.error for attempt in self.attempts if attempt.error), "")


def complaint_of(facts: InstanceFacts, state: InstanceState) -> str:
    """Return the problem of an instance as a clause that follows its name, `lost its backend`; empty without one.

    The same words while the state changes from unhealthy to expired.
    """
    if state in CONNECTED_SICK_STATES and facts.readyz == READYZ_DEGRADED:
        return "lost its backend" if facts.kind is InstanceKind.AUTH else "cannot send heartbeats"
    if state is InstanceState.UNHEALTHY and facts.readyz == READYZ_RECOVERING:
        return "is recovering"
    return state.look.complaint


def poll_fields_of(poll: Poll) -> dict[str, Any]:
    """Return the poll fields of a poll or of facts, by name."""
    return {name: getattr(poll, name) for name in poll.__dataclass_fields__}


def extract_part(part_type: type[PartT], facts: InstanceFacts) -> PartT:
    """Return the resource or the poll that the facts were made from."""
    return part_type(**{name: getattr(facts, name) for name in part_type.__dataclass_fields__})
