"""`teleport_pick_healthy` as a state machine: RFD 226, "Defining a Custom Policy Behavior".

One *active* connection, and at most one *backup* that is tried while the active one is unhealthy, each made as
pick_first does. The caller (fleet/transport) reports events and executes the commands it gets back. Pure: `now`, of
any one clock, and `chance`, a number in [0, 1), are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig


class Connectivity(Enum):
    """State of a connection, in gRPC's terms."""

    IDLE = auto()
    CONNECTING = auto()
    READY = auto()
    TRANSIENT_FAILURE = auto()
    SHUTDOWN = auto()


class ServerHealth(Enum):
    """Health of the server of a connection."""

    UNKNOWN = auto()
    HEALTHY = auto()
    UNHEALTHY = auto()


@dataclass(frozen=True, slots=True)
class BalancerSettings:
    """When new connections are made. Seconds."""

    #: Upper bound of the random wait before the first backup. None: as upstream, `base` to 1.5 times that. A quarter of
    #: a second spreads a thousand agents well enough, and users wait a tenth of upstream's time.
    first_wait: float | None = 0.25
    #: Wait before the next backup, doubled each time up to the ceiling, plus up to half of that at random.
    base: float = 2.0
    ceiling: float = 16.0
    #: Time in which the health of a connection must be known, plus up to a tenth at random.
    connect_within: float = 30.0
    #: Time after which the RPCs of a retired connection are ended; None: they take the time they need.
    drain_timeout: float | None = None
    #: Interval of moves to a new connection, plus up to half of that at random; None: never.
    reconnect_every: float | None = None


DEFAULTS = BalancerSettings()


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """Make a connection and keep it connected; `should_shuffle`: try the addresses in another order."""

    connection_id: int
    should_shuffle: bool


@dataclass(frozen=True, slots=True)
class RequestConfig:
    """Request the service config on this connection, until it is lost."""

    connection_id: int
    life: int


@dataclass(frozen=True, slots=True)
class WatchHealth:
    """Watch the health of this one service on the connection, until it is lost; None: end the watch."""

    connection_id: int
    life: int
    service: str | None


class RetireReason(StrEnum):
    """Why a connection is retired: the result of a failover."""

    #: The active connection was unhealthy or lost, and the backup took over.
    MOVED = auto()
    #: A new connection took over as planned by `reconnect_every`.
    RENEWED = auto()
    #: The backup was not needed: the active connection recovered first.
    RECOVERED = auto()
    #: The backup was unhealthy, too, or was not ready in time: another one is tried.
    REPLACED = auto()
    #: The connection planned by `reconnect_every` failed.
    RENEWAL_FAILED = "renewal-failed"


@dataclass(frozen=True, slots=True)
class RetireConnection:
    """Close a connection once its RPCs have ended; end them after `drain_timeout` seconds unless that is None."""

    connection_id: int
    drain_timeout: float | None
    reason: RetireReason


Command = OpenConnection | RequestConfig | WatchHealth | RetireConnection


#: Name of the whole server in gRPC health.
_WHOLE_SERVER = ""


class PolicyRequestState(Enum):
    """State of the request for a connection's service config."""

    PENDING = auto()
    #: The server sent its policy.
    HAS_POLICY = auto()
    #: The server is too old to have a policy.
    NO_POLICY = auto()
    #: The request failed, which shows nothing about the server.
    FAILED = auto()


@dataclass(slots=True)
class _Connection:
    id: int
    #: Until the server sends its own policy: that of the previous connection.
    policy: ServiceConfig
    connectivity: Connectivity = Connectivity.IDLE
    #: Count of READY transitions: events of an earlier life are ignored.
    life: int = 0
    policy_request_state: PolicyRequestState = PolicyRequestState.PENDING
    #: The service whose health is watched; None: the policy does not check health.
    service: str | None = None
    #: The last reported status of that service.
    reported_health: ServerHealth = ServerHealth.UNKNOWN
    #: False: the server has no health service.
    has_health_service: bool = True
    #: The service of the policy, if the server does not know it.
    unknown_service: str | None = None
    #: The connection was READY when the watch of that service began.
    was_ready: bool = False

    @property
    def is_connected(self) -> bool:
        return self.connectivity is Connectivity.READY

    @property
    def health(self) -> ServerHealth:
        """Health for decisions: unknown, not healthy, until the policy is known."""
        health = ServerHealth.HEALTHY if self.service is None else self.reported_health
        if self.policy_request_state is PolicyRequestState.PENDING and health is ServerHealth.HEALTHY:
            return ServerHealth.UNKNOWN
        return health

    @property
    def grpc_state(self) -> Connectivity:
        """State as gRPC reports it: by gRFC A17 with a health check, else the state of the connection."""
        if not self.is_connected or self.service is None:
            return self.connectivity
        if self.reported_health is ServerHealth.UNKNOWN and self.was_ready:
            return Connectivity.READY  # gRPC has no transition from READY to CONNECTING
        return _AS_CONNECTIVITY[self.reported_health]

    @property
    def is_ready(self) -> bool:
        return self.is_connected and self.health is ServerHealth.HEALTHY

    @property
    def is_unhealthy(self) -> bool:
        return self.is_connected and self.health is ServerHealth.UNHEALTHY

    @property
    def is_pending(self) -> bool:
        return not self.is_ready and not self.is_unhealthy

    def begin(self, connectivity: Connectivity) -> None:
        """Forget the last server: the next one that answers may be another."""
        self.connectivity, self.policy_request_state = connectivity, PolicyRequestState.PENDING
        self.service, self.reported_health = None, ServerHealth.UNKNOWN
        self.has_health_service, self.unknown_service, self.was_ready = True, None, False

    def watch(self, service: str | None) -> list[Command]:
        """Watch a service unless it is watched already."""
        if service and service == self.unknown_service:
            service = _WHOLE_SERVER
        if service == self.service:
            return []
        self.was_ready = self.grpc_state is Connectivity.READY
        self.service, self.reported_health, self.has_health_service = service, ServerHealth.UNKNOWN, True
        return [WatchHealth(self.id, self.life, service)]


