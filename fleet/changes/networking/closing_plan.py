"""What closing tunnels will do, foreseen before it is switched on: how many, of whom, where and when.

Runs the agents' own rule (`protocol.graceful_closing`) over what is seen of each agent, until nothing more would close.
docs/networking-config.md, "The plan". Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.protocol.networking.config import NetworkingConfig
from fleet.protocol.recovery.graceful_closing import (
    ClosingPolicy,
    LiveTunnel,
    ClosingReason,
    closable_by_rfd,
    first_by_rfd,
)
from fleet.protocol.recovery.tracker import TrackerSnapshot

CountRange = tuple[int, int]


class ClosingRule(StrEnum):
    """Which rule closes tunnels."""

    NONE = "none"
    RFD = "rfd"
    UPSTREAM = "upstream"

    @property
    def label(self) -> str:
        """Its name for a person."""
        return {
            "none": "no rule: nothing is closed",
            "rfd": "RFD 226, GracefulTunnelClosing",
            "upstream": "upstream's disconnect threshold",
        }[self]


def rule_of(config: NetworkingConfig) -> ClosingRule:
    """The rule that a config puts in force; a threshold wins, as agents have it."""
    if config.tunnel_disconnect_threshold > 0:
        return ClosingRule.UPSTREAM
    return ClosingRule.RFD if config.graceful_tunnel_closing else ClosingRule.NONE


@dataclass(frozen=True, slots=True)
class ObservedTunnel:
    """A tunnel of an agent as a proxy reports it, and what the agent said of it."""

    proxy_id: str
    #: User connections on it; None when the agent was not asked lately.
    session_count: int | None = None
    opened_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ObservedAgent:
    """An agent with the tunnels it holds."""

    id: str
    #: How many it says it wants; 0: one to every proxy.
    desired_count: int
    tunnels: tuple[ObservedTunnel, ...]
    #: Whether its version knows how to close; None when its version was not said.
    can_close: bool | None = None


@dataclass(frozen=True, slots=True)
class ObservedProxy:
    """A proxy, as agents must see it by now."""

    id: str
    name: str
    #: Unexpired, so that agents track it.
    is_tracked: bool = True
    #: Of its group's newest generation.
    is_newest: bool = True
    #: Silent or unhealthy: it may expire while agents wait, or not.
    is_uncertain: bool = False


@dataclass(frozen=True, slots=True)
class ClosingStep:
    """The nth closing of agents that close n or more: how many, between which times after the change, seconds."""

    nth: int
    tunnels: int
    earliest: float
    latest: float


@dataclass(frozen=True, slots=True)
class ProxyOutlook:
    """One proxy before and after."""

    id: str
    name: str
    before: int
    after: CountRange
    #: Tunnels to it that close, and that agents dial.
    closes: CountRange
    dials: CountRange


@dataclass(frozen=True, slots=True)
class ClosingPlan:
    """What is foreseen. A range has equal ends where there is no doubt."""

    rule: ClosingRule
    closes: CountRange
    #: Of those, by reason.
    excess: CountRange
    expired: CountRange
    #: Agents that close at least one.
    agents: CountRange
    #: Closing tunnels that carry user connections: they end with their last one.
    carrying: CountRange
    #: Agents that will hold exactly one tunnel because of it.
    left_with_one: int
    #: Tunnels that agents will dial, for more are wanted.
    opens: int
    steps: tuple[ClosingStep, ...]
    proxies: tuple[ProxyOutlook, ...]
    #: Agents that would close tunnels, but whose version does not know how; and those of which no version was said.
    too_old: int
    version_unknown: int
    #: Who is touched: the agents that close or dial.
    affected_agents: tuple[str, ...] = field(repr=False, default=())
    #: Tunnels of those that close, now.
    closing_tunnel_counts: Mapping[str, int] = field(repr=False, default_factory=dict)
    #: By agent that dials and closes nothing: how many tunnels it has now, and how many it dials.
    dialing_agents: Mapping[str, CountRange] = field(repr=False, default_factory=dict)
    #: All tunnels now, and in the end.
    tunnels: int = 0
    tunnels_after: CountRange = (0, 0)


@dataclass(slots=True)
class _Scenario:
    """The future under one assumption about proxies of which we are not sure."""

    close_count: int = 0
    counts_by_reason: Counter[ClosingReason] = field(default_factory=Counter)
    certain_count: int = 0
    carrying_min: int = 0
    carrying_max: int = 0
    last_tunnel_count: int = 0
    counts_by_step: Counter[int] = field(default_factory=Counter)
    lost_min: Counter[str] = field(default_factory=Counter)
    lost_max: Counter[str] = field(default_factory=Counter)
    old_version_count: int = 0
    unknown_version_count: int = 0
    unknown_version_closes: int = 0
    closing_tunnel_counts: dict[str, int] = field(default_factory=dict)
    dial_counts: dict[str, int] = field(default_factory=dict)
    current_counts: dict[str, int] = field(default_factory=dict)
    gained_min: Counter[str] = field(default_factory=Counter)
    gained_max: Counter[str] = field(default_factory=Counter)


def forecast_closings(
    before: NetworkingConfig,
    after: NetworkingConfig,
    agents: Iterable[ObservedAgent],
    proxies: Sequence[ObservedProxy],
    tunnel_counts: Mapping[str, int],
) -> ClosingPlan:
    """Foresee what `after` does to agents; `held` is how many tunnels each proxy, by id, has now.

    An agent that wants another number than `before` says was told so by its own flag, and goes on wanting that.
    """
    agent_list = list(agents)
    tracked_ids = {proxy.id for proxy in proxies if proxy.is_tracked}
    certain_ids = tracked_ids - {proxy.id for proxy in proxies if proxy.is_uncertain}
    newest_ids = {proxy.id for proxy in proxies if proxy.is_newest}
    policy = ClosingPolicy.of(after)
    base_scenario = _simulate(before, after, policy, agent_list, tracked_ids, newest_ids)
    expiry_scenario = base_scenario if certain_ids == tracked_ids else _simulate(before, after, policy, agent_list, certain_ids, newest_ids)
    return _summarize(after, policy, base_scenario, expiry_scenario, proxies, tunnel_counts)


def _summarize(
    after: NetworkingConfig,
    policy: ClosingPolicy,
    base_scenario: _Scenario,
    expiry_scenario: _Scenario,
    proxies: Sequence[ObservedProxy],
    tunnel_counts: Mapping[str, int],
) -> ClosingPlan:
    scenarios = (base_scenario, expiry_scenario)
    # Versions nobody said are taken for new ones, unless some are known to be old.
    doubtful_closes = {id(scenario): scenario.unknown_version_closes if scenario.old_version_count else 0 for scenario in scenarios}

    def range_of(low: Iterable[int], high: Iterable[int]) -> CountRange:
        return max(min(low), 0), max(high)

    close_range = range_of((variant.close_count - doubtful_closes[id(variant)] for variant in scenarios), (variant.close_count for variant in scenarios))
    open_count, tunnel_count = sum(base_scenario.dial_counts.values()), sum(tunnel_counts.values())
    return ClosingPlan(
        rule=rule_of(after),
        closes=close_range,
        excess=_range_of(variant.counts_by_reason[ClosingReason.EXCESS] for variant in scenarios),
        expired=_range_of(variant.counts_by_reason[ClosingReason.EXPIRED] for variant in scenarios),
        agents=_range_of(len(variant.closing_tunnel_counts) for variant in scenarios),
        carrying=range_of((variant.carrying_min for variant in scenarios), (variant.carrying_max for variant in scenarios)),
        left_with_one=base_scenario.last_tunnel_count,
        opens=open_count,
        steps=tuple(
            ClosingStep(nth, count, *_closing_times(policy, nth)) for nth, count in sorted(base_scenario.counts_by_step.items())
        ),
        proxies=tuple(_proxy_outlook_of(proxy, tunnel_counts.get(proxy.id, 0), base_scenario, expiry_scenario) for proxy in proxies),
        too_old=base_scenario.old_version_count,
        version_unknown=base_scenario.unknown_version_count,
        affected_agents=tuple(sorted({*base_scenario.closing_tunnel_counts, *base_scenario.dial_counts})),
        closing_tunnel_counts={**expiry_scenario.closing_tunnel_counts, **base_scenario.closing_tunnel_counts},
        dialing_agents={
            agent: (base_scenario.current_counts[agent], missing_count)
            for agent, missing_count in base_scenario.dial_counts.items()
            if agent not in base_scenario.closing_tunnel_counts and agent not in expiry_scenario.closing_tunnel_counts
        },
        tunnels=tunnel_count,
        tunnels_after=(max(tunnel_count - close_range[1] + open_count, 0), max(tunnel_count - close_range[0] + open_count, 0)),
    )


def _closing_times(policy: ClosingPolicy, nth: int) -> tuple[float, float]:
    """Return when an agent's nth closing comes at the earliest and at the latest, seconds after the change.

    By the RFD's rule each surplus tunnel has a wait of its own; by upstream's the wait begins anew with each closing.
    """
    return (nth * policy.threshold, nth * policy.threshold) if policy.threshold > 0 else policy.wait


def _range_of(numbers: Iterable[int]) -> CountRange:
    number_list = list(numbers)
    return min(number_list), max(number_list)


def _proxy_outlook_of(proxy: ObservedProxy, before: int, base_scenario: _Scenario, expiry_scenario: _Scenario) -> ProxyOutlook:
    min_losses = min(scenario.lost_min[proxy.id] for scenario in (base_scenario, expiry_scenario))
    max_losses = max(scenario.lost_max[proxy.id] for scenario in (base_scenario, expiry_scenario))
    dial_range = base_scenario.gained_min[proxy.id], base_scenario.gained_max[proxy.id]
    after = max(before - max_losses, 0) + dial_range[0], max(before - min_losses, 0) + dial_range[1]
    return ProxyOutlook(proxy.id, proxy.name, before, after, (min_losses, max_losses), dial_range)


def _simulate(
    before: NetworkingConfig,
    after: NetworkingConfig,
    policy: ClosingPolicy,
    agents: Iterable[ObservedAgent],
    tracked_proxies: Collection[str],
    newest_proxies: Collection[str],
) -> _Scenario:
    scenario = _Scenario()
    ids = sorted(tracked_proxies)
    desired_proxies = sorted(set(tracked_proxies) & set(newest_proxies))
    for agent in agents:
        has_own_count = agent.desired_count != before.connection_count
        desired_count = agent.desired_count if has_own_count else after.connection_count
        snapshot = TrackerSnapshot(desired_count, (), tuple(ids), tuple(desired_proxies), 0.0, None)
        missing_count = snapshot.desired_tunnel_count - sum(tunnel.proxy_id in desired_proxies for tunnel in agent.tunnels)
        previous_snapshot = TrackerSnapshot(agent.desired_count, (), tuple(ids), tuple(desired_proxies), 0.0, None)
        if missing_count > 0 and snapshot.desired_tunnel_count > previous_snapshot.desired_tunnel_count:
            _record_dials(scenario, agent, missing_count, desired_proxies)
        if policy.active and len(agent.tunnels) > 1:
            _record_closings(scenario, agent, simulate_closings(policy, agent.tunnels, snapshot))
    return scenario


def _record_dials(scenario: _Scenario, agent: ObservedAgent, missing_count: int, desired_proxies: Collection[str]) -> None:
    """Take note of the tunnels an agent dials; the load balancer decides to which of the proxies that it lacks."""
    scenario.dial_counts[agent.id] = missing_count
    scenario.current_counts[agent.id] = len(agent.tunnels)
    candidate_proxies = set(desired_proxies) - {tunnel.proxy_id for tunnel in agent.tunnels}
    scenario.gained_max.update(candidate_proxies)
    if len(candidate_proxies) <= missing_count:
        scenario.gained_min.update(candidate_proxies)


def simulate_closings(
    policy: ClosingPolicy, tunnels: Sequence[ObservedTunnel], snapshot: TrackerSnapshot
) -> list[tuple[ObservedTunnel, ClosingReason]]:
    """The tunnels an agent would let go one after the other, the first one first."""
    open_tunnels = list(tunnels)
    closed_tunnels: list[tuple[ObservedTunnel, ClosingReason]] = []
    while len(open_tunnels) > 1:
        live_tunnels = {candidate.proxy_id: LiveTunnel(candidate.proxy_id, candidate.opened_at, sessions=candidate.session_count or 0) for candidate in open_tunnels}
        if policy.threshold > 0:
            desired_count = snapshot.connection_count
            desired_tunnels = [tunnel for proxy, tunnel in live_tunnels.items() if proxy in snapshot.desired_proxies]
            if desired_count <= 0 or len(desired_tunnels) <= desired_count:
                break
            # The slowest goes, and nobody told us their times: any of them stands for it.
            closed_proxy, reason = max(desired_tunnels, key=lambda candidate: candidate.opened_at).proxy, ClosingReason.EXCESS
        else:
            closable = closable_by_rfd(live_tunnels.values(), snapshot)
            if not closable:
                break
            closed_proxy = first_by_rfd([live_tunnels[proxy] for proxy in closable], closable).proxy
            reason = closable[closed_proxy]
        index = next(position for position, candidate in enumerate(open_tunnels) if candidate.proxy_id == closed_proxy)
        closed_tunnels.append((open_tunnels.pop(index), reason))
    return closed_tunnels


def _record_closings(scenario: _Scenario, agent: ObservedAgent, closed_tunnels: Sequence[tuple[ObservedTunnel, ClosingReason]]) -> None:
    if not closed_tunnels:
        return
    if agent.can_close is False:
        scenario.old_version_count += 1
        return
    if agent.can_close is None:
        scenario.unknown_version_count += 1
        scenario.unknown_version_closes += len(closed_tunnels)
    scenario.close_count += len(closed_tunnels)
    scenario.closing_tunnel_counts[agent.id] = len(agent.tunnels)
    scenario.last_tunnel_count += len(agent.tunnels) - len(closed_tunnels) == 1
    excess_count = 0
    are_sessions_known = all(tunnel.session_count is not None for tunnel in agent.tunnels)
    for nth, (tunnel, reason) in enumerate(closed_tunnels, 1):
        scenario.counts_by_step[nth] += 1
        scenario.counts_by_reason[reason] += 1
        excess_count += reason is ClosingReason.EXCESS
        if are_sessions_known or reason is ClosingReason.EXPIRED:
            scenario.lost_min[tunnel.proxy_id] += 1
            scenario.lost_max[tunnel.proxy_id] += 1
        if tunnel.session_count is None:
            scenario.carrying_max += 1
        elif tunnel.session_count:
            scenario.carrying_min += 1
            scenario.carrying_max += 1
    if excess_count and not are_sessions_known:
        for tunnel in agent.tunnels:
            if (tunnel, ClosingReason.EXPIRED) not in closed_tunnels:
                scenario.lost_max[tunnel.proxy_id] += 1
