"""A shell for the pure balancer: it does what the balancer commands, with a clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fleet.protocol.recovery.pick_healthy import (
    Ask,
    Balancer,
    Command,
    Connectivity,
    Health,
    Open,
    Retire,
    Settings,
    Watch,
)
from fleet.protocol.recovery.service_config import Mode, ServiceConfig

RECONNECT = ServiceConfig(Mode.RECONNECT, "")
PICK_FIRST = ServiceConfig()
READY, FAILURE = Connectivity.READY, Connectivity.TRANSIENT_FAILURE


@dataclass
class Shell:
    """The connections of one balancer, and what happens to them."""

    settings: Settings = field(default_factory=Settings)
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
            elif isinstance(command, Ask):
                self.lives[command.connection] = command.life
            elif isinstance(command, Watch):
                self.services[command.connection] = command.service

    def turned(self, which: int, state: Connectivity) -> Shell:
        self.do(self.balancer.turned(which, state, self.now, self.chance))
        return self

    def configured(self, which: int, config: ServiceConfig | None) -> Shell:
        life = self.lives[which]
        if config is None:
            self.do(self.balancer.policy_missing(which, life, self.now, self.chance))
        else:
            self.do(self.balancer.configured(which, life, config, self.now, self.chance))
        return self

    def failed(self, which: int) -> Shell:
        """Let the question for the policy fail."""
        self.do(self.balancer.question_failed(which, self.lives[which], self.now, self.chance))
        return self

    def service_unknown(self, which: int) -> Shell:
        """Let the server say that it does not know the service that is watched."""
        life, service = self.lives[which], self.services[which] or ""
        self.do(self.balancer.service_unknown(which, life, service, self.now, self.chance))
        return self

    def told(self, which: int, health: Health, *, watched: bool = True) -> Shell:
        life, service = self.lives[which], self.services.get(which) or ""
        self.do(self.balancer.told(which, life, service, health, self.now, self.chance, watched=watched))
        return self

    def connect(self, which: int, config: ServiceConfig | None = RECONNECT) -> Shell:
        return self.turned(which, READY).configured(which, config)

    def healthy(self, which: int) -> Shell:
        return self.connect(which).told(which, Health.HEALTHY)

    def unhealthy(self, which: int) -> Shell:
        return self.connect(which).told(which, Health.UNHEALTHY)

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
    return Shell(Settings(**settings)).healthy(0)
