"""Instances from the view of agents: state, live tunnels, and whether connections to them survive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.monitoring.classify.instances import (
    has_responded,
    instance_state,
    is_expired,
    is_fresh,
    is_silent,
    sick_since_of,
)
from fleet.monitoring.evidence import FeedFreshness, FleetEvidence
from fleet.vocabulary.instances import (
    CONNECTED_SICK_STATES,
    SICK_STATES,
    InstanceFacts,
    InstanceKind,
    InstanceState,
)


@dataclass(frozen=True, slots=True)
class InstanceCondition:
    """An instance from the view of agents."""

    facts: InstanceFacts
    state: InstanceState
    #: The instance is silent, unhealthy, expired or deregistered: failing.
    is_sick: bool
    #: When the problem began, seconds since the epoch; 0 without one.
    since: float
    #: The instance is failing but responds: connections to it survive, so only a health check moves its agents.
    keeps_connections: bool
    #: Proxy: its tunnels count as live, because it is not silent and reported within two rounds.
    is_live: bool
    #: Proxy: its tunnels may be live: it has no known problem, but its report is missing or too old.
    is_unread: bool
    #: Proxy: an attempt to read its tunnels ended recently, good or failed.
    is_feed_fresh: bool
    #: Proxy: unexpired, and of the highest generation of its group.
    is_desired: bool
    is_degraded: bool


def conditions_of(fleet: FleetEvidence, now: float) -> dict[int, InstanceCondition]:
    """Return the condition of every instance, by index."""
    generations = _find_highest_generations(fleet.instances.values(), now)
    return {index: _condition_of(facts, fleet, now, generations) for index, facts in fleet.instances.items()}


def _condition_of(
    facts: InstanceFacts, fleet: FleetEvidence, now: float, generations: Mapping[str, int]
) -> InstanceCondition:
    timing = fleet.timing
    state = instance_state(facts, now, timing)
    sick = state in SICK_STATES
    silent = is_silent(facts, now, timing)
    is_responding = not silent and has_responded(facts, now, timing)
    is_proxy = facts.kind is InstanceKind.PROXY
    feed = fleet.tunnel_freshness.get(facts.index, FeedFreshness())
    has_reported = feed.responded_at is not None and now - feed.responded_at < timing.tunnels_live_for
    return InstanceCondition(
        facts=facts,
        state=state,
        is_sick=sick,
        since=sick_since_of(facts, state, now) if sick else 0.0,
        keeps_connections=is_responding and state in CONNECTED_SICK_STATES,
        is_live=is_proxy and has_reported and not silent,
        is_unread=is_proxy and not has_reported and not sick,
        is_feed_fresh=is_proxy and is_fresh(last_attempt_at(feed), now, timing),
        is_desired=is_proxy and _is_unexpired(facts, now) and facts.generation == generations[facts.group],
        is_degraded=facts.index in fleet.degraded_instances,
    )


def _is_unexpired(facts: InstanceFacts, now: float) -> bool:
    return facts.gone_at is None and not is_expired(facts, now)


def _find_highest_generations(instances: Iterable[InstanceFacts], now: float) -> dict[str, int]:
    """Return each proxy group's highest generation among unexpired proxies, as agents' trackers compute it."""
    generation_by_group: dict[str, int] = {}
    for facts in instances:
        if facts.kind is InstanceKind.PROXY and _is_unexpired(facts, now):
            generation_by_group[facts.group] = max(facts.generation, generation_by_group.get(facts.group, 0))
    return generation_by_group


def last_attempt_at(feed: FeedFreshness) -> float | None:
    """Return when the last attempt to read a source ended, good or failed."""
    attempt_times = [at for at in (feed.attempted_at, feed.responded_at) if at is not None]
    return max(attempt_times, default=None)
