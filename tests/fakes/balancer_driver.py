"""Driver for the pure balancer: it executes the balancer's commands, with a clock that the test sets."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fleet.protocol.recovery.pick_healthy import (
    Balancer,
    BalancerSettings,
    Command,
    Connectivity,
    OpenConnection,
    RequestConfig,
    RetireConnection,
    ServerHealth,
    WatchHealth,
)
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig

RECONNECT = ServiceConfig(PickHealthyMode.RECONNECT, "")
PICK_FIRST = ServiceConfig()
READY, FAILURE = Connectivity.READY, Connectivity.TRANSIENT_FAILURE


@dataclass
class BalancerDriver:
    """The connections of one balancer, and methods for the events that happen to them."""

    settings: BalancerSettings = field(default_factory=BalancerSettings)
    chance: float = 0.5
    now: float = 1000.0
    open_connections: list[int] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.balancer = Balancer(self.settings)
        self.lives: dict[int, int] = {}
        self.services: dict[int, str | None] = {}
        self.execute(self.balancer.start())

    def execute(self, commands: list[Command]) -> None:
        self.commands += commands
        for command in commands:
            if isinstance(command, OpenConnection):
                self.open_connections.append(command.connection_id)
            elif isinstance(command, RetireConnection):
                self.open_connections.remove(command.connection_id)
            elif isinstance(command, RequestConfig):
                self.lives[command.connection_id] = command.life
            elif isinstance(command, WatchHealth):
                self.services[command.connection_id] = command.service

    def set_connectivity(self, connection: int, state: Connectivity) -> BalancerDriver:
        self.execute(self.balancer.on_connectivity(connection, state, self.now, self.chance))
        return self

    def set_config(self, connection: int, config: ServiceConfig | None) -> BalancerDriver:
        life = self.lives[connection]
        if config is None:
            self.execute(self.balancer.on_policy_missing(connection, life, self.now, self.chance))
        else:
            self.execute(self.balancer.on_config(connection, life, config, self.now, self.chance))
        return self

    def fail_config_request(self, connection: int) -> BalancerDriver:
        """Make the request for the config fail."""
        self.execute(
            self.balancer.on_config_request_failed(connection, self.lives[connection], self.now, self.chance)
        )
        return self

    def report_service_unknown(self, connection: int) -> BalancerDriver:
        """Report that the server does not know the watched health service."""
        life, service = self.lives[connection], self.services[connection] or ""
        self.execute(self.balancer.on_service_unknown(connection, life, service, self.now, self.chance))
        return self

    def set_health(
        self, connection: int, health: ServerHealth, *, has_health_service: bool = True
    ) -> BalancerDriver:
        life, service = self.lives[connection], self.services.get(connection) or ""
        self.execute(
            self.balancer.on_health(
                connection,
                life,
                service,
                health,
                self.now,
                self.chance,
                has_health_service=has_health_service,
            )
        )
        return self

    def connect(self, connection: int, config: ServiceConfig | None = RECONNECT) -> BalancerDriver:
        return self.set_connectivity(connection, READY).set_config(connection, config)

    def connect_healthy(self, connection: int) -> BalancerDriver:
        return self.connect(connection).set_health(connection, ServerHealth.HEALTHY)

    def connect_unhealthy(self, connection: int) -> BalancerDriver:
        return self.connect(connection).set_health(connection, ServerHealth.UNHEALTHY)

    def fire_timer(self) -> BalancerDriver:
        """Advance the clock to the next timer, and run it."""
        assert self.balancer.wake_at is not None, "a timer runs"
        self.now = max(self.now, self.balancer.wake_at)
        self.execute(self.balancer.wake(self.now, self.chance))
        return self

    @property
    def seconds_to_timer(self) -> float | None:
        wake_at = self.balancer.wake_at
        return None if wake_at is None else pytest.approx(wake_at - self.now)


def healthy_driver(**settings: float | None) -> BalancerDriver:
    """Return a driver in reconnect mode with a healthy connection, number 0."""
    return BalancerDriver(BalancerSettings(**settings)).connect_healthy(0)
