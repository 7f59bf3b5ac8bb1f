"""A shell for the pure balancer: it does what the balancer commands, with a clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fleet.protocol.recovery.pick_healthy import (
    Balancer,
    BalancerSettings,
    Command,
    Connectivity,
    Open,
    RequestConfig,
    Retire,
    ServerHealth,
    Watch,
)
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig

RECONNECT = ServiceConfig(PickHealthyMode.RECONNECT, "")
PICK_FIRST = ServiceConfig()
READY, FAILURE = Connectivity.READY, Connectivity.TRANSIENT_FAILURE


@dataclass
class Shell:
    """The connections of one balancer, and what happens to them."""

    settings: BalancerSettings = field(default_factory=BalancerSettings)
    chance: float = 0.5
    now: float = 1000.0
    open: list[int] = field(default_factory=list)
    said: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.balancer = Balancer(self.settings)
        self.lives: dict[int, int] = {}
        self.services: dict[int, str | None] = {}
        self.do(self.balancer.start())

    def do(self, commands: list[Command]) -> None:
        self.said += commands
        for command in commands:
            if isinstance(command, Open):
                self.open.append(command.connection)
            elif isinstance(command, Retire):
                self.open.remove(command.connection)
            elif isinstance(command, RequestConfig):
                self.lives[command.connection] = command.life
            elif isinstance(command, Watch):
                self.services[command.connection] = command.service

    def turned(self, which: int, state: Connectivity) -> Shell:
        self.do(self.balancer.on_connectivity(which, state, self.now, self.chance))
        return self

    def configured(self, which: int, config: ServiceConfig | None) -> Shell:
        life = self.lives[which]
        if config is None:
            self.do(self.balancer.on_policy_missing(which, life, self.now, self.chance))
        else:
            self.do(self.balancer.on_config(which, life, config, self.now, self.chance))
        return self

    def failed(self, which: int) -> Shell:
        """Let the question for the policy fail."""
        self.do(self.balancer.on_config_request_failed(which, self.lives[which], self.now, self.chance))
        return self

    def service_unknown(self, which: int) -> Shell:
        """Let the server say that it does not know the service that is watched."""
        life, service = self.lives[which], self.services[which] or ""
        self.do(self.balancer.on_service_unknown(which, life, service, self.now, self.chance))
        return self

    def told(self, which: int, health: ServerHealth, *, watched: bool = True) -> Shell:
        life, service = self.lives[which], self.services.get(which) or ""
        self.do(
            self.balancer.on_health(
                which, life, service, health, self.now, self.chance, has_health_service=watched
            )
        )
        return self

    def connect(self, which: int, config: ServiceConfig | None = RECONNECT) -> Shell:
        return self.turned(which, READY).configured(which, config)

    def healthy(self, which: int) -> Shell:
        return self.connect(which).told(which, ServerHealth.HEALTHY)

    def unhealthy(self, which: int) -> Shell:
        return self.connect(which).told(which, ServerHealth.UNHEALTHY)

    def timer(self) -> Shell:
        """Let the next timer fire."""
        assert self.balancer.wake_at is not None, "a timer runs"
        self.now = max(self.now, self.balancer.wake_at)
        self.do(self.balancer.wake(self.now, self.chance))
        return self

    @property
    def waits(self) -> float | None:
        at = self.balancer.wake_at
        return None if at is None else pytest.approx(at - self.now)


def healthy_shell(**settings: float | None) -> Shell:
    """In reconnect mode with a healthy connection, number 0."""
    return Shell(BalancerSettings(**settings)).healthy(0)
