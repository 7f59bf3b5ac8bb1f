"""Load balancing over destinations: Healthy ones first; the fewer there are, the more requests the others get.

Shares follow Envoy's (https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/load_balancing/degraded)
without its rounding, and a guard may limit the load of each destination. Make a new `Picker` whenever health changes;
picking is fast. Pure: `now` and `chance`, a number in [0, 1), are arguments. docs/reference/destination-health.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from itertools import accumulate, groupby

from fleet.protocol.destination.health import Health

#: A guard that never limits: one destination's fair share is never below one part in a billion.
NO_GUARD = 1e9


@dataclass(frozen=True, slots=True)
class PickerSettings:
    """Preference for healthy destinations. Seconds. A fair share is the share of each if all were alike."""

    #: Requests spill over to the next tier when less than 1 / this of the capacity is Healthy.
    overprovisioning: float = 1.4
    #: Requests also spill over when fewer than this many destinations are Healthy; 1: never for that reason.
    min_healthy: int = 1
    #: Limit of a destination, in fair shares, while another one (even Unhealthy) is left. None by default: a guard
    #: helps only if it is known how much a destination can take (measured: docs/reference/benchmarks.md, "picking").
    guard: float = NO_GUARD
    #: The same limit for an Unhealthy destination: the lower, the more of them are tried at the same time.
    panic_guard: float = 2.0
    #: Tier of Unknown destinations: Healthy, Degraded, or Unknown for a tier of their own after Degraded.
    unknown_tier: Health = Health.DEGRADED
    #: Share of its weight that a Degraded destination has, above 0 and at most 1; the others get the rest.
    degraded_weight: float = 1.0
    #: Seconds in which a newly Healthy destination reaches its full weight, starting at `slow_start_from`; 0: at once.
    slow_start: float = 0.0
    slow_start_from: float = 0.1

    def __post_init__(self) -> None:
        if not (
            self.overprovisioning >= 1 and self.guard >= 1 and self.panic_guard >= 1 and self.min_healthy >= 1
        ):
            raise ValueError("overprovisioning, guard, panic_guard and min_healthy must be at least 1")
        if not (self.slow_start >= 0 and 0 < self.slow_start_from <= 1):
            raise ValueError(
                "slow_start must not be negative, and slow_start_from must be above 0 and at most 1"
            )
        if not 0 < self.degraded_weight <= 1:
            raise ValueError("degraded_weight must be above 0 and at most 1")
        if self.unknown_tier is Health.UNHEALTHY:
            raise ValueError("unknown_tier must be Healthy, Degraded or Unknown")


DEFAULTS = PickerSettings()


def with_headroom(settings: PickerSettings, headroom: float | None) -> PickerSettings:
    """Return the settings with a guard for destinations that can take `headroom` times their normal load.

    None, an unknown headroom, means no guard: one that is too low sends requests to
    failed destinations instead of working ones.
    """
    return replace(settings, guard=NO_GUARD if headroom is None else headroom)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A destination as the picker sees it. Raises ValueError for a weight out of range."""

    name: str
    health: Health
    weight: float = 1.0
    #: No new sessions; existing ones stay.
    is_draining: bool = False
    #: Since when the destination is Healthy, for the slow start; None: for long.
    healthy_since: float | None = None
    #: Time of the last success: in a panic the most recent ones are tried first; None: never.
    succeeded_at: float | None = None
    #: Share of its weight while Degraded, above 0 and at most 1; None: the setting for all.
    degraded_weight: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"the weight of {self.name} must be above 0 and finite")
        if self.degraded_weight is not None and not 0 < self.degraded_weight <= 1:
            raise ValueError(f"the degraded_weight of {self.name} must be above 0 and at most 1")


class PickReason(StrEnum):
    """Why a destination was picked."""

    HEALTHY = auto()
    DEGRADED = auto()
    UNKNOWN = auto()
    #: It is Unhealthy; there is no better one, or the better ones have enough load.
    PANIC = auto()
    #: The session is bound to this destination.
    AFFINITY = auto()


@dataclass(frozen=True, slots=True)
class Pick:
    """The destination of one request."""

    name: str
    reason: PickReason


_REASONS = {
    Health.HEALTHY: PickReason.HEALTHY,
    Health.DEGRADED: PickReason.DEGRADED,
    Health.UNKNOWN: PickReason.UNKNOWN,
    Health.UNHEALTHY: PickReason.PANIC,
}


class Picker:
    """Picks destinations by fixed shares; make a new picker when health changes."""

    def __init__(
        self, candidates: Iterable[Candidate], now: float, settings: PickerSettings = DEFAULTS
    ) -> None:
        all_candidates = tuple(candidates)
        self._usable_names = {
            candidate.name for candidate in all_candidates if candidate.health is not Health.UNHEALTHY
        }
        shares = [
            (candidate, share)
            for candidate, share in _shares(_CandidateTiers(all_candidates, now, settings))
            if share > 0
        ]
        self._picks = [Pick(candidate.name, _REASONS[candidate.health]) for candidate, _ in shares]
        self._cumulative_shares = list(accumulate(share for _, share in shares))
        self.shares: Mapping[str, float] = {candidate.name: share for candidate, share in shares}

    def pick(self, chance: float, without: Collection[str] = ()) -> Pick | None:
        """Return a destination for a request without a session, not in `without`; None: no other takes new ones."""
        picks, cumulative_shares = self._picks, self._cumulative_shares
        if without:
            picks = [pick for pick in picks if pick.name not in without]
            cumulative_shares = list(accumulate(self.shares[pick.name] for pick in picks))
        if not picks:
            return None
        index = bisect_right(cumulative_shares, chance * cumulative_shares[-1])
        return picks[min(index, len(picks) - 1)]

    def keep(self, name: str, chance: float) -> Pick | None:
        """Return the destination of a session, even if Degraded or draining; another one if it is Unhealthy or gone."""
        return Pick(name, PickReason.AFFINITY) if name in self._usable_names else self.pick(chance)


