"""What a connection tells its channel, and what both kinds of channel make of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from fleet.protocol.pick_healthy import Balancer, Command, Connectivity, Health, Why
from fleet.protocol.service_config import Mode
from fleet.transport.service_config import Discovered

log = logging.getLogger(__name__)

#: Is told why a connection was left.
Left = Callable[[Why], None]

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


#: What is said of a connection that was left. Attempts that fail come again and again: not for every log.
_SENTENCES = {
    Why.MOVED: (logging.INFO, "goes over another connection: the old one was sick or lost"),
    Why.RENEWED: (logging.INFO, "goes over a new connection, as it does now and then"),
    Why.RECOVERED: (logging.INFO, "stays: its connection was well before another was"),
    Why.REPLACED: (logging.DEBUG, "tries another server: the last one was sick too, or did not answer"),
    Why.RENEWAL_FAILED: (logging.DEBUG, "stays: the new connection was no better"),
}


def log_left(name: str, why: Why) -> None:
    """Say that a connection of a channel was left, and why."""
    level, what = _SENTENCES[why]
    log.log(level, "balancer.%s: %s %s", why, name, what)


def log_refused(name: str, found: Discovered | None, told: set[str]) -> bool:
    """Say that an answer cannot be read, once of each server; whether it is so."""
    if found is None or not found.problem:
        return False
    if found.auth_id not in told:
        told.add(found.auth_id)
        log.warning(
            "service-config.refused: %s: of auth %.40r: %s", name, found.auth_id or "unknown", found.problem
        )
    return True


def wait_again(tries: int, chance: float) -> float:
    """How long to wait before a question or a watch is tried again, seconds."""
    least, most = _AGAIN
    return min(least * 2.0 ** min(tries, 32), most) * (1 + chance / 2)
