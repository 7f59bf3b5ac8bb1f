"""Who is next: the L4 balancer's choice among its targets, by health. docs/destination-health.md, "The balancer"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.nodes.shared import addresses
from fleet.nodes.shared.pump import ConnectionPair
from fleet.protocol.destination import picker
from fleet.protocol.destination.health import Health
from fleet.protocol.destination.picker import Candidate, Picker

#: So many probes in a row that were not answered with 200 are no mishap: the quick rule, as for an instance.
DEFAULT_UNREADY_AFTER = 2


@dataclass(frozen=True, slots=True)
class BalancerTarget:
    """Somewhere connections may go."""

    name: str
    address: tuple[str, int]
    #: Where `/readyz` is asked.
    diag: tuple[str, int]


def parse_flag(text: str) -> BalancerTarget:
    """Read `NAME=HOST:PORT,DIAG_HOST:PORT`. Raises ValueError."""
    name, equals, rest = text.partition("=")
    address, comma, diag = rest.partition(",")
    if not name or not equals or not comma:
        raise ValueError(f"{text!r} is not NAME=HOST:PORT,DIAG_HOST:PORT")
    return BalancerTarget(name, addresses.parse(address), addresses.parse(diag))


@dataclass
class TargetState:
    """A target with what its last probes said."""

    target: BalancerTarget
    #: The last answer of `/readyz`; None when it gave none.
    status: int | None = None
    error: str = "not asked yet"
    #: Probes in a row that were not answered with 200.
    failures: int = 0
    links: set[ConnectionPair] = field(default_factory=set)
    #: It is out after so many of those.
    unready_after: int = DEFAULT_UNREADY_AFTER

    def record_response(self, status: int) -> None:
        """`/readyz` was answered."""
        self.status, self.error = status, ""
        self.failures = 0 if status == 200 else self.failures + 1

    def record_failure(self, error: str) -> None:
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
        targets: Sequence[BalancerTarget],
        settings: picker.Settings = picker.DEFAULTS,
        unready_after: int = DEFAULT_UNREADY_AFTER,
    ) -> None:
        self.states = [TargetState(target, unready_after=unready_after) for target in targets]
        self._settings = settings
        self._candidates: dict[str, Candidate] = {}
        self._shares: Mapping[str, float] = {}
        #: What each is owed of the turns so far.
        self._credits: dict[str, float] = {}

    def update(self, candidates: Iterable[Candidate], now: float) -> None:
        """Take what is known of the targets now."""
        states = {state.target.name: state for state in self.states}
        out = {name: state for name, state in states.items() if state.is_out}
        current_candidates = [replace(candidate, health=_health_of(candidate.health, states[candidate.name])) for candidate in candidates]
        # Targets that are not ready yet answer are all alike: which of them was ready last says little.
        self._candidates = {
            candidate.name: replace(candidate, succeeded_at=now) if candidate.name in out and _has_answered(out[candidate.name]) else candidate
            for candidate in current_candidates
        }
        self._shares = Picker(self._candidates.values(), now, self._settings).shares
        self._credits = {name: self._credits.get(name, 0.0) for name in self._shares}

    def order(self) -> list[TargetState]:
        """Every seat to try for one connection, first choice first; it is the next one's turn then.

        Never one that drains, so there may be none.
        """
        for name, share in self._shares.items():
            self._credits[name] += share
        states = [state for state in self.states if state.target.name in self._credits]
        # Rounded: what is owed to two that are alike differs by what additions lose.
        states.sort(key=lambda state: -round(self._credits[state.target.name], 6))
        if states:
            self._credits[states[0].target.name] -= 1
        # Whoever has no share is tried last: it may be well by now, and there is nobody else.
        rest = [candidate.name for candidate in self._candidates.values() if not candidate.is_draining and candidate.name not in self._credits]
        return states + [state for state in self.states if state.target.name in rest]

    def is_ready(self, state: TargetState) -> bool:
        """Whether new connections should go there."""
        candidate = self._candidates.get(state.target.name)
        return candidate is not None and not candidate.is_draining and candidate.health in (Health.HEALTHY, Health.DEGRADED)

    @property
    def ready_count(self) -> int:
        """How many are in rotation."""
        return sum(self.is_ready(state) for state in self.states)


def _health_of(health: Health, state: TargetState) -> Health:
    """What repeated probes made of it, corrected by what the last ones said."""
    if state.is_out:
        return Health.UNHEALTHY
    # The next probe tells, soon; until then the others are preferred.
    return Health.DEGRADED if state.failures and health is Health.HEALTHY else health


def _has_answered(state: TargetState) -> bool:
    return state.status is not None