class _CandidateTiers:
    """The candidates that take new requests, in tiers, with the share of all requests that each can take."""

    def __init__(self, candidates: Sequence[Candidate], now: float, settings: PickerSettings) -> None:
        available = [candidate for candidate in candidates if not candidate.is_draining]
        self.settings = settings
        total_weight = sum(candidate.weight for candidate in available)
        self.available = available
        #: Share of the capacity of all candidates, by name.
        self.capacity = {
            candidate.name: _effective_weight(candidate, now, settings) / total_weight
            for candidate in available
        }
        if len(self.capacity) != len(available):
            raise ValueError("two candidates have the same name")
        ranks = [Health.HEALTHY, Health.DEGRADED, Health.UNKNOWN]
        tiers_by_rank = [
            [candidate for candidate in available if _tier_of(candidate, settings) is rank] for rank in ranks
        ]
        self.tiers = [tier for tier in tiers_by_rank if tier]
        self.healthy_count = len(tiers_by_rank[0])

    def capacity_of(self, tier: Iterable[Candidate]) -> float:
        """Return the capacity of a tier, a share of all capacity."""
        return sum(self.capacity[candidate.name] for candidate in tier)

    def panic_groups(self) -> Iterator[list[Candidate]]:
        """Yield the Unhealthy candidates in groups, the most recently successful first."""
        unhealthy = [candidate for candidate in self.available if candidate.health is Health.UNHEALTHY]
        unhealthy.sort(key=_recency_of, reverse=True)
        for _, alike in groupby(unhealthy, key=_recency_of):
            yield list(alike)


def _tier_of(candidate: Candidate, settings: PickerSettings) -> Health:
    return settings.unknown_tier if candidate.health is Health.UNKNOWN else candidate.health


def _recency_of(candidate: Candidate) -> float:
    return float("-inf") if candidate.succeeded_at is None else candidate.succeeded_at


def _effective_weight(candidate: Candidate, now: float, settings: PickerSettings) -> float:
    """Return a candidate's weight, reduced while it is Degraded or in its slow start."""
    if candidate.health is Health.DEGRADED:
        return candidate.weight * (
            settings.degraded_weight if candidate.degraded_weight is None else candidate.degraded_weight
        )
    if candidate.health is not Health.HEALTHY or candidate.healthy_since is None or settings.slow_start == 0:
        return candidate.weight
    progress = max(0.0, now - candidate.healthy_since) / settings.slow_start
    return candidate.weight * min(1.0, max(settings.slow_start_from, progress))


def _shares(candidate_tiers: _CandidateTiers) -> Iterator[tuple[Candidate, float]]:
    """Yield each candidate's share of all requests; the shares add up to 1 unless there is no candidate.

    1. Each tier takes its capacity times the overprovisioning of the requests that earlier tiers left over.
    2. If requests are left over, all shares are scaled up.
    3. The guard limits each share; the excess goes to destinations with room: the tiers in order, then the Unhealthy
       ones, the most recently successful first.
    4. If none has room, all shares are scaled up in proportion.
    """
    settings = candidate_tiers.settings
    # Destinations of one tier have the same load per capacity, so the guard of one is the guard of the tier.
    groups = [(tier, settings.guard * candidate_tiers.capacity_of(tier)) for tier in candidate_tiers.tiers]
    shares = [
        min(share, most) for share, (_, most) in zip(_tier_shares(candidate_tiers), groups, strict=True)
    ]
    panic = [
        (tier, settings.panic_guard * candidate_tiers.capacity_of(tier))
        for tier in candidate_tiers.panic_groups()
    ]
    groups += panic
    shares += [0.0] * len(panic)
    remaining_share = 1 - sum(shares)
    for number, (_, most) in enumerate(groups):
        extra_share = max(0.0, min(remaining_share, most - shares[number]))
        shares[number] += extra_share
        remaining_share -= extra_share
    total_share = sum(shares)
    for (tier, _), share in zip(groups, shares, strict=True):
        for candidate in tier:
            yield (
                candidate,
                share
                / total_share
                * candidate_tiers.capacity[candidate.name]
                / candidate_tiers.capacity_of(tier),
            )


def _tier_shares(candidate_tiers: _CandidateTiers) -> list[float]:
    """Return the shares of the tiers after steps 1 and 2, as Envoy does."""
    settings, remaining_share = candidate_tiers.settings, 1.0
    shares = []
    for tier in candidate_tiers.tiers:
        share = min(remaining_share, settings.overprovisioning * candidate_tiers.capacity_of(tier))
        if tier is candidate_tiers.tiers[0] and candidate_tiers.healthy_count:
            share = min(share, candidate_tiers.healthy_count / settings.min_healthy)
        shares.append(share)
        remaining_share -= share
    total_share = sum(shares)
    return [share / total_share for share in shares]
