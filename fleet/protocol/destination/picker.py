"""Which destination gets a request: Healthy ones first, and more and more of the others the fewer those are.

Shares follow Envoy's (https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/load_balancing/degraded)
without its rounding, bounded by a guard on the load of each destination. A `Picker` is made anew when what is known
changes, and answers quickly. Pure: `now` and `chance`, a number in [0, 1), are arguments. docs/destination-health.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from itertools import accumulate, groupby

from fleet.protocol.destination.health import Health

#: A guard that never acts: no fleet is so large that one destination's fair share is less than this part of all.
NO_GUARD = 1e9


@dataclass(frozen=True, slots=True)
class Settings:
    """How preferred ones are preferred. Seconds; a fair share is what each would get were all alike."""

    #: Healthy ones are few when less than 1 / this of the capacity is Healthy; the rest spills over to the next tier.
    overprovisioning: float = 1.4
    #: They are few, too, when they are fewer than this; 1: never for that.
    min_healthy: int = 1
    #: None gets more than so many times its fair share while there is another one, though it be Unhealthy. At three,
    #: the last one of three may take all.
    guard: float = 3.0
    #: The same of an Unhealthy one: the lower, the more of them are tried at once.
    panic_guard: float = 2.0
    #: The tier of those of which nothing is known: Healthy, Degraded, or Unknown for one of their own after Degraded.
    unknown_tier: Health = Health.DEGRADED
    #: What of its weight a Degraded one has, above 0 and at most 1: what it lacks goes to the others, Healthy or not.
    degraded_weight: float = 1.0
    #: One that became Healthy comes to its whole weight within this, from `slow_start_from` of it on; 0: at once.
    slow_start: float = 0.0
    slow_start_from: float = 0.1

    def __post_init__(self) -> None:
        if not (
            self.overprovisioning >= 1 and self.guard >= 1 and self.panic_guard >= 1 and self.min_healthy >= 1
        ):
            raise ValueError("overprovisioning, guards and the fewest Healthy ones are at least 1")
        if not (self.slow_start >= 0 and 0 < self.slow_start_from <= 1):
            raise ValueError("a slow start takes no negative time, and begins above 0")
        if not 0 < self.degraded_weight <= 1:
            raise ValueError("the weight of Degraded ones is a share of their own, above 0 and at most 1")
        if self.unknown_tier is Health.UNHEALTHY:
            raise ValueError("Unknown ones are usable: their tier is Healthy, Degraded or Unknown")


DEFAULTS = Settings()


def with_headroom(settings: Settings, headroom: float | None) -> Settings:
    """Guard destinations that can take so many times what each has when all are well; None: nobody knows.

    Where nobody knows there is no guard: one too low sends requests to the dead that the living could have answered.
    """
    return replace(settings, guard=NO_GUARD if headroom is None else headroom)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A destination as the picker sees it."""

    name: str
    health: Health
    weight: float = 1.0
    #: It keeps its sessions and gets no new ones.
    is_draining: bool = False
    #: Since when it is Healthy: for the slow start; None: long since.
    healthy_since: float | None = None
    #: When it was last seen to answer well: in a panic the latest are tried first; None: never.
    succeeded_at: float | None = None
    #: What of its weight it has while it is Degraded; None: as the settings say for all.
    degraded_weight: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"the weight of {self.name} is not above 0")
        if self.degraded_weight is not None and not 0 < self.degraded_weight <= 1:
            raise ValueError(f"the weight of {self.name} while Degraded is not above 0 and at most 1")


class PickReason(StrEnum):
    """Why that one."""

    HEALTHY = auto()
    DEGRADED = auto()
    UNKNOWN = auto()
    #: It is Unhealthy, and there is none better, or those are loaded enough.
    PANIC = auto()
    #: The session was there before.
    AFFINITY = auto()


@dataclass(frozen=True, slots=True)
class Pick:
    """A destination for one request."""

    name: str
    reason: PickReason


_REASONS = {
    Health.HEALTHY: PickReason.HEALTHY,
    Health.DEGRADED: PickReason.DEGRADED,
    Health.UNKNOWN: PickReason.UNKNOWN,
    Health.UNHEALTHY: PickReason.PANIC,
}


class Picker:
    """Answers which destination is next, by shares that stay until what is known changes."""

    def __init__(self, candidates: Iterable[Candidate], now: float, settings: Settings = DEFAULTS) -> None:
        candidate_list = tuple(candidates)
        self._usable_names = {candidate.name for candidate in candidate_list if candidate.health is not Health.UNHEALTHY}
        shares = [(candidate, share) for candidate, share in _shares(_Fleet(candidate_list, now, settings)) if share > 0]
        self._picks = [Pick(candidate.name, _REASONS[candidate.health]) for candidate, _ in shares]
        self._edges = list(accumulate(share for _, share in shares))
        self.shares: Mapping[str, float] = {candidate.name: share for candidate, share in shares}

    def pick(self, chance: float, without: Collection[str] = ()) -> Pick | None:
        """A destination for a request without a session, none of `without`; None: no other takes new ones."""
        picks, edges = self._picks, self._edges
        if without:
            picks = [pick for pick in picks if pick.name not in without]
            edges = list(accumulate(self.shares[pick.name] for pick in picks))
        if not picks:
            return None
        at = bisect_right(edges, chance * edges[-1])
        return picks[min(at, len(picks) - 1)]

    def keep(self, name: str, chance: float) -> Pick | None:
        """The destination of a session, be it Degraded or Draining; another one if that is Unhealthy or gone."""
        return Pick(name, PickReason.AFFINITY) if name in self._usable_names else self.pick(chance)


