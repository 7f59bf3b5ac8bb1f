"""What a connection tells its channel, and what both kinds of channel make of it."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from fleet.protocol.pick_healthy import Balancer, Command, Connectivity, Health
from fleet.protocol.service_config import Mode
from fleet.transport.service_config import Discovered

#: A question, or a watch, that failed is tried again after this, seconds, doubled each time up to the ceiling.
_AGAIN = (1.0, 16.0)


@dataclass(frozen=True, slots=True)
class Turned:
    """It is in another state, or READY anew."""

    connectivity: grpc.ChannelConnectivity


@dataclass(frozen=True, slots=True)
class Configured:
    """It answered with its service config; None when the question failed."""

    life: int
    found: Discovered | None


@dataclass(frozen=True, slots=True)
class Told:
    """Its health watch said something."""

    life: int
    health: Health
    #: False: its server has no such service, and is not watched.
    watched: bool = True


Event = Turned | Configured | Told


@dataclass(frozen=True, slots=True)
class Policy:
    """What a channel runs with."""

    mode: Mode
    #: The health of its connection is really watched.
    health_check: bool
    #: The auth that answered; empty when it did not say.
    auth_id: str
    #: When it was read, by the monotonic clock.
    read_at: float


def decide(balancer: Balancer, number: int, event: Event, now: float, chance: float) -> list[Command]:
    """Give an event to the balancer."""
    if isinstance(event, Turned):
        return balancer.turned(number, Connectivity[event.connectivity.name], now, chance)
    if isinstance(event, Configured):
        config = None if event.found is None else event.found.config
        return balancer.configured(number, event.life, config, now, chance)
    return balancer.told(number, event.life, event.health, now, chance, watched=event.watched)


def connectivity_of(balancer: Balancer) -> grpc.ChannelConnectivity:
    """The state of the whole in grpc's own type."""
    return grpc.ChannelConnectivity[balancer.connectivity.name]


def wait_again(tries: int, chance: float) -> float:
    """How long to wait before a question or a watch is tried again, seconds."""
    least, most = _AGAIN
    return min(least * 2.0 ** min(tries, 32), most) * (1 + chance / 2)
