"""`teleport_pick_healthy` as a state machine: RFD 226, "Defining a Custom Policy Behavior".

One *active* connection, and at most one *backup* that is tried while the active one is unhealthy, each as pick_first
makes it. The shell (fleet/transport) tells what happened, and does the commands it is answered. Pure: `now`, of any
one clock, and `chance`, a number in [0, 1), are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from fleet.protocol.service_config import Mode, ServiceConfig


class Connectivity(Enum):
    """What a connection is, in gRPC's words."""

    IDLE = auto()
    CONNECTING = auto()
    READY = auto()
    TRANSIENT_FAILURE = auto()
    SHUTDOWN = auto()


class Health(Enum):
    """What is known of the server at the other end."""

    UNKNOWN = auto()
    HEALTHY = auto()
    UNHEALTHY = auto()


@dataclass(frozen=True, slots=True)
class Settings:
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


DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Open:
    """Make a connection, with the addresses in another order if `shuffled`, and keep it connected."""

    connection: int
    shuffled: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask it for its service config, on that very connection, until it is lost."""

    connection: int
    life: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch the health of this service on it, and of no other, until it is lost; None: watch nothing any more."""

    connection: int
    life: int
    service: str | None


class Why(StrEnum):
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
    why: Why


Command = Open | Ask | Watch | Retire


@dataclass(slots=True)
class _Connection:
    id: int
    #: Until it has answered, that of the connection before it.
    mode: Mode
    connectivity: Connectivity = Connectivity.IDLE
    health: Health = Health.UNKNOWN
    #: Counts how often it became READY: what is heard of an earlier life is no news.
    life: int = 0
    config: ServiceConfig | None = None
    #: Its health counts: its policy says so.
    watched: bool = False
    #: What is watched before its policy says what to watch, and what that said: health, and whether it is watched.
    guess: str | None = None
    heard: tuple[Health, bool] | None = None

    @property
    def connected(self) -> bool:
        return self.connectivity is Connectivity.READY

    @property
    def ready(self) -> bool:
        return self.connected and self.health is Health.HEALTHY

    @property
    def unhealthy(self) -> bool:
        return self.connected and self.health is Health.UNHEALTHY

    @property
    def connecting(self) -> bool:
        return not self.ready and not self.unhealthy


