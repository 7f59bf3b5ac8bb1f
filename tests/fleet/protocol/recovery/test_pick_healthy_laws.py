"""What holds of the balancer whatever happens, in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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

CONFIGS = (
    ServiceConfig(),
    ServiceConfig(PickHealthyMode.RECONNECT, ""),
    ServiceConfig(PickHealthyMode.RECONNECT, "named"),
    ServiceConfig(PickHealthyMode.RECONNECT, None),
)
SERVICES = ("", "named")
LOST = (Connectivity.IDLE, Connectivity.CONNECTING, Connectivity.TRANSIENT_FAILURE)

chances = st.floats(0, 1, exclude_max=True)


class Connections(RuleBasedStateMachine):
    """A shell with connections to which anything may happen, old ones included."""

    @initialize(
        first_wait=st.sampled_from([0.25, 0.0, None]), every=st.sampled_from([None, 5.0]), chance=chances
    )
    def start(self, first_wait: float | None, every: float | None, chance: float) -> None:
        self.balancer = Balancer(BalancerSettings(first_wait=first_wait, reconnect_every=every))
        self.now, self.chance = 0.0, chance
        self.open: dict[int, Connectivity] = {}
        #: By connection: its life, the service whose health is watched, and what the watch said last.
        self.lives: dict[int, int] = {}
        self.services: dict[int, str | None] = {}
        self.health: dict[int, ServerHealth] = {}
        #: Connections that were READY when their watch began.
        self.assumed: set[int] = set()
        self.retired: set[int] = set()
        self.do(self.balancer.start())

    def do(self, commands: list[Command]) -> None:
        begins = any(isinstance(command, RequestConfig) for command in commands)
        for command in commands:
            if isinstance(command, Open):
                assert command.connection not in self.open.keys() | self.retired, "ids are used once"
                self.open[command.connection] = Connectivity.IDLE
                assert len(self.open) <= 2, "never two backups"
            elif isinstance(command, Retire):
                del self.open[command.connection]
                self.retired.add(command.connection)
            elif isinstance(command, RequestConfig):
                self.lives[command.connection] = command.life
                self.services[command.connection] = None
                self.health.pop(command.connection, None)
            elif isinstance(command, Watch):
                if self.reports_ready(command.connection) and not begins:
                    self.assumed.add(command.connection)
                else:
                    self.assumed.discard(command.connection)
                self.services[command.connection] = command.service
                self.health.pop(command.connection, None)

    def any_of(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.open.keys() | self.retired)))

    def reports_ready(self, which: int) -> bool:
        heard = self.health.get(which)
        assumed = heard is None and which in self.assumed
        return self.services.get(which) is None or heard is ServerHealth.HEALTHY or assumed

    def is_watched(self, which: int, service: str) -> bool:
        return self.open.get(which) is Connectivity.READY and self.services.get(which) == service

    @rule(data=st.data(), chance=chances)
    def connects(self, data: st.DataObject, chance: float) -> None:
        which = self.any_of(data)
        if which in self.open:
            self.open[which] = Connectivity.READY
        self.do(self.balancer.on_connectivity(which, Connectivity.READY, self.now, chance))

    @rule(data=st.data(), how=st.sampled_from(LOST), chance=chances)
    def breaks(self, data: st.DataObject, how: Connectivity, chance: float) -> None:
        which = self.any_of(data)
        if which in self.open:
            self.open[which] = how
        self.do(self.balancer.on_connectivity(which, how, self.now, chance))

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), config=st.sampled_from(CONFIGS), back=st.integers(0, 1), chance=chances)
    def answers(self, data: st.DataObject, config: ServiceConfig, back: int, chance: float) -> None:
        which = data.draw(st.sampled_from(sorted(self.lives)))
        self.do(self.balancer.on_config(which, self.lives[which] - back, config, self.now, chance))

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), back=st.integers(0, 1), chance=chances)
    def has_no_policy(self, data: st.DataObject, back: int, chance: float) -> None:
        which = data.draw(st.sampled_from(sorted(self.lives)))
        self.do(self.balancer.on_policy_missing(which, self.lives[which] - back, self.now, chance))

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), back=st.integers(0, 1), chance=chances)
    def fails_to_answer(self, data: st.DataObject, back: int, chance: float) -> None:
        which = data.draw(st.sampled_from(sorted(self.lives)))
        was_active, mode, services = self.balancer.active_id, self.balancer.mode, dict(self.services)
        self.do(self.balancer.on_config_request_failed(which, self.lives[which] - back, self.now, chance))
        assert self.services == services, "a failed question ends no watch"
        if was_active != self.balancer.active_id and services.get(which) is not None:
            assert self.health.get(which) is ServerHealth.HEALTHY, "a failed question is no sign of health"
        assert self.balancer.mode is mode or was_active != self.balancer.active_id

    @precondition(lambda self: self.lives)
    @rule(
        data=st.data(),
        health=st.sampled_from([ServerHealth.HEALTHY, ServerHealth.UNHEALTHY]),
        service=st.sampled_from(SERVICES),
        back=st.integers(0, 1),
        chance=chances,
    )
    def tells(
        self, data: st.DataObject, health: ServerHealth, service: str, back: int, chance: float
    ) -> None:
        which = data.draw(st.sampled_from(sorted(self.lives)))
        was_active, backup = self.balancer.active_id, self.balancer.backup_id
        connected = self.open.get(was_active) is Connectivity.READY
        if back == 0 and self.is_watched(which, service):
            self.health[which] = health
        self.do(self.balancer.on_health(which, self.lives[which] - back, service, health, self.now, chance))
        if (
            which == was_active
            and backup is not None
            and health is ServerHealth.HEALTHY
            and back == 0
            and connected
        ):
            assert self.balancer.active_id == was_active, "the old one wins if it recovers first"

    @precondition(lambda self: self.lives)
    @rule(data=st.data(), service=st.sampled_from(SERVICES), back=st.integers(0, 1), chance=chances)
    def does_not_know(self, data: st.DataObject, service: str, back: int, chance: float) -> None:
        which = data.draw(st.sampled_from(sorted(self.lives)))
        if back == 0 and service == "" and self.is_watched(which, service):
            self.health[which] = ServerHealth.UNHEALTHY
        self.do(self.balancer.on_service_unknown(which, self.lives[which] - back, service, self.now, chance))

    @precondition(lambda self: self.balancer.wake_at is not None)
    @rule(late=st.sampled_from([0.0, 0.0, 3600.0]), chance=chances)
    def wakes(self, late: float, chance: float) -> None:
        at = self.balancer.wake_at
        assert at is not None
        self.now = max(self.now, at) + late
        self.do(self.balancer.wake(self.now, chance))

    @rule(seconds=st.floats(0, 60))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def active_and_backup_are_open(self) -> None:
        """What is retired is never used again, and nothing else is left open."""
        ours = {self.balancer.active_id, self.balancer.backup_id} - {None}
        assert ours == set(self.open)

    @invariant()
    def rpcs_have_a_connection(self) -> None:
        """While one is READY, RPCs go to one that is."""
        picked = self.open[self.balancer.picked_id]
        assert picked is Connectivity.READY or Connectivity.READY not in self.open.values()

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        """In reconnect mode a timer runs whenever things are not well."""
        balancer = self.balancer
        well = balancer.connectivity is Connectivity.READY and balancer.picked_id == balancer.active_id
        assert well or balancer.mode is PickHealthyMode.PICK_FIRST or balancer.wake_at is not None

    @invariant()
    def state_is_what_the_watch_says(self) -> None:
        """gRFC A17, where health is watched; the state of the connection where it is not."""
        picked = self.balancer.picked_id
        if self.open[picked] is Connectivity.READY:
            assert (self.balancer.connectivity is Connectivity.READY) == self.reports_ready(picked)

    @invariant()
    def pick_first_has_one_connection(self) -> None:
        """But for the moment of a periodic reconnect."""
        if self.balancer.mode is PickHealthyMode.PICK_FIRST and self.balancer.wake_at is None:
            assert self.balancer.backup_id is None


TestConnections = Connections.TestCase