class Balancer:
    """Decides which connections exist, and which one carries new RPCs."""

    def __init__(self, settings: BalancerSettings = DEFAULTS) -> None:
        self._settings = settings
        self._active = _Connection(0, ServiceConfig())
        self._backup: _Connection | None = None
        self._last_id = 0
        # Backups tried since the active connection was last ready.
        self._backup_tries = 0
        self._reconnect_at: float | None = None
        self._connect_at: float | None = None
        self._renew_at: float | None = None
        # The backup is a planned renewal, not a failover.
        self._is_renewing = False

    @property
    def active_id(self) -> int:
        """Id of the connection whose health and policy count."""
        return self._active.id

    @property
    def backup_id(self) -> int | None:
        """Id of the connection that is being tried; None without one."""
        return None if self._backup is None else self._backup.id

    @property
    def picked_id(self) -> int:
        """Id of the connection for new RPCs: the active one, healthy or not, unless only the backup is connected.

        Upstream uses the active one even then; an unhealthy server may still answer RPCs that would fail at once.
        """
        return self._picked_connection.id

    @property
    def connectivity(self) -> Connectivity:
        """State of the channel in gRPC's terms; but an unhealthy connection (TRANSIENT_FAILURE) still carries RPCs."""
        return self._picked_connection.grpc_state

    @property
    def mode(self) -> PickHealthyMode:
        """Mode of the policy in force."""
        return self._active.policy.mode

    @property
    def health_check(self) -> bool:
        """Return whether the health of the active connection is watched."""
        active = self._active
        return active.is_connected and active.service is not None and active.has_health_service

    @property
    def unknown_service(self) -> str | None:
        """The policy's health service if the active connection's server answers SERVICE_UNKNOWN for it; else None."""
        return self._active.unknown_service

    def is_undecided(self, connection_id: int) -> bool:
        """Return whether a connection is still being made, or its health is not known yet."""
        connection = self._find(connection_id)
        if connection is None or connection.connectivity in (
            Connectivity.TRANSIENT_FAILURE,
            Connectivity.SHUTDOWN,
        ):
            return False
        return connection.is_pending

    @property
    def wake_at(self) -> float | None:
        """When to call `wake`; None: only events matter."""
        return min(
            (at for at in (self._reconnect_at, self._connect_at, self._renew_at) if at is not None),
            default=None,
        )

    def start(self) -> list[Command]:
        """Return the command for the first connection."""
        return [OpenConnection(self._active.id, should_shuffle=False)]

    def on_connectivity(
        self, connection_id: int, connectivity: Connectivity, now: float, chance: float
    ) -> list[Command]:
        """Process a new state of a connection; call it for every READY, even if its loss was not noticed."""
        connection = self._find(connection_id)
        if connection is None:
            return []
        connection.begin(connectivity)
        commands: list[Command] = []
        if connectivity is Connectivity.READY:
            connection.life += 1
            commands.append(RequestConfig(connection.id, connection.life))
            # Request both at once: the health is known one round trip earlier.
            commands += connection.watch(_service_to_watch(connection.policy))
            connection.was_ready = False  # a new connection is READY once its health is known (gRFC A17)
        return commands + self._decide(now, chance)

    def on_config(
        self, connection_id: int, life: int, config: ServiceConfig, now: float, chance: float
    ) -> list[Command]:
        """Process the policy that a server sent."""
        connection = self._find(connection_id, life)
        if connection is None or connection.policy_request_state is PolicyRequestState.HAS_POLICY:
            return []
        connection.policy_request_state, connection.policy = PolicyRequestState.HAS_POLICY, config
        return connection.watch(_service_to_watch(config)) + self._decide(now, chance)

    def on_policy_missing(self, connection_id: int, life: int, now: float, chance: float) -> list[Command]:
        """Process that a server has no policy: it counts as healthy, and the mode stays."""
        connection = self._find(connection_id, life)
        if connection is None or connection.policy_request_state is PolicyRequestState.HAS_POLICY:
            return []
        connection.policy_request_state = PolicyRequestState.NO_POLICY
        return connection.watch(None) + self._decide(now, chance)

    def on_config_request_failed(
        self, connection_id: int, life: int, now: float, chance: float
    ) -> list[Command]:
        """Process a failed request for the policy, which may succeed later. The last known policy stays in force.

        So does the health watch of that policy: a failed request shows nothing about health.
        """
        connection = self._find(connection_id, life)
        if connection is None or connection.policy_request_state is not PolicyRequestState.PENDING:
            return []
        connection.policy_request_state = PolicyRequestState.FAILED
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
        """Process a status from a health watch; not `has_health_service`: the server has no health service."""
        connection = self._find(connection_id, life)
        if connection is None or connection.service != service:
            return []
        connection.reported_health, connection.has_health_service = health, has_health_service
        return self._decide(now, chance)

    def on_service_unknown(
        self, connection_id: int, life: int, service: str, now: float, chance: float
    ) -> list[Command]:
        """Process that a server does not know the policy's service: use the health of the whole server instead.

        Upstream always watches the whole server. A wrong name must not make clients try one server after the other.
        """
        connection = self._find(connection_id, life)
        if connection is None or connection.service != service:
            return []
        connection.unknown_service = service
        if service == _WHOLE_SERVER:
            connection.reported_health = ServerHealth.UNHEALTHY
            return self._decide(now, chance)
        return connection.watch(_WHOLE_SERVER) + self._decide(now, chance)

    def wake(self, now: float, chance: float) -> list[Command]:
        """Process that `wake_at` has passed."""
        is_late = self._connect_at is not None and now >= self._connect_at
        due = is_late or (self._reconnect_at is not None and now >= self._reconnect_at)
        if due:
            self._connect_at = self._reconnect_at = None
        commands: list[Command] = []
        if due and self._is_renewing:
            commands += self._drop_backup(RetireReason.RENEWAL_FAILED)
            self._is_renewing = False
        elif due and self._needs_backup(is_late=is_late):
            commands += [*self._drop_backup(RetireReason.REPLACED), self._open_backup()]
        elif self._renew_at is not None and now >= self._renew_at:
            self._renew_at = None
            if self._backup is None and self._active.is_ready:
                self._is_renewing = True
                commands.append(self._open_backup())
        return commands + self._decide(now, chance)

    def _needs_backup(self, *, is_late: bool) -> bool:
        """Return whether to try a backup now. Upstream never replaces a backup that stays in CONNECTING."""
        if self._is_settled:
            return False
        return self._backup is None or self._backup.is_unhealthy or (is_late and self._backup.is_pending)

    @property
    def _is_settled(self) -> bool:
        """Return whether nothing is to be done: the active connection is ready, or the mode is pick_first."""
        return self._active.is_ready or self.mode is not PickHealthyMode.RECONNECT

    def _decide(self, now: float, chance: float) -> list[Command]:
        """Return the commands that follow from the state of both connections.

        1. The active one is ready, or the mode is pick_first: drop the backup and all timers.
        2. The backup is ready: it takes over, and the old one is retired.
        3. The connection tried last is still connecting: it has `connect_within`.
        4. It is unhealthy: try another one after a wait.
        """
        if self._is_settled:
            return self._decide_settled(now, chance)
        self._is_renewing, self._renew_at = False, None
        if self._backup is not None and self._backup.is_ready:
            return self._promote(RetireReason.MOVED, now, chance)
        pending = self._active if self._backup is None else self._backup
        if pending.is_pending:
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
        return [RetireConnection(old.id, self._settings.drain_timeout, reason)]

    def _drop_backup(self, reason: RetireReason) -> list[Command]:
        backup, self._backup = self._backup, None
        return [] if backup is None else [RetireConnection(backup.id, self._settings.drain_timeout, reason)]

    def _open_backup(self) -> Command:
        self._last_id += 1
        self._backup_tries += 1
        self._backup = _Connection(self._last_id, self._active.policy)
        return OpenConnection(self._last_id, should_shuffle=True)

    def _reset(self) -> None:
        self._reconnect_at = self._connect_at = None
        self._backup_tries = 0
        self._is_renewing = False

    def _arm_reconnect(self, now: float, chance: float) -> None:
        if self._reconnect_at is None:
            self._reconnect_at = now + backup_wait(self._backup_tries, chance, self._settings)

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
            backup
            if backup is not None and backup.is_connected and not self._active.is_connected
            else self._active
        )

    def _find(self, connection_id: int, life: int | None = None) -> _Connection | None:
        """Return a current connection; None for a retired one or an earlier life."""
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
    # In pick_first the health of the server has no effect.
    return policy.health_service if policy.mode is PickHealthyMode.RECONNECT else None


def backup_wait(tries: int, chance: float, settings: BalancerSettings) -> float:
    """Return the seconds to wait before the next backup after `tries` backups."""
    if settings.first_wait is not None:
        if tries == 0:
            return chance * settings.first_wait
        tries -= 1
    # A fleet may be unhealthy for days: the power must not overflow a float.
    return min(settings.base * 2.0 ** min(tries, 32), settings.ceiling) * (1 + chance / 2)