class Balancer:
    """Decides which connections there are and which of them carries new RPCs."""

    def __init__(self, settings: Settings = DEFAULTS) -> None:
        self._settings = settings
        self._active = _Connection(0, Mode.PICK_FIRST)
        self._backup: _Connection | None = None
        self._last_id = 0
        # Backups tried since all was well.
        self._tries = 0
        self._reconnect_at: float | None = None
        self._connect_at: float | None = None
        self._renew_at: float | None = None
        # What the last policy in reconnect mode let us watch: the next one most likely says the same.
        self._service: str | None = None
        # The backup is there to move to by and by, not because anything is wrong.
        self._renewing = False

    @property
    def active(self) -> int:
        """The connection whose health and policy count."""
        return self._active.id

    @property
    def backup(self) -> int | None:
        """The connection that is being tried."""
        return None if self._backup is None else self._backup.id

    @property
    def picked(self) -> int:
        """The connection for new RPCs: the active one, healthy or not, unless it is down and the backup is not.

        Upstream stays with the active one even then; an unhealthy server may still answer what would fail at once.
        """
        return self._picked.id

    @property
    def connectivity(self) -> Connectivity:
        """What the whole is: an unhealthy connection counts as TRANSIENT_FAILURE, and yet carries RPCs."""
        picked = self._picked
        if not picked.connected:
            return picked.connectivity
        return _AS_CONNECTIVITY[picked.health]

    @property
    def mode(self) -> Mode:
        """What it runs with."""
        return self._active.mode

    @property
    def health_check(self) -> bool:
        """Whether the health of the active connection is watched."""
        return self._active.watched

    def awaits(self, connection_id: int) -> bool:
        """Whether it is not known yet what a connection is good for: it is being made, or asked for its health."""
        connection = self._find(connection_id)
        if connection is None or connection.connectivity in (
            Connectivity.TRANSIENT_FAILURE,
            Connectivity.SHUTDOWN,
        ):
            return False
        return connection.connecting

    @property
    def wake_at(self) -> float | None:
        """When to call `wake`; None: when something happens."""
        return min(
            (at for at in (self._reconnect_at, self._connect_at, self._renew_at) if at is not None),
            default=None,
        )

    def start(self) -> list[Command]:
        """Begin with the first connection."""
        return [Open(self._active.id, shuffled=False)]

    def turned(
        self, connection_id: int, connectivity: Connectivity, now: float, chance: float
    ) -> list[Command]:
        """A connection is READY (each time it becomes so, whether or not its loss was seen), or is not."""
        connection = self._find(connection_id)
        if connection is None:
            return []
        connection.connectivity, connection.health, connection.watched = connectivity, Health.UNKNOWN, False
        connection.config, connection.guess, connection.heard = None, None, None
        asked: list[Command] = []
        if connectivity is Connectivity.READY:
            connection.life += 1
            asked.append(Ask(connection.id, connection.life))
            if self._service is not None:
                # Both at once: one round trip less until it is known to be healthy.
                connection.guess = self._service
                asked.append(Watch(connection.id, connection.life, connection.guess))
        return asked + self._decide(now, chance)

    def configured(
        self, connection_id: int, life: int, config: ServiceConfig | None, now: float, chance: float
    ) -> list[Command]:
        """A connection answered with its policy; None when the question failed, which it may do before it is answered.

        Without an answer (an old server) it counts as healthy, and the mode stays what it was.
        """
        connection = self._find(connection_id, life)
        if connection is None or connection.config is not None:
            return []
        if config is not None:
            connection.config, connection.mode = config, config.mode
        # In pick_first nothing would come of knowing its health.
        reconnects = config is not None and config.mode is Mode.RECONNECT
        service = config.health_service if config is not None and reconnects else None
        if config is not None:
            self._service = service
        watching: list[Command] = []
        if service != connection.guess:
            connection.guess, connection.heard = None, None
            watching.append(Watch(connection.id, life, service))
        connection.watched = service is not None
        if not connection.watched:
            connection.health = Health.HEALTHY
        elif connection.heard is not None:
            connection.health, connection.watched = connection.heard
        return watching + self._decide(now, chance)

    def told(
        self,
        connection_id: int,
        life: int,
        health: Health,
        now: float,
        chance: float,
        *,
        watched: bool = True,
    ) -> list[Command]:
        """A health watch said something; not `watched` any more: its server has no such service."""
        connection = self._find(connection_id, life)
        if connection is None:
            return []
        if not connection.watched:
            if connection.guess is not None and connection.config is None:
                connection.heard = health, watched  # it counts once the policy says so
            return []
        connection.health, connection.watched = health, watched
        return self._decide(now, chance)

    def wake(self, now: float, chance: float) -> list[Command]:
        """The time `wake_at` has come."""
        late = self._connect_at is not None and now >= self._connect_at
        due = late or (self._reconnect_at is not None and now >= self._reconnect_at)
        if due:
            self._connect_at = self._reconnect_at = None
        done: list[Command] = []
        if due and self._renewing:
            done += self._drop_backup(Why.RENEWAL_FAILED)
            self._renewing = False
        elif due and self._wants_another(late=late):
            done += [*self._drop_backup(Why.REPLACED), self._open_backup()]
        elif self._renew_at is not None and now >= self._renew_at:
            self._renew_at = None
            if self._backup is None and self._active.ready:
                self._renewing = True
                done.append(self._open_backup())
        return done + self._decide(now, chance)

    def _wants_another(self, *, late: bool) -> bool:
        """Whether a backup is to be tried now. Upstream leaves a backup alone that never comes to an end."""
        if self._settled:
            return False
        return self._backup is None or self._backup.unhealthy or (late and self._backup.connecting)

    @property
    def _settled(self) -> bool:
        """All is well, or pick_first: then nothing is to be done."""
        return self._active.ready or self._active.mode is not Mode.RECONNECT

    def _decide(self, now: float, chance: float) -> list[Command]:
        """Look at both connections and say what follows.

        1. The active one is ready, or it is pick_first: the backup is dropped, all timers with it.
        2. The backup is ready: it takes over, and the old one is left to its RPCs.
        3. The one that was tried last is still connecting: it has `connect_within`.
        4. It is unhealthy: another is tried after a while.
        """
        if self._settled:
            return self._decide_settled(now, chance)
        self._renewing, self._renew_at = False, None
        if self._backup is not None and self._backup.ready:
            return self._promote(Why.MOVED, now, chance)
        waits_for = self._active if self._backup is None else self._backup
        if waits_for.connecting:
            self._arm_connect(now, chance)
        else:
            self._connect_at = None
            self._arm_reconnect(now, chance)
        return []

    def _decide_settled(self, now: float, chance: float) -> list[Command]:
        if self._renewing and self._backup is not None and not self._backup.unhealthy:
            if self._backup.ready:
                return self._promote(Why.RENEWED, now, chance)
            self._arm_connect(now, chance)
            return []
        why = Why.RENEWAL_FAILED if self._renewing else Why.RECOVERED
        self._reset()
        done = self._drop_backup(why)
        self._plan_renewal(now, chance)
        return done

    def _promote(self, why: Why, now: float, chance: float) -> list[Command]:
        assert self._backup is not None, "only a backup is promoted"
        old, self._active, self._backup = self._active, self._backup, None
        self._reset()
        self._plan_renewal(now, chance)
        return [Retire(old.id, self._settings.drain_timeout, why)]

    def _drop_backup(self, why: Why) -> list[Command]:
        dropped, self._backup = self._backup, None
        return [] if dropped is None else [Retire(dropped.id, self._settings.drain_timeout, why)]

    def _open_backup(self) -> Command:
        self._last_id += 1
        self._tries += 1
        self._backup = _Connection(self._last_id, self._active.mode)
        return Open(self._last_id, shuffled=True)

    def _reset(self) -> None:
        self._reconnect_at = self._connect_at = None
        self._tries = 0
        self._renewing = False

    def _arm_reconnect(self, now: float, chance: float) -> None:
        if self._reconnect_at is None:
            self._reconnect_at = now + wait_before(self._tries, chance, self._settings)

    def _arm_connect(self, now: float, chance: float) -> None:
        if self._connect_at is None:
            self._connect_at = now + self._settings.connect_within * (1 + chance / 10)

    def _plan_renewal(self, now: float, chance: float) -> None:
        every = self._settings.reconnect_every
        if every is not None and self._renew_at is None and self._active.ready:
            self._renew_at = now + every * (1 + chance / 2)

    @property
    def _picked(self) -> _Connection:
        backup = self._backup
        return (
            backup if backup is not None and backup.connected and not self._active.connected else self._active
        )

    def _find(self, connection_id: int, life: int | None = None) -> _Connection | None:
        """A connection we still have; None for one that was left, or for an earlier life of one."""
        for connection in (self._active, self._backup):
            if connection is not None and connection.id == connection_id:
                if life is not None and (life != connection.life or not connection.connected):
                    return None
                return connection
        return None


_AS_CONNECTIVITY = {
    Health.UNKNOWN: Connectivity.CONNECTING,
    Health.HEALTHY: Connectivity.READY,
    Health.UNHEALTHY: Connectivity.TRANSIENT_FAILURE,
}


def wait_before(tries: int, chance: float, settings: Settings) -> float:
    """How long to wait before the next backup when so many were tried, seconds."""
    if settings.first_wait is not None:
        if tries == 0:
            return chance * settings.first_wait
        tries -= 1
    # A fleet may be sick for days: the power must not outgrow a float.
    return min(settings.base * 2.0 ** min(tries, 32), settings.ceiling) * (1 + chance / 2)
