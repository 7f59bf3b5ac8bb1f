"""`teleport_pick_healthy` as a state machine: RFD 226, "Defining a Custom Policy Behavior".

One *active* connection, and at most one *backup* that is tried while the active one is unhealthy, each as pick_first
makes it. The shell (fleet/transport) tells what happened, and does the commands it is answered. Pure: `now`, of any
one clock, and `chance`, a number in [0, 1), are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig


class Connectivity(Enum):
    """What a connection is, in gRPC's words."""

    IDLE = auto()
    CONNECTING = auto()
    READY = auto()
    TRANSIENT_FAILURE = auto()
    SHUTDOWN = auto()


class ServerHealth(Enum):
    """What is known of the server at the other end."""

    UNKNOWN = auto()
    HEALTHY = auto()
    UNHEALTHY = auto()


@dataclass(frozen=True, slots=True)
class BalancerSettings:
    """When connections are tried. Seconds."""

    #: After a flip to unhealthy a backup is tried within this, at random. None: as upstream, `base` to half as much
    #: again. A quarter of a second spreads a thousand agents thinly enough, and costs users ten times less.
    first_wait: float | None = 0.25
    #: Later tries wait for this, doubled each time up to the ceiling, and up to half of that again.
    base: float = 2.0
    ceiling: float = 16.0
    #: A connection may take this, and a tenth of it more, until its health is known.
    connect_within: float = 30.0
    #: RPCs on a connection that was left end by force after this; None: they take the time they need.
    drain_timeout: float | None = None
    #: Move to a new connection this often, and up to half as long again; None: never.
    reconnect_every: float | None = None


DEFAULTS = BalancerSettings()


@dataclass(frozen=True, slots=True)
class Open:
    """Make a connection, with the addresses in another order if `shuffled`, and keep it connected."""

    connection: int
    shuffle: bool


