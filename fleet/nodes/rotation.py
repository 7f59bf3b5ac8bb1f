"""Who is next: the L4 balancer's choice among its targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.nodes import addresses
from fleet.nodes.pump import Link


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
    """A target with what is known of it."""

    target: Target
    #: The last answer of `/readyz`; None when it gave none.
    status: int | None = None
    error: str = "not asked yet"
    links: set[Link] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether new connections should go there."""
        return self.status == 200


class Rotation:
    """Round robin over the ready, or over all when none is."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.seats = [Seat(target) for target in targets]
        self._turn = -1

    def order(self) -> list[Seat]:
        """Every seat to try for one connection, first choice first; it is the next one's turn then.

        The turn goes round among the ready alone: skipping the sick would give their neighbours a double share.
        """
        choice = [seat for seat in self.seats if seat.ready] or self.seats
        self._turn += 1
        first = self._turn % len(choice)
        return choice[first:] + choice[:first]

    @property
    def ready(self) -> int:
        """How many are in rotation."""
        return sum(seat.ready for seat in self.seats)
