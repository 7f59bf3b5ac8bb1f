"""Who is next: the L4 balancer's choice among its targets, by health. docs/destination-health.md, "The balancer"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.nodes.shared import addresses
from fleet.nodes.shared.pump import Link
from fleet.protocol.destination import picker
from fleet.protocol.destination.health import Health
from fleet.protocol.destination.picker import Candidate, Picker

#: So many probes in a row that were not answered with 200 are no mishap: the quick rule, as for an instance.
DEFAULT_UNREADY_AFTER = 2


@dataclass(frozen=True, slots=True)
class Target:
    """Somewhere connections may go."""

    name: str
    address: tuple[str, int]
    #: Where `/readyz` is asked.
    diag: tuple[str, int]


def parse_flag(text: str) -> Target:
    """Read `NAME=HOST:PORT,DIAG_HOST:PORT`. Raises ValueError."""
    name, equals, rest = text.partition("=")
    address, comma, diag = rest.partition(",")
    if not name or not equals or not comma:
        raise ValueError(f"{text!r} is not NAME=HOST:PORT,DIAG_HOST:PORT")
    return Target(name, addresses.parse(address), addresses.parse(diag))


@dataclass
class Seat:
    """A target with what its last probes said."""

    target: Target
    #: The last answer of `/readyz`; None when it gave none.
    status: int | None = None
    error: str = "not asked yet"
    #: Probes in a row that were not answered with 200.
    failures: int = 0
    links: set[Link] = field(default_factory=set)
    #: It is out after so many of those.
    unready_after: int = DEFAULT_UNREADY_AFTER

    def answered(self, status: int) -> None:
        """`/readyz` was answered."""
        self.status, self.error = status, ""
        self.failures = 0 if status == 200 else self.failures + 1

    def failed(self, error: str) -> None:
        """It was not."""
        self.status, self.error, self.failures = None, error, self.failures + 1

    @property
    def is_out(self) -> bool:
        """Whether it is out whatever the diagram makes of its probes: not ready, or silent, several times in a row."""
        return self.failures >= self.unready_after


class Rotation:
    """Turns by the shares of a picker: those of the same share have exactly the same number of turns."""

    def __init__(
        self,
        targets: Sequence[Target],
        settings: picker.Settings = picker.DEFAULTS,
        unready_after: int = DEFAULT_UNREADY_AFTER,
    ) -> None:
        self.seats = [Seat(target, unready_after=unready_after) for target in targets]
        self._settings = settings
        self._known: dict[str, Candidate] = {}
        self._shares: Mapping[str, float] = {}
        #: What each is owed of the turns so far.
        self._owed: dict[str, float] = {}

    def update(self, known: Iterable[Candidate], now: float) -> None:
        """Take what is known of the targets now."""
        seats = {seat.target.name: seat for seat in self.seats}
        out = {name: seat for name, seat in seats.items() if seat.is_out}
        found = [replace(one, health=_seen(one.health, seats[one.name])) for one in known]
        # Targets that are not ready yet answer are all alike: which of them was ready last says little.
        self._known = {
            one.name: replace(one, succeeded_at=now) if one.name in out and _answers(out[one.name]) else one
            for one in found
        }
        self._shares = Picker(self._known.values(), now, self._settings).shares
        self._owed = {name: self._owed.get(name, 0.0) for name in self._shares}

    def order(self) -> list[Seat]:
        """Every seat to try for one connection, first choice first; it is the next one's turn then.

        Never one that drains, so there may be none.
        """
        for name, share in self._shares.items():
            self._owed[name] += share
        seats = [seat for seat in self.seats if seat.target.name in self._owed]
        # Rounded: what is owed to two that are alike differs by what additions lose.
        seats.sort(key=lambda seat: -round(self._owed[seat.target.name], 6))
        if seats:
            self._owed[seats[0].target.name] -= 1
        # Whoever has no share is tried last: it may be well by now, and there is nobody else.
        rest = [one.name for one in self._known.values() if not one.draining and one.name not in self._owed]
        return seats + [seat for seat in self.seats if seat.target.name in rest]

    def is_ready(self, seat: Seat) -> bool:
        """Whether new connections should go there."""
        known = self._known.get(seat.target.name)
        return known is not None and not known.draining and known.health in (Health.HEALTHY, Health.DEGRADED)

    @property
    def ready(self) -> int:
        """How many are in rotation."""
        return sum(self.is_ready(seat) for seat in self.seats)


def _seen(health: Health, seat: Seat) -> Health:
    """What repeated probes made of it, corrected by what the last ones said."""
    if seat.is_out:
        return Health.UNHEALTHY
    # The next probe tells, soon; until then the others are preferred.
    return Health.DEGRADED if seat.failures and health is Health.HEALTHY else health


def _answers(seat: Seat) -> bool:
    return seat.status is not None
