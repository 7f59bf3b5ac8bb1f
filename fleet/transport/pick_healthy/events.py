"""What a connection tells its channel, and what both kinds of channel make of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2

from fleet.protocol.recovery.pick_healthy import Balancer, Command, Connectivity, Health, Why
from fleet.protocol.recovery.service_config import Mode
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
    """The health watch of a service said something."""

    life: int
    service: str
    health: Health
    #: False: its server has no health service, and is not watched.
    watched: bool = True


@dataclass(frozen=True, slots=True)
class ServiceUnknown:
    """The server does not know the service that is watched: SERVICE_UNKNOWN."""

    life: int
    service: str


Event = Turned | Configured | Told | ServiceUnknown


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
    #: The service it names, if the server does not know that service: the health of the whole server is watched.
    unknown_service: str | None = None

    @property
    def problem(self) -> str:
        """Why the policy is not followed to the letter; empty when it is."""
        return "" if self.unknown_service is None else _unknown_sentence(self.unknown_service)


def decide(balancer: Balancer, number: int, event: Event, now: float, chance: float) -> list[Command]:
    """Give an event to the balancer."""
    if isinstance(event, Turned):
        return balancer.turned(number, Connectivity[event.connectivity.name], now, chance)
    if isinstance(event, Told):
        return balancer.told(
            number, event.life, event.service, event.health, now, chance, watched=event.watched
        )
    if isinstance(event, ServiceUnknown):
        return balancer.service_unknown(number, event.life, event.service, now, chance)
    found = event.found
    if found is None or found.problem:
        return balancer.question_failed(number, event.life, now, chance)
    if found.config is None:
        return balancer.policy_missing(number, event.life, now, chance)
    return balancer.configured(number, event.life, found.config, now, chance)


def policy_of(balancer: Balancer, found: Discovered | None, read_at: float | None) -> Policy | None:
    """Return what a channel runs with; None while no server has told it."""
    if found is None or read_at is None:
        return None
    return Policy(balancer.mode, balancer.health_check, found.auth_id, read_at, balancer.unknown_service)


def is_answer(event: Configured) -> bool:
    """Whether the server said what its policy is, or that it has none."""
    return event.found is not None and not event.found.problem


def event_of_status(life: int, service: str, status: int) -> Told | ServiceUnknown:
    """The event for an answer of a health watch. Only SERVING is healthy: gRFC A17."""
    if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
        return ServiceUnknown(life, service)
    serving = status == health_pb2.HealthCheckResponse.SERVING
    return Told(life, service, Health.HEALTHY if serving else Health.UNHEALTHY)


def call_back(callback: Callable[..., None], *news: object) -> None:
    """Call a callback of whoever uses the channel: its fault is logged, as grpc does, and ends no watch of ours."""
    try:
        callback(*news)
    except Exception:
        log.exception("a callback of a channel failed")


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


def log_unknown_service(name: str, event: ServiceUnknown, logged_services: set[str]) -> None:
    """Warn that servers do not know a service, once of each service."""
    if event.service not in logged_services:
        logged_services.add(event.service)
        log.warning("health.service_unknown: %s: %s", name, _unknown_sentence(event.service))


def _unknown_sentence(service: str) -> str:
    if not service:
        return "SERVICE_UNKNOWN: the server does not know its own health"
    return (
        f"SERVICE_UNKNOWN: no health service {service[:80]!r}; the health of the whole server counts instead"
    )


def wait_again(tries: int, chance: float) -> float:
    """How long to wait before a question or a watch is tried again, seconds."""
    least, most = _AGAIN
    return min(least * 2.0 ** min(tries, 32), most) * (1 + chance / 2)