@dataclass(frozen=True, slots=True)
class RequestConfig:
    """Ask it for its service config, on that very connection, until it is lost."""

    connection: int
    life: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch the health of this service on it, and of no other, until it is lost; None: watch nothing any more."""

    connection: int
    life: int
    service: str | None


class RetireReason(StrEnum):
    """Why a connection is left: what became of a failover."""

    #: It was sick or lost, and another took over.
    MOVED = auto()
    #: A new one took over without need: `reconnect_every`.
    RENEWED = auto()
    #: It was tried, and the old one was well first.
    RECOVERED = auto()
    #: It was tried, and was sick too, or came to nothing in time: another is tried.
    REPLACED = auto()
    #: It was tried without need, and came to nothing.
    RENEWAL_FAILED = auto()


@dataclass(frozen=True, slots=True)
class Retire:
    """Close it once its RPCs have ended; end them after `within` seconds unless that is None."""

    connection: int
    within: float | None
    reason: RetireReason


Command = Open | RequestConfig | Watch | Retire


#: gRPC health's name for the server as a whole.
_WHOLE_SERVER = ""


class PolicyResponse(Enum):
    """What became of the question for the policy of a connection."""

    AWAITED = auto()
    #: The server answered with its policy.
    POLICY = auto()
    #: The server has no policies: it is an old one.
    NO_POLICY = auto()
    #: The question failed, which says nothing of the server.
    FAILED = auto()


@dataclass(slots=True)
class _Connection:
    id: int
    #: In force until the server answers: the policy of the connection before.
    policy: ServiceConfig
    connectivity: Connectivity = Connectivity.IDLE
    #: Counts how often it became READY: what is heard of an earlier life is no news.
    life: int = 0
    policy_response: PolicyResponse = PolicyResponse.AWAITED
    #: The service whose health is watched; None: the policy in force asks for none.
    service: str | None = None
    #: The last status of that service.
    status: ServerHealth = ServerHealth.UNKNOWN
    #: False: the server has no health service to watch.
    has_health_service: bool = True
    #: The service of the policy, if the server does not know that service.
    unknown_service: str | None = None
    #: It was READY when the watch of that service began.
    was_ready: bool = False

    @property
    def is_connected(self) -> bool:
        return self.connectivity is Connectivity.READY

    @property
    def health(self) -> ServerHealth:
        """What decisions go by: a server is no better than unknown before its policy is."""
        health = ServerHealth.HEALTHY if self.service is None else self.status
        if self.policy_response is PolicyResponse.AWAITED and health is ServerHealth.HEALTHY:
            return ServerHealth.UNKNOWN
        return health

    @property
    def state(self) -> Connectivity:
        """What gRPC would report: gRFC A17 where health is checked, the state of the connection where it is not."""
        if not self.is_connected or self.service is None:
            return self.connectivity
        if self.status is ServerHealth.UNKNOWN and self.was_ready:
            return Connectivity.READY  # gRPC has no way back from READY to CONNECTING
        return _AS_CONNECTIVITY[self.status]

    @property
    def is_ready(self) -> bool:
        return self.is_connected and self.health is ServerHealth.HEALTHY

    @property
    def is_unhealthy(self) -> bool:
        return self.is_connected and self.health is ServerHealth.UNHEALTHY

    @property
    def is_connecting(self) -> bool:
        return not self.is_ready and not self.is_unhealthy

    def begin(self, connectivity: Connectivity) -> None:
        """Forget what was heard: whoever answers now may be another server."""
        self.connectivity, self.policy_response = connectivity, PolicyResponse.AWAITED
        self.service, self.status = None, ServerHealth.UNKNOWN
        self.has_health_service, self.unknown_service, self.was_ready = True, None, False

    def watch(self, service: str | None) -> list[Command]:
        """Watch a service, unless it is watched already."""
        if service and service == self.unknown_service:
            service = _WHOLE_SERVER
        if service == self.service:
            return []
        self.was_ready = self.state is Connectivity.READY
        self.service, self.status, self.has_health_service = service, ServerHealth.UNKNOWN, True
        return [Watch(self.id, self.life, service)]


class Balancer:
    """Decides which connections there are and which of them carries new RPCs."""

    def __init__(self, settings: BalancerSettings = DEFAULTS) -> None:
        self._settings = settings
        self._active = _Connection(0, ServiceConfig())
        self._backup: _Connection | None = None
        self._last_id = 0
        # Backups tried since all was well.
        self._tries = 0
        self._reconnect_at: float | None = None
        self._connect_at: float | None = None
        self._renew_at: float | None = None
        # The backup is there to move to by and by, not because anything is wrong.
        self._is_renewing = False

    @property
    def active_id(self) -> int:
        """The connection whose health and policy count."""
        return self._active.id

    @property
    def backup_id(self) -> int | None:
        """The connection that is being tried."""
        return None if self._backup is None else self._backup.id

    @property
    def picked_id(self) -> int:
        """The connection for new RPCs: the active one, healthy or not, unless it is down and the backup is not.

        Upstream stays with the active one even then; an unhealthy server may still answer what would fail at once.
        """
        return self._picked_connection.id

    @property
    def connectivity(self) -> Connectivity:
        """What the whole is, as gRPC has it; but a connection in TRANSIENT_FAILURE that stands carries RPCs."""
        return self._picked_connection.state

    @property
    def mode(self) -> PickHealthyMode:
        """What it runs with."""
        return self._active.policy.mode

    @property
    def health_check(self) -> bool:
        """Whether the health of the active connection is watched."""
        active = self._active
        return active.is_connected and active.service is not None and active.has_health_service

    @property
    def unknown_service(self) -> str | None:
        """The service of the policy, if the server of the active connection does not know it: SERVICE_UNKNOWN."""
        return self._active.unknown_service

    def is_undecided(self, connection_id: int) -> bool:
        """Whether it is not known yet what a connection is good for: it is being made, or asked for its health."""
        connection = self._find(connection_id)
        if connection is None or connection.connectivity in (
            Connectivity.TRANSIENT_FAILURE,
            Connectivity.SHUTDOWN,
        ):
            return False
        return connection.is_connecting

    @property
    def wake_at(self) -> float | None:
        """When to call `wake`; None: when something happens."""
        return min(
            (at for at in (self._reconnect_at, self._connect_at, self._renew_at) if at is not None),
            default=None,
        )

    def start(self) -> list[Command]:
        """Begin with the first connection."""
        return [Open(self._active.id, shuffle=False)]

    def on_connectivity(
        self, connection_id: int, connectivity: Connectivity, now: float, chance: float
    ) -> list[Command]:
        """A connection is READY (each time it becomes so, whether or not its loss was seen), or is not."""
        connection = self._find(connection_id)
        if connection is None:
            return []
        connection.begin(connectivity)
        commands: list[Command] = []
        if connectivity is Connectivity.READY:
            connection.life += 1
            commands.append(RequestConfig(connection.id, connection.life))
            # Both at once: one round trip less until it is known to be healthy.
            commands += connection.watch(_service_to_watch(connection.policy))
            connection.was_ready = False  # a new connection is READY once its health is told (gRFC A17)
        return commands + self._decide(now, chance)

    def on_config(
        self, connection_id: int, life: int, config: ServiceConfig, now: float, chance: float
    ) -> list[Command]:
        """A server answered with its policy."""
        connection = self._find(connection_id, life)
        if connection is None or connection.policy_response is PolicyResponse.POLICY:
            return []
        connection.policy_response, connection.policy = PolicyResponse.POLICY, config
        return connection.watch(_service_to_watch(config)) + self._decide(now, chance)

    def on_policy_missing(self, connection_id: int, life: int, now: float, chance: float) -> list[Command]:
        """A server answered that it has no policies. It counts as healthy, and the mode stays."""
        connection = self._find(connection_id, life)
        if connection is None or connection.policy_response is PolicyResponse.POLICY:
            return []
        connection.policy_response = PolicyResponse.NO_POLICY
        return connection.watch(None) + self._decide(now, chance)

    def on_config_request_failed(self, connection_id: int, life: int, now: float, chance: float) -> list[Command]:
        """The question for the policy failed; it may be answered later. The last known policy stays in force.

        So does the watch of that policy: a failed question is no sign of health.
        """
        connection = self._find(connection_id, life)
        if connection is None or connection.policy_response is not PolicyResponse.AWAITED:
            return []
        connection.policy_response = PolicyResponse.FAILED
        return self._decide(now, chance)

    def on_health(
        self,
        connection_id: int,
        life: int,
        service: str,
        health: ServerHealth,
        now: float,
        chance: float,
        *,
        has_health_service: bool = True,
    ) -> list[Command]:
        """A health watch said something; not `watched`: its server has no health service."""
        connection = self._find(connection_id, life)
        if connection is None or connection.service != service:
            return []
        connection.status, connection.has_health_service = health, has_health_service
        return self._decide(now, chance)

    def on_service_unknown(
        self, connection_id: int, life: int, service: str, now: float, chance: float
    ) -> list[Command]:
        """A server does not know the service of the policy: the health of the whole server counts instead.

        Upstream watches that one under whatever name. A wrong name must not have clients try server after server.
        """
        connection = self._find(connection_id, life)
        if connection is None or connection.service != service:
            return []
        connection.unknown_service = service
        if service == _WHOLE_SERVER:
            connection.status = ServerHealth.UNHEALTHY
            return self._decide(now, chance)
        return connection.watch(_WHOLE_SERVER) + self._decide(now, chance)

    def wake(self, now: float, chance: float) -> list[Command]:
        """The time `wake_at` has come."""
        late = self._connect_at is not None and now >= self._connect_at
        due = late or (self._reconnect_at is not None and now >= self._reconnect_at)
        if due:
            self._connect_at = self._reconnect_at = None
        commands: list[Command] = []
        if due and self._is_renewing:
            commands += self._drop_backup(RetireReason.RENEWAL_FAILED)
            self._is_renewing = False
        elif due and self._needs_backup(late=late):
            commands += [*self._drop_backup(RetireReason.REPLACED), self._open_backup()]
        elif self._renew_at is not None and now >= self._renew_at:
            self._renew_at = None
            if self._backup is None and self._active.is_ready:
                self._is_renewing = True
                commands.append(self._open_backup())
        return commands + self._decide(now, chance)

    def _needs_backup(self, *, late: bool) -> bool:
        """Whether a backup is to be tried now. Upstream leaves a backup alone that never comes to an end."""
        if self._is_settled:
            return False
        return self._backup is None or self._backup.is_unhealthy or (late and self._backup.is_connecting)

    @property
    def _is_settled(self) -> bool:
        """All is well, or pick_first: then nothing is to be done."""
        return self._active.is_ready or self.mode is not PickHealthyMode.RECONNECT

    def _decide(self, now: float, chance: float) -> list[Command]:
        """Look at both connections and say what follows.

        1. The active one is ready, or it is pick_first: the backup is dropped, all timers with it.
        2. The backup is ready: it takes over, and the old one is left to its RPCs.
        3. The one that was tried last is still connecting: it has `connect_within`.
        4. It is unhealthy: another is tried after a while.
        """
        if self._is_settled:
            return self._decide_settled(now, chance)
        self._is_renewing, self._renew_at = False, None
        if self._backup is not None and self._backup.is_ready:
            return self._promote(RetireReason.MOVED, now, chance)
        pending = self._active if self._backup is None else self._backup
        if pending.is_connecting:
            self._arm_connect(now, chance)
        else:
            self._connect_at = None
            self._arm_reconnect(now, chance)
        return []

    def _decide_settled(self, now: float, chance: float) -> list[Command]:
        if self._is_renewing and self._backup is not None and not self._backup.is_unhealthy:
            if self._backup.is_ready:
                return self._promote(RetireReason.RENEWED, now, chance)
            self._arm_connect(now, chance)
            return []
        reason = RetireReason.RENEWAL_FAILED if self._is_renewing else RetireReason.RECOVERED
        self._reset()
        commands = self._drop_backup(reason)
        self._plan_renewal(now, chance)
        return commands

    def _promote(self, reason: RetireReason, now: float, chance: float) -> list[Command]:
        assert self._backup is not None, "only a backup is promoted"
        old, self._active, self._backup = self._active, self._backup, None
        self._reset()
        self._plan_renewal(now, chance)
        return [Retire(old.id, self._settings.drain_timeout, reason)]

    def _drop_backup(self, reason: RetireReason) -> list[Command]:
        backup, self._backup = self._backup, None
        return [] if backup is None else [Retire(backup.id, self._settings.drain_timeout, reason)]

    def _open_backup(self) -> Command:
        self._last_id += 1
        self._tries += 1
        self._backup = _Connection(self._last_id, self._active.policy)
        return Open(self._last_id, shuffle=True)

    def _reset(self) -> None:
        self._reconnect_at = self._connect_at = None
        self._tries = 0
        self._is_renewing = False

    def _arm_reconnect(self, now: float, chance: float) -> None:
        if self._reconnect_at is None:
            self._reconnect_at = now + backup_wait(self._tries, chance, self._settings)

    def _arm_connect(self, now: float, chance: float) -> None:
        if self._connect_at is None:
            self._connect_at = now + self._settings.connect_within * (1 + chance / 10)

    def _plan_renewal(self, now: float, chance: float) -> None:
        interval = self._settings.reconnect_every
        if interval is not None and self._renew_at is None and self._active.is_ready:
            self._renew_at = now + interval * (1 + chance / 2)

    @property
    def _picked_connection(self) -> _Connection:
        backup = self._backup
        return (
            backup if backup is not None and backup.is_connected and not self._active.is_connected else self._active
        )

    def _find(self, connection_id: int, life: int | None = None) -> _Connection | None:
        """A connection we still have; None for one that was left, or for an earlier life of one."""
        for connection in (self._active, self._backup):
            if connection is not None and connection.id == connection_id:
                if life is not None and (life != connection.life or not connection.is_connected):
                    return None
                return connection
        return None


_AS_CONNECTIVITY = {
    ServerHealth.UNKNOWN: Connectivity.CONNECTING,
    ServerHealth.HEALTHY: Connectivity.READY,
    ServerHealth.UNHEALTHY: Connectivity.TRANSIENT_FAILURE,
}


def _service_to_watch(policy: ServiceConfig) -> str | None:
    # In pick_first nothing would come of knowing the health of the server.
    return policy.health_service if policy.mode is PickHealthyMode.RECONNECT else None


def backup_wait(tries: int, chance: float, settings: BalancerSettings) -> float:
    """How long to wait before the next backup when so many were tried, seconds."""
    if settings.first_wait is not None:
        if tries == 0:
            return chance * settings.first_wait
        tries -= 1
    # A fleet may be sick for days: the power must not outgrow a float.
    return min(settings.base * 2.0 ** min(tries, 32), settings.ceiling) * (1 + chance / 2)