class _Fleet:
    """The candidates that take new requests, in tiers, with what each may take of all requests."""

    def __init__(self, candidates: Sequence[Candidate], now: float, settings: Settings) -> None:
        available = [candidate for candidate in candidates if not candidate.is_draining]
        self.settings = settings
        total = sum(candidate.weight for candidate in available)
        self.available = available
        #: What of the whole fleet's capacity each brings in.
        self.capacity = {candidate.name: _effective_weight(candidate, now, settings) / total for candidate in available}
        if len(self.capacity) != len(available):
            raise ValueError("two candidates have the same name")
        ranks = [Health.HEALTHY, Health.DEGRADED, Health.UNKNOWN]
        usable = [[candidate for candidate in available if _tier(candidate, settings) is rank] for rank in ranks]
        self.tiers = [tier for tier in usable if tier]
        self.healthy = len(usable[0])

    def capacity_of(self, tier: Iterable[Candidate]) -> float:
        """The capacity of a tier."""
        return sum(self.capacity[candidate.name] for candidate in tier)

    def panic(self) -> Iterator[list[Candidate]]:
        """The Unhealthy ones, those first that were seen well last."""
        unhealthy = [candidate for candidate in self.available if candidate.health is Health.UNHEALTHY]
        unhealthy.sort(key=_recency, reverse=True)
        for _, alike in groupby(unhealthy, key=_recency):
            yield list(alike)


def _tier(candidate: Candidate, settings: Settings) -> Health:
    return settings.unknown_tier if candidate.health is Health.UNKNOWN else candidate.health


def _recency(candidate: Candidate) -> float:
    return float("-inf") if candidate.succeeded_at is None else candidate.succeeded_at


def _effective_weight(candidate: Candidate, now: float, settings: Settings) -> float:
    """Its weight, less while it is Degraded, or starts slowly."""
    if candidate.health is Health.DEGRADED:
        return candidate.weight * (settings.degraded_weight if candidate.degraded_weight is None else candidate.degraded_weight)
    if candidate.health is not Health.HEALTHY or candidate.healthy_since is None or settings.slow_start == 0:
        return candidate.weight
    progress = max(0.0, now - candidate.healthy_since) / settings.slow_start
    return candidate.weight * min(1.0, max(settings.slow_start_from, progress))


def _shares(fleet: _Fleet) -> Iterator[tuple[Candidate, float]]:
    """What of all requests each gets; together 1, unless nobody takes any.

    1. Each tier takes what it can, times the overprovisioning, of what the tiers before it left.
    2. When that is not all, what they take is scaled up to be all.
    3. None takes more than its guard allows; what is left then goes to whoever has room: the tiers in their order,
       then the Unhealthy ones, those first that were seen well last.
    4. When nobody has room, all that may be used take more, in proportion.
    """
    settings = fleet.settings
    # A tier's destinations have the same load for their capacity: the guard of one is the guard of its tier.
    groups = [(tier, settings.guard * fleet.capacity_of(tier)) for tier in fleet.tiers]
    shares = [min(share, most) for share, (_, most) in zip(_tier_shares(fleet), groups, strict=True)]
    panic = [(tier, settings.panic_guard * fleet.capacity_of(tier)) for tier in fleet.panic()]
    groups += panic
    shares += [0.0] * len(panic)
    remaining_share = 1 - sum(shares)
    for number, (_, most) in enumerate(groups):
        more = max(0.0, min(remaining_share, most - shares[number]))
        shares[number] += more
        remaining_share -= more
    total_share = sum(shares)
    for (tier, _), share in zip(groups, shares, strict=True):
        for candidate in tier:
            yield candidate, share / total_share * fleet.capacity[candidate.name] / fleet.capacity_of(tier)


def _tier_shares(fleet: _Fleet) -> list[float]:
    """Steps 1 and 2: Envoy's shares of the tiers."""
    settings, remaining_share = fleet.settings, 1.0
    shares = []
    for tier in fleet.tiers:
        share = min(remaining_share, settings.overprovisioning * fleet.capacity_of(tier))
        if tier is fleet.tiers[0] and fleet.healthy:
            share = min(share, fleet.healthy / settings.min_healthy)
        shares.append(share)
        remaining_share -= share
    total_share = sum(shares)
    return [share / total_share for share in shares]
