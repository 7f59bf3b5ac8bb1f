"""Invariants of the balancer for random events."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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

CONFIGS = (
    ServiceConfig(),
    ServiceConfig(PickHealthyMode.RECONNECT, ""),
    ServiceConfig(PickHealthyMode.RECONNECT, "named"),
    ServiceConfig(PickHealthyMode.RECONNECT, None),
)
SERVICES = ("", "named")
DISCONNECTED_STATES = (Connectivity.IDLE, Connectivity.CONNECTING, Connectivity.TRANSIENT_FAILURE)

any_chance = st.floats(0, 1, exclude_max=True)


class Connections(RuleBasedStateMachine):
    """A balancer and its connections; any event may happen to any of them, retired ones included."""

    @initialize(
        first_wait=st.sampled_from([0.25, 0.0, None]),
        reconnect_every=st.sampled_from([None, 5.0]),
        chance=any_chance,
    )
    def start(self, first_wait: float | None, reconnect_every: float | None, chance: float) -> None:
        self.balancer = Balancer(BalancerSettings(first_wait=first_wait, reconnect_every=reconnect_every))
        self.now, self.chance = 0.0, chance
        self.open_connections: dict[int, Connectivity] = {}
        #: By connection: its life, the watched health service, and the last health of the watch.
        self.lives: dict[int, int] = {}
        self.services: dict[int, str | None] = {}
        self.health: dict[int, ServerHealth] = {}
        #: Connections that were READY when their watch began, and count as healthy.
        self.assumed_healthy: set[int] = set()
        self.retired_connections: set[int] = set()
        self.execute(self.balancer.start())

    def execute(self, commands: list[Command]) -> None:
        is_new_life = any(isinstance(command, RequestConfig) for command in commands)
        for command in commands:
            if isinstance(command, OpenConnection):
                assert command.connection_id not in self.open_connections.keys() | self.retired_connections, (
                    "ids are used once"
                )
                self.open_connections[command.connection_id] = Connectivity.IDLE
                assert len(self.open_connections) <= 2, "two backups"
            elif isinstance(command, RetireConnection):
                del self.open_connections[command.connection_id]
                self.retired_connections.add(command.connection_id)
            elif isinstance(command, RequestConfig):
                self.lives[command.connection_id] = command.life
                self.services[command.connection_id] = None
                self.health.pop(command.connection_id, None)
            elif isinstance(command, WatchHealth):
                if self.reports_ready(command.connection_id) and not is_new_life:
                    self.assumed_healthy.add(command.connection_id)
                else:
                    self.assumed_healthy.discard(command.connection_id)
                self.services[command.connection_id] = command.service
                self.health.pop(command.connection_id, None)

    def draw_connection(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.open_connections.keys() | self.retired_connections)))

    def reports_ready(self, connection: int) -> bool:
        health = self.health.get(connection)
        is_assumed = health is None and connection in self.assumed_healthy
        return self.services.get(connection) is None or health is ServerHealth.HEALTHY or is_assumed

    def is_watched(self, connection: int, service: str) -> bool:
        return (
            self.open_connections.get(connection) is Connectivity.READY
            and self.services.get(connection) == service
        )

    @rule(data=st.data(), chance=any_chance)
    def become_ready(self, data: st.DataObject, chance: float) -> None:
        connection = self.draw_connection(data)
        if connection in self.open_connections:
            self.open_connections[connection] = Connectivity.READY
        self.execute(self.balancer.on_connectivity(connection, Connectivity.READY, self.now, chance))

    @rule(data=st.data(), state=st.sampled_from(DISCONNECTED_STATES), chance=any_chance)
    def disconnect(self, data: st.DataObject, state: Connectivity, chance: float) -> None:
        connection = self.draw_connection(data)
        if connection in self.open_connections:
            self.open_connections[connection] = state
        self.execute(self.balancer.on_connectivity(connection, state, self.now, chance))

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), config=st.sampled_from(CONFIGS), age=st.integers(0, 1), chance=any_chance)
    def receive_config(self, data: st.DataObject, config: ServiceConfig, age: int, chance: float) -> None:
        connection = data.draw(st.sampled_from(sorted(self.lives)))
        self.execute(
            self.balancer.on_config(connection, self.lives[connection] - age, config, self.now, chance)
        )

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), age=st.integers(0, 1), chance=any_chance)
    def receive_no_policy(self, data: st.DataObject, age: int, chance: float) -> None:
        connection = data.draw(st.sampled_from(sorted(self.lives)))
        self.execute(
            self.balancer.on_policy_missing(connection, self.lives[connection] - age, self.now, chance)
        )

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), age=st.integers(0, 1), chance=any_chance)
    def fail_config_request(self, data: st.DataObject, age: int, chance: float) -> None:
        connection = data.draw(st.sampled_from(sorted(self.lives)))
        active_before, mode, services = self.balancer.active_id, self.balancer.mode, dict(self.services)
        self.execute(
            self.balancer.on_config_request_failed(connection, self.lives[connection] - age, self.now, chance)
        )
        assert self.services == services, "a failed request ended a watch"
        if active_before != self.balancer.active_id and services.get(connection) is not None:
            assert self.health.get(connection) is ServerHealth.HEALTHY, "a failed request counted as healthy"
        assert self.balancer.mode is mode or active_before != self.balancer.active_id

    @precondition(lambda self: self.lives)
    @rule(
        data=st.data(),
        health=st.sampled_from([ServerHealth.HEALTHY, ServerHealth.UNHEALTHY]),
        service=st.sampled_from(SERVICES),
        age=st.integers(0, 1),
        chance=any_chance,
    )
    def receive_health(
        self, data: st.DataObject, health: ServerHealth, service: str, age: int, chance: float
    ) -> None:
        connection = data.draw(st.sampled_from(sorted(self.lives)))
        active_before, backup_before = self.balancer.active_id, self.balancer.backup_id
        was_connected = self.open_connections.get(active_before) is Connectivity.READY
        if age == 0 and self.is_watched(connection, service):
            self.health[connection] = health
        self.execute(
            self.balancer.on_health(
                connection, self.lives[connection] - age, service, health, self.now, chance
            )
        )
        if (
            connection == active_before
            and backup_before is not None
            and health is ServerHealth.HEALTHY
            and age == 0
            and was_connected
        ):
            assert self.balancer.active_id == active_before, "the old connection recovered first"

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), service=st.sampled_from(SERVICES), age=st.integers(0, 1), chance=any_chance)
    def receive_service_unknown(self, data: st.DataObject, service: str, age: int, chance: float) -> None:
        connection = data.draw(st.sampled_from(sorted(self.lives)))
        if age == 0 and service == "" and self.is_watched(connection, service):
            self.health[connection] = ServerHealth.UNHEALTHY
        self.execute(
            self.balancer.on_service_unknown(
                connection, self.lives[connection] - age, service, self.now, chance
            )
        )

    @precondition(lambda self: self.balancer.wake_at is not None)
    @rule(delay=st.sampled_from([0.0, 0.0, 3600.0]), chance=any_chance)
    def fire_timer(self, delay: float, chance: float) -> None:
        wake_at = self.balancer.wake_at
        assert wake_at is not None
        self.now = max(self.now, wake_at) + delay
        self.execute(self.balancer.wake(self.now, chance))

    @rule(seconds=st.floats(0, 60))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def active_and_backup_are_open(self) -> None:
        """No other connection is open, and retired ones are not used again."""
        used_connections = {self.balancer.active_id, self.balancer.backup_id} - {None}
        assert used_connections == set(self.open_connections)

    @invariant()
    def calls_use_a_ready_connection(self) -> None:
        """If a connection is READY, calls use a READY one."""
        state = self.open_connections[self.balancer.picked_id]
        assert state is Connectivity.READY or Connectivity.READY not in self.open_connections.values()

    @invariant()
    def timer_runs_unless_healthy(self) -> None:
        """In reconnect mode a timer runs whenever the state is not READY."""
        balancer = self.balancer
        is_healthy = balancer.connectivity is Connectivity.READY and balancer.picked_id == balancer.active_id
        assert is_healthy or balancer.mode is PickHealthyMode.PICK_FIRST or balancer.wake_at is not None

    @invariant()
    def state_follows_the_watch(self) -> None:
        """gRFC A17 where health is watched; the connection's state otherwise."""
        picked_id = self.balancer.picked_id
        if self.open_connections[picked_id] is Connectivity.READY:
            assert (self.balancer.connectivity is Connectivity.READY) == self.reports_ready(picked_id)

    @invariant()
    def pick_first_has_one_connection(self) -> None:
        """Except during a periodic reconnect."""
        if self.balancer.mode is PickHealthyMode.PICK_FIRST and self.balancer.wake_at is None:
            assert self.balancer.backup_id is None


TestConnections = Connections.TestCase
