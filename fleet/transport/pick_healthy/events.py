"""What a connection tells its channel, and what both kinds of channel make of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2

from fleet.protocol.recovery.pick_healthy import Balancer, Command, Connectivity, ServerHealth, RetireReason
from fleet.protocol.recovery.service_config import PickHealthyMode
from fleet.transport.service_config import ConfigResponse

log = logging.getLogger(__name__)

#: Is told why a connection was left.
OnLeave = Callable[[RetireReason], None]

#: A question, or a watch, that failed is tried again after this, seconds, doubled each time up to the ceiling.
_RETRY_WAITS = (1.0, 16.0)


@dataclass(frozen=True, slots=True)
class ConnectivityChange:
    """It is in another state, or READY anew."""

    connectivity: grpc.ChannelConnectivity


@dataclass(frozen=True, slots=True)
class ConfigUpdate:
    """It answered with its service config; None when the question failed."""

    life: int
    response: ConfigResponse | None


@dataclass(frozen=True, slots=True)
class HealthUpdate:
    """The health watch of a service said something."""

    life: int
    service: str
    health: ServerHealth
    #: False: its server has no health service, and is not watched.
    has_health_service: bool = True


@dataclass(frozen=True, slots=True)
class ServiceUnknown:
    """The server does not know the service that is watched: SERVICE_UNKNOWN."""

    life: int
    service: str


Event = ConnectivityChange | ConfigUpdate | HealthUpdate | ServiceUnknown


@dataclass(frozen=True, slots=True)
class ChannelPolicy:
    """What a channel runs with."""

    mode: PickHealthyMode
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
    if isinstance(event, ConnectivityChange):
        return balancer.on_connectivity(number, Connectivity[event.connectivity.name], now, chance)
    if isinstance(event, HealthUpdate):
        return balancer.on_health(
            number, event.life, event.service, event.health, now, chance, has_health_service=event.has_health_service
        )
    if isinstance(event, ServiceUnknown):
        return balancer.on_service_unknown(number, event.life, event.service, now, chance)
    response = event.response
    if response is None or response.problem:
        return balancer.on_config_request_failed(number, event.life, now, chance)
    if response.config is None:
        return balancer.on_policy_missing(number, event.life, now, chance)
    return balancer.on_config(number, event.life, response.config, now, chance)


def policy_of(balancer: Balancer, response: ConfigResponse | None, read_at: float | None) -> ChannelPolicy | None:
    """Return what a channel runs with; None while no server has told it."""
    if response is None or read_at is None:
        return None
    return ChannelPolicy(balancer.mode, balancer.health_check, response.auth_id, read_at, balancer.unknown_service)


def is_answer(event: ConfigUpdate) -> bool:
    """Whether the server said what its policy is, or that it has none."""
    return event.response is not None and not event.response.problem


def event_of_status(life: int, service: str, status: int) -> HealthUpdate | ServiceUnknown:
    """The event for an answer of a health watch. Only SERVING is healthy: gRFC A17."""
    if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
        return ServiceUnknown(life, service)
    is_serving = status == health_pb2.HealthCheckResponse.SERVING
    return HealthUpdate(life, service, ServerHealth.HEALTHY if is_serving else ServerHealth.UNHEALTHY)


def call_back(callback: Callable[..., None], *args: object) -> None:
    """Call a callback of whoever uses the channel: its fault is logged, as grpc does, and ends no watch of ours."""
    try:
        callback(*args)
    except Exception:
        log.exception("a callback of a channel failed")


def connectivity_of(balancer: Balancer) -> grpc.ChannelConnectivity:
    """The state of the whole in grpc's own type."""
    return grpc.ChannelConnectivity[balancer.connectivity.name]


#: What is said of a connection that was left. Attempts that fail come again and again: not for every log.
_SENTENCES = {
    RetireReason.MOVED: (logging.INFO, "goes over another connection: the old one was sick or lost"),
    RetireReason.RENEWED: (logging.INFO, "goes over a new connection, as it does now and then"),
    RetireReason.RECOVERED: (logging.INFO, "stays: its connection was well before another was"),
    RetireReason.REPLACED: (logging.DEBUG, "tries another server: the last one was sick too, or did not answer"),
    RetireReason.RENEWAL_FAILED: (logging.DEBUG, "stays: the new connection was no better"),
}


def log_retired(name: str, reason: RetireReason) -> None:
    """Say that a connection of a channel was left, and why."""
    level, sentence = _SENTENCES[reason]
    log.log(level, "balancer.%s: %s %s", reason, name, sentence)


def log_unreadable(name: str, response: ConfigResponse | None, logged_auth_ids: set[str]) -> bool:
    """Say that an answer cannot be read, once of each server; whether it is so."""
    if response is None or not response.problem:
        return False
    if response.auth_id not in logged_auth_ids:
        logged_auth_ids.add(response.auth_id)
        log.warning(
            "service-config.refused: %s: of auth %.40r: %s", name, response.auth_id or "unknown", response.problem
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
    least, most = _RETRY_WAITS
    return min(least * 2.0 ** min(tries, 32), most) * (1 + chance / 2)
