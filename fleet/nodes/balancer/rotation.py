"""Round-robin of the L4 balancer over its targets, by health. docs/reference/destination-health.md, "Load balancer"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.nodes.shared import addresses
from fleet.nodes.shared.pump import ConnectionPair
from fleet.protocol.destination import picker
from fleet.protocol.destination.health import Health
from fleet.protocol.destination.picker import Candidate, Picker

#: Probes in a row without HTTP 200 after which a target is out of rotation. Instances use the same number.
DEFAULT_UNREADY_AFTER = 2


@dataclass(frozen=True, slots=True)
class BalancerTarget:
    """A target of the balancer."""

    name: str
    address: tuple[str, int]
    #: Address of its `/readyz`.
    diag_address: tuple[str, int]


def parse_flag(text: str) -> BalancerTarget:
    """Read `NAME=HOST:PORT,DIAG_HOST:PORT`. Raises ValueError."""
    name, equals, rest = text.partition("=")
    address, comma, diag = rest.partition(",")
    if not name or not equals or not comma:
        raise ValueError(f"{text!r} is not NAME=HOST:PORT,DIAG_HOST:PORT")
    return BalancerTarget(name, addresses.parse(address), addresses.parse(diag))


@dataclass
class TargetState:
    """A target and the results of its last probes."""

    target: BalancerTarget
    #: Last HTTP status of `/readyz`; None if there was no response.
    http_status: int | None = None
    error: str = "not probed yet"
    #: Probes in a row without HTTP 200.
    consecutive_failures: int = 0
    links: set[ConnectionPair] = field(default_factory=set)
    #: Probes in a row without HTTP 200 after which it is out of rotation.
    unready_after: int = DEFAULT_UNREADY_AFTER

    def record_response(self, http_status: int) -> None:
        """Record a response of `/readyz`."""
        self.http_status, self.error = http_status, ""
        self.consecutive_failures = 0 if http_status == 200 else self.consecutive_failures + 1

    def record_failure(self, error: str) -> None:
        """Record a probe without a response."""
        self.http_status, self.error, self.consecutive_failures = None, error, self.consecutive_failures + 1

    @property
    def is_out_of_rotation(self) -> bool:
        """Return whether the last probes alone take the target out of rotation, whatever its health."""
        return self.consecutive_failures >= self.unready_after


class Rotation:
    """Round-robin by the shares of a picker: targets with the same share get exactly the same number of turns."""

    def __init__(
        self,
        targets: Sequence[BalancerTarget],
        settings: picker.PickerSettings = picker.DEFAULTS,
        unready_after: int = DEFAULT_UNREADY_AFTER,
    ) -> None:
        self.states = [TargetState(target, unready_after=unready_after) for target in targets]
        self._settings = settings
        self._candidates: dict[str, Candidate] = {}
        self._shares: Mapping[str, float] = {}
        #: Turns that each target is still owed.
        self._credits: dict[str, float] = {}

    def update(self, candidates: Iterable[Candidate], now: float) -> None:
        """Update the health of the targets."""
        states = {state.target.name: state for state in self.states}
        out_states = {name: state for name, state in states.items() if state.is_out_of_rotation}
        corrected_candidates = [
            replace(candidate, health=_health_of(candidate.health, states[candidate.name]))
            for candidate in candidates
        ]
        # Targets that respond but are not ready are treated alike: which one was ready last does not matter.
        self._candidates = {
            candidate.name: replace(candidate, succeeded_at=now)
            if candidate.name in out_states and _has_responded(out_states[candidate.name])
            else candidate
            for candidate in corrected_candidates
        }
        self._shares = Picker(self._candidates.values(), now, self._settings).shares
        self._credits = {name: self._credits.get(name, 0.0) for name in self._shares}

    def next_order(self) -> list[TargetState]:
        """Return the targets to try for one connection, the best first, and advance the rotation.

        Draining targets are never among them, so the list may be empty.
        """
        for name, share in self._shares.items():
            self._credits[name] += share
        states = [state for state in self.states if state.target.name in self._credits]
        # Rounded, because sums of floats differ slightly between targets with the same share.
        states.sort(key=lambda state: -round(self._credits[state.target.name], 6))
        if states:
            self._credits[states[0].target.name] -= 1
        # Targets without a share are tried last: one may be healthy again by now.
        remaining_names = [
            candidate.name
            for candidate in self._candidates.values()
            if not candidate.is_draining and candidate.name not in self._credits
        ]
        return states + [state for state in self.states if state.target.name in remaining_names]

    def is_ready(self, state: TargetState) -> bool:
        """Return whether new connections should go to this target."""
        candidate = self._candidates.get(state.target.name)
        return (
            candidate is not None
            and not candidate.is_draining
            and candidate.health in (Health.HEALTHY, Health.DEGRADED)
        )

    @property
    def ready_count(self) -> int:
        """Number of targets in rotation."""
        return sum(self.is_ready(state) for state in self.states)


def _health_of(health: Health, state: TargetState) -> Health:
    """Return the health of a target, corrected by its last probes."""
    if state.is_out_of_rotation:
        return Health.UNHEALTHY
    # Until the next probe decides, the other targets are preferred.
    return Health.DEGRADED if state.consecutive_failures and health is Health.HEALTHY else health


def _has_responded(state: TargetState) -> bool:
    return state.http_status is not None
