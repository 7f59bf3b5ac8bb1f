"""Events of a connection for its channel, and what both kinds of channel do with them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2

from fleet.protocol.recovery.pick_healthy import Balancer, Command, Connectivity, RetireReason, ServerHealth
from fleet.protocol.recovery.service_config import PickHealthyMode
from fleet.transport.service_config import ConfigResponse

log = logging.getLogger(__name__)

#: Called with the reason when a connection is retired.
OnRetire = Callable[[RetireReason], None]

#: Seconds until a failed request or watch is repeated, doubled each time up to the ceiling.
_RETRY_WAIT_RANGE = (1.0, 16.0)


@dataclass(frozen=True, slots=True)
class ConnectivityChange:
    """The connection has a new state, or is READY again."""

    connectivity: grpc.ChannelConnectivity


@dataclass(frozen=True, slots=True)
class ConfigUpdate:
    """The server sent its service config; None: the request failed."""

    life: int
    response: ConfigResponse | None


@dataclass(frozen=True, slots=True)
class HealthUpdate:
    """The health watch of a service reported a status."""

    life: int
    service: str
    health: ServerHealth
    #: False: the server has no health service.
    has_health_service: bool = True


@dataclass(frozen=True, slots=True)
class ServiceUnknown:
    """The server does not know the watched service: SERVICE_UNKNOWN."""

    life: int
    service: str


Event = ConnectivityChange | ConfigUpdate | HealthUpdate | ServiceUnknown


@dataclass(frozen=True, slots=True)
class ChannelPolicy:
    """The policy in force on a channel."""

    mode: PickHealthyMode
    #: True if the health of the connection is actually watched.
    health_check: bool
    #: Id of the auth that sent it; empty if unknown.
    auth_id: str
    #: When it was received, by the monotonic clock.
    received_at: float
    #: The policy's health service if the server does not know it: the health of the whole server is watched instead.
    unknown_service: str | None = None

    @property
    def problem(self) -> str:
        """Why the policy is not followed exactly; empty when it is."""
        return "" if self.unknown_service is None else _unknown_sentence(self.unknown_service)


def decide(balancer: Balancer, number: int, event: Event, now: float, chance: float) -> list[Command]:
    """Pass an event to the balancer; return its commands."""
    if isinstance(event, ConnectivityChange):
        return balancer.on_connectivity(number, Connectivity[event.connectivity.name], now, chance)
    if isinstance(event, HealthUpdate):
        return balancer.on_health(
            number,
            event.life,
            event.service,
            event.health,
            now,
            chance,
            has_health_service=event.has_health_service,
        )
    if isinstance(event, ServiceUnknown):
        return balancer.on_service_unknown(number, event.life, event.service, now, chance)
    response = event.response
    if response is None or response.problem:
        return balancer.on_config_request_failed(number, event.life, now, chance)
    if response.config is None:
        return balancer.on_policy_missing(number, event.life, now, chance)
    return balancer.on_config(number, event.life, response.config, now, chance)


def policy_of(
    balancer: Balancer, response: ConfigResponse | None, received_at: float | None
) -> ChannelPolicy | None:
    """Return the policy in force on a channel; None before a server has sent one."""
    if response is None or received_at is None:
        return None
    return ChannelPolicy(
        balancer.mode, balancer.health_check, response.auth_id, received_at, balancer.unknown_service
    )


def is_answer(event: ConfigUpdate) -> bool:
    """Return whether the server sent its policy, or has none."""
    return event.response is not None and not event.response.problem


def event_of_status(life: int, service: str, status: int) -> HealthUpdate | ServiceUnknown:
    """Return the event for a status of a health watch. Only SERVING is healthy: gRFC A17."""
    if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
        return ServiceUnknown(life, service)
    is_serving = status == health_pb2.HealthCheckResponse.SERVING
    return HealthUpdate(life, service, ServerHealth.HEALTHY if is_serving else ServerHealth.UNHEALTHY)


def call_back(callback: Callable[..., None], *args: object) -> None:
    """Call a callback of the channel's user; an exception is logged, as in grpc, and does not end our watches."""
    try:
        callback(*args)
    except Exception:
        log.exception("a callback of the channel's user failed")


def connectivity_of(balancer: Balancer) -> grpc.ChannelConnectivity:
    """Return the state of the channel in grpc's own type."""
    return grpc.ChannelConnectivity[balancer.connectivity.name]


#: Log texts for a retired connection. Failed attempts repeat, so they are logged at level DEBUG.
_RETIRE_LOGS = {
    RetireReason.MOVED: (logging.INFO, "moved to another connection: the old one was unhealthy or lost"),
    RetireReason.RENEWED: (logging.INFO, "moved to a new connection as scheduled"),
    RetireReason.RECOVERED: (logging.INFO, "stays on its connection, which became healthy before the backup"),
    RetireReason.REPLACED: (
        logging.DEBUG,
        "tries another server: the last one was also unhealthy, or did not answer",
    ),
    RetireReason.RENEWAL_FAILED: (
        logging.DEBUG,
        "stays on its connection: the scheduled new connection failed",
    ),
}


def log_retired(name: str, reason: RetireReason) -> None:
    """Log that a connection of a channel was retired, and why."""
    level, sentence = _RETIRE_LOGS[reason]
    log.log(level, "balancer.%s: %s %s", reason, name, sentence)


def log_unreadable_policy(name: str, response: ConfigResponse | None, logged_auth_ids: set[str]) -> bool:
    """Log an unreadable policy, once per server; return whether it was unreadable."""
    if response is None or not response.problem:
        return False
    if response.auth_id not in logged_auth_ids:
        logged_auth_ids.add(response.auth_id)
        log.warning(
            "service-config.unreadable: %s: policy of auth %.40r cannot be read: %s",
            name,
            response.auth_id or "unknown",
            response.problem,
        )
    return True


def log_unknown_service(name: str, event: ServiceUnknown, logged_services: set[str]) -> None:
    """Log a warning that servers do not know a health service, once per service."""
    if event.service not in logged_services:
        logged_services.add(event.service)
        log.warning("health.service-unknown: %s: %s", name, _unknown_sentence(event.service))


def _unknown_sentence(service: str) -> str:
    if not service:
        return "SERVICE_UNKNOWN: the server does not report its own health"
    return (
        f"SERVICE_UNKNOWN: no health service {service[:80]!r}; using the health of the whole server instead"
    )


def seconds_before_retry(try_count: int, chance: float) -> float:
    """Return the seconds to wait before a failed request or watch is repeated."""
    least, most = _RETRY_WAIT_RANGE
    return min(least * 2.0 ** min(try_count, 32), most) * (1 + chance / 2)
