"""The expected tunnel closings of a config change: how many, of which agents, at which proxies, and when.

Applies the agents' own rule (`protocol.graceful_closing`) to each agent until no further tunnel would close.
docs/reference/networking-config.md, "Plan". Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.protocol.networking.config import NetworkingConfig
from fleet.protocol.recovery.dial_forecast import dial_seconds_of
from fleet.protocol.recovery.graceful_closing import (
    ClosingPolicy,
    ClosingReason,
    TunnelState,
    closable_by_rfd,
    first_by_rfd,
)
from fleet.protocol.recovery.tracker import TrackerSnapshot

CountRange = tuple[int, int]
#: Standard deviations on both sides of the mean that 99 % of random outcomes are within.
_DEVIATIONS = 2.58


class ClosingRule(StrEnum):
    """The rule that closes tunnels."""

    NONE = "none"
    RFD = "rfd"
    UPSTREAM = "upstream"

    @property
    def label(self) -> str:
        """The name of the rule on pages."""
        return {
            "none": "no rule: no tunnels close",
            "rfd": "graceful tunnel closing (RFD 226)",
            "upstream": "Teleport's disconnect threshold",
        }[self]


def closing_rule_of(config: NetworkingConfig) -> ClosingRule:
    """Return the rule that a config enables. A disconnect threshold takes precedence, as in agents."""
    if config.tunnel_disconnect_threshold > 0:
        return ClosingRule.UPSTREAM
    return ClosingRule.RFD if config.graceful_tunnel_closing else ClosingRule.NONE


@dataclass(frozen=True, slots=True)
class ObservedTunnel:
    """A tunnel of an agent, as reported by its proxy and by the agent."""

    proxy_id: str
    #: User connections on the tunnel; None: no recent report of the agent.
    session_count: int | None = None
    opened_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ObservedAgent:
    """An agent with its tunnels."""

    id: str
    #: Number of tunnels that the agent aims for; 0: one to every proxy.
    desired_count: int
    tunnels: tuple[ObservedTunnel, ...]
    #: Whether the agent's version supports closing; None: version unknown.
    can_close: bool | None = None


@dataclass(frozen=True, slots=True)
class ObservedProxy:
    """A proxy, as agents see it."""

    id: str
    name: str
    #: Agents track the proxy, because it is not expired.
    is_tracked: bool = True
    #: The proxy is of the newest generation of its group.
    is_newest_generation: bool = True
    #: The proxy is not responding or unhealthy, so it may expire while agents wait.
    is_uncertain: bool = False
    #: The proxy accepts no new tunnels.
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class ClosingStep:
    """The nth closing of each agent: number of tunnels, earliest and latest time after the change, seconds."""

    nth: int
    tunnel_count: int
    earliest_seconds: float
    latest_seconds: float


@dataclass(frozen=True, slots=True)
class ProxyOutlook:
    """The tunnels of one proxy before and after the change."""

    id: str
    name: str
    tunnels_before: int
    tunnels_after: CountRange
    #: Tunnels that close, and that agents open.
    closing_count: CountRange
    opening_count: CountRange


@dataclass(frozen=True, slots=True)
class ClosingPlan:
    """The expected closings. Both ends of a range are equal where the number is certain."""

    rule: ClosingRule
    closing_count: CountRange
    #: Closings of excess tunnels, and of tunnels to expired proxies.
    excess_count: CountRange
    expired_count: CountRange
    #: Agents that close at least one tunnel.
    agent_count: CountRange
    #: Closing tunnels with user connections; each ends with its last one.
    in_use_count: CountRange
    #: Agents that keep exactly one tunnel after their closings.
    single_tunnel_agent_count: int
    #: Tunnels that agents open, and the number of these agents.
    opening_count: int
    opening_agent_count: int
    steps: tuple[ClosingStep, ...]
    proxies: tuple[ProxyOutlook, ...]
    #: Time until the last agents act on the config, about; and until the last missing tunnels are open, 0 for none.
    reaction_seconds: float
    opening_seconds: float
    #: Agents with tunnels to close, whose version does not support the rule; or whose version is unknown.
    unsupported_agent_count: int
    unknown_version_agent_count: int
    #: Ids of the affected agents: those that close or open tunnels.
    affected_agents: tuple[str, ...] = field(repr=False, default=())
    #: Present number of tunnels, by agent that closes some.
    closing_tunnel_counts: Mapping[str, int] = field(repr=False, default_factory=dict)
    #: Present number of tunnels and number to open, by agent that opens some and closes none.
    dialing_agents: Mapping[str, tuple[int, int]] = field(repr=False, default_factory=dict)
    #: Tunnels of the fleet, now and after the change.
    tunnels_before: int = 0
    tunnels_after: CountRange = (0, 0)


@dataclass(slots=True)
class _Scenario:
    """The result under one assumption about which doubtful proxies expire."""

    closing_count: int = 0
    closing_counts_by_reason: Counter[ClosingReason] = field(default_factory=Counter)
    min_in_use_count: int = 0
    max_in_use_count: int = 0
    single_tunnel_agent_count: int = 0
    closing_counts_by_nth: Counter[int] = field(default_factory=Counter)
    min_losses_by_proxy: Counter[str] = field(default_factory=Counter)
    max_losses_by_proxy: Counter[str] = field(default_factory=Counter)
    unsupported_agent_count: int = 0
    unknown_version_agent_count: int = 0
    unknown_version_closing_count: int = 0
    closing_tunnel_counts: dict[str, int] = field(default_factory=dict)
    opening_counts: dict[str, int] = field(default_factory=dict)
    present_tunnel_counts: dict[str, int] = field(default_factory=dict)
    min_gains_by_proxy: Counter[str] = field(default_factory=Counter)
    max_gains_by_proxy: Counter[str] = field(default_factory=Counter)
    #: Number of agents that open tunnels, by proxy and by the chance that one of the tunnels leads to it.
    gain_chances_by_proxy: dict[str, Counter[float]] = field(default_factory=dict)

    def gains_of(self, proxy_id: str) -> CountRange:
        """Return how many tunnels agents open to a proxy: as many as the load balancer gives it in 99 % of cases."""
        chances: Mapping[float, int] = self.gain_chances_by_proxy.get(proxy_id, {})
        mean = sum(count * chance for chance, count in chances.items())
        deviation = math.sqrt(sum(count * chance * (1 - chance) for chance, count in chances.items()))
        return (
            max(self.min_gains_by_proxy[proxy_id], math.floor(mean - _DEVIATIONS * deviation)),
            min(self.max_gains_by_proxy[proxy_id], math.ceil(mean + _DEVIATIONS * deviation)),
        )


def forecast_closings(
    before: NetworkingConfig,
    after: NetworkingConfig,
    agents: Iterable[ObservedAgent],
    proxies: Sequence[ObservedProxy],
    tunnel_counts_by_proxy: Mapping[str, int],
    reaction_seconds: float = 0.0,
) -> ClosingPlan:
    """Return the expected effect of the config `after`. `tunnel_counts_by_proxy`: present numbers, by proxy id.

    `reaction_seconds`: about the time until the last agents act on a new config
    (`fleet.protocol.recovery.config_notice`).
    An agent that aims for a number other than that of `before` has a flag for it, which stays in effect.
    """
    agent_list = list(agents)
    tracked_ids = {proxy.id for proxy in proxies if proxy.is_tracked}
    certain_ids = tracked_ids - {proxy.id for proxy in proxies if proxy.is_uncertain}
    newest_ids = {proxy.id for proxy in proxies if proxy.is_newest_generation}
    draining_ids = {proxy.id for proxy in proxies if proxy.is_draining}
    policy = ClosingPolicy.of(after)
    base_scenario = _simulate_scenario(
        before, after, policy, agent_list, tracked_ids, newest_ids, draining_ids
    )
    expiry_scenario = (
        base_scenario
        if certain_ids == tracked_ids
        else _simulate_scenario(before, after, policy, agent_list, certain_ids, newest_ids, draining_ids)
    )
    return _summarize(
        after, policy, base_scenario, expiry_scenario, proxies, tunnel_counts_by_proxy, reaction_seconds
    )


def _opening_seconds_of(
    scenario: _Scenario, proxies: Iterable[ObservedProxy], reaction_seconds: float
) -> float:
    """Return about the time until the last missing tunnel is open; 0 without any."""
    agent_counts = Counter(
        (scenario.present_tunnel_counts[agent], missing_count)
        for agent, missing_count in scenario.opening_counts.items()
    )
    if not agent_counts:
        return 0.0
    proxy_count = sum(proxy.is_tracked and not proxy.is_draining for proxy in proxies)
    return reaction_seconds + max(
        dial_seconds_of(held_count, missing_count, proxy_count, agent_count)
        for (held_count, missing_count), agent_count in agent_counts.items()
    )


def _summarize(
    after: NetworkingConfig,
    policy: ClosingPolicy,
    base_scenario: _Scenario,
    expiry_scenario: _Scenario,
    proxies: Sequence[ObservedProxy],
    tunnel_counts_by_proxy: Mapping[str, int],
    reaction_seconds: float,
) -> ClosingPlan:
    scenarios = (base_scenario, expiry_scenario)
    # Unknown versions count as new, unless some agents are known to be too old.
    doubtful_closing_counts = {
        id(scenario): scenario.unknown_version_closing_count if scenario.unsupported_agent_count else 0
        for scenario in scenarios
    }

    def widest_range_of(low: Iterable[int], high: Iterable[int]) -> CountRange:
        return max(min(low), 0), max(high)

    closing_range = widest_range_of(
        (scenario.closing_count - doubtful_closing_counts[id(scenario)] for scenario in scenarios),
        (scenario.closing_count for scenario in scenarios),
    )
    opening_count, tunnels_before = (
        sum(base_scenario.opening_counts.values()),
        sum(tunnel_counts_by_proxy.values()),
    )
    return ClosingPlan(
        rule=closing_rule_of(after),
        closing_count=closing_range,
        excess_count=_range_of(
            scenario.closing_counts_by_reason[ClosingReason.EXCESS] for scenario in scenarios
        ),
        expired_count=_range_of(
            scenario.closing_counts_by_reason[ClosingReason.EXPIRED] for scenario in scenarios
        ),
        agent_count=_range_of(len(scenario.closing_tunnel_counts) for scenario in scenarios),
        in_use_count=widest_range_of(
            (scenario.min_in_use_count for scenario in scenarios),
            (scenario.max_in_use_count for scenario in scenarios),
        ),
        single_tunnel_agent_count=base_scenario.single_tunnel_agent_count,
        opening_count=opening_count,
        opening_agent_count=len(base_scenario.opening_counts),
        steps=tuple(
            ClosingStep(nth, count, earliest, latest + reaction_seconds)
            for nth, count in sorted(base_scenario.closing_counts_by_nth.items())
            for earliest, latest in [_closing_times_of(policy, nth)]
        ),
        proxies=tuple(
            _proxy_outlook_of(proxy, tunnel_counts_by_proxy.get(proxy.id, 0), base_scenario, expiry_scenario)
            for proxy in proxies
        ),
        reaction_seconds=reaction_seconds,
        opening_seconds=_opening_seconds_of(base_scenario, proxies, reaction_seconds),
        unsupported_agent_count=base_scenario.unsupported_agent_count,
        unknown_version_agent_count=base_scenario.unknown_version_agent_count,
        affected_agents=tuple(sorted({*base_scenario.closing_tunnel_counts, *base_scenario.opening_counts})),
        closing_tunnel_counts={
            **expiry_scenario.closing_tunnel_counts,
            **base_scenario.closing_tunnel_counts,
        },
        dialing_agents={
            agent: (base_scenario.present_tunnel_counts[agent], missing_count)
            for agent, missing_count in base_scenario.opening_counts.items()
            if agent not in base_scenario.closing_tunnel_counts
            and agent not in expiry_scenario.closing_tunnel_counts
        },
        tunnels_before=tunnels_before,
        tunnels_after=(
            max(tunnels_before - closing_range[1] + opening_count, 0),
            max(tunnels_before - closing_range[0] + opening_count, 0),
        ),
    )


def _closing_times_of(policy: ClosingPolicy, nth: int) -> tuple[float, float]:
    """Return the earliest and latest time of an agent's nth closing, seconds after the change.

    In RFD 226's rule each excess tunnel has a wait of its own; in upstream's the wait restarts with each closing.
    """
    return (nth * policy.threshold, nth * policy.threshold) if policy.threshold > 0 else policy.wait_bounds


def _range_of(numbers: Iterable[int]) -> CountRange:
    number_list = list(numbers)
    return min(number_list), max(number_list)


def _proxy_outlook_of(
    proxy: ObservedProxy, tunnels_before: int, base_scenario: _Scenario, expiry_scenario: _Scenario
) -> ProxyOutlook:
    min_losses = min(scenario.min_losses_by_proxy[proxy.id] for scenario in (base_scenario, expiry_scenario))
    max_losses = max(scenario.max_losses_by_proxy[proxy.id] for scenario in (base_scenario, expiry_scenario))
    opening_range = base_scenario.gains_of(proxy.id)
    tunnels_after = (
        max(tunnels_before - max_losses, 0) + opening_range[0],
        max(tunnels_before - min_losses, 0) + opening_range[1],
    )
    return ProxyOutlook(
        proxy.id, proxy.name, tunnels_before, tunnels_after, (min_losses, max_losses), opening_range
    )


def _simulate_scenario(
    before: NetworkingConfig,
    after: NetworkingConfig,
    policy: ClosingPolicy,
    agents: Iterable[ObservedAgent],
    tracked_proxies: Collection[str],
    newest_proxies: Collection[str],
    draining_proxies: Collection[str],
) -> _Scenario:
    scenario = _Scenario()
    ids = sorted(tracked_proxies)
    newest_tracked_proxies = set(tracked_proxies) & set(newest_proxies)
    for agent in agents:
        # As in the agent's tracker: a draining proxy is desired only while the agent has a tunnel to it.
        own_proxies = {tunnel.proxy_id for tunnel in agent.tunnels}
        desired_proxies = sorted(newest_tracked_proxies - (set(draining_proxies) - own_proxies))
        has_own_count = agent.desired_count != before.connection_count
        desired_count = agent.desired_count if has_own_count else after.connection_count
        snapshot = TrackerSnapshot(desired_count, (), tuple(ids), tuple(desired_proxies), 0.0, None)
        missing_count = snapshot.desired_tunnel_count - sum(
            tunnel.proxy_id in desired_proxies for tunnel in agent.tunnels
        )
        previous_snapshot = TrackerSnapshot(
            agent.desired_count, (), tuple(ids), tuple(desired_proxies), 0.0, None
        )
        if missing_count > 0 and snapshot.desired_tunnel_count > previous_snapshot.desired_tunnel_count:
            _record_openings(scenario, agent, missing_count, desired_proxies)
        if policy.is_active and len(agent.tunnels) > 1:
            _record_closings(scenario, agent, simulate_closings(policy, agent.tunnels, snapshot))
    return scenario


def _record_openings(
    scenario: _Scenario, agent: ObservedAgent, missing_count: int, desired_proxies: Collection[str]
) -> None:
    """Count the tunnels that an agent opens; the load balancer decides to which of the missing proxies.

    It leads each dial to any of them with the same chance, as in `protocol.recovery.dial_forecast`.
    """
    scenario.opening_counts[agent.id] = missing_count
    scenario.present_tunnel_counts[agent.id] = len(agent.tunnels)
    candidate_proxies = set(desired_proxies) - {tunnel.proxy_id for tunnel in agent.tunnels}
    scenario.max_gains_by_proxy.update(candidate_proxies)
    if len(candidate_proxies) <= missing_count:
        scenario.min_gains_by_proxy.update(candidate_proxies)
    for proxy in candidate_proxies:
        chance = min(missing_count / len(candidate_proxies), 1.0)
        scenario.gain_chances_by_proxy.setdefault(proxy, Counter())[chance] += 1


def simulate_closings(
    policy: ClosingPolicy, tunnels: Sequence[ObservedTunnel], snapshot: TrackerSnapshot
) -> list[tuple[ObservedTunnel, ClosingReason]]:
    """Return the tunnels that an agent would close, in order, each with the reason."""
    open_tunnels = list(tunnels)
    closed_tunnels: list[tuple[ObservedTunnel, ClosingReason]] = []
    while len(open_tunnels) > 1:
        live_tunnels = {
            candidate.proxy_id: TunnelState(
                candidate.proxy_id, candidate.opened_at, session_count=candidate.session_count or 0
            )
            for candidate in open_tunnels
        }
        if policy.threshold > 0:
            desired_count = snapshot.connection_count
            desired_tunnels = [
                tunnel for proxy, tunnel in live_tunnels.items() if proxy in snapshot.desired_proxies
            ]
            if desired_count <= 0 or len(desired_tunnels) <= desired_count:
                break
            # The slowest one closes, but Refloat does not know the round-trip times: any of them stands for it.
            closed_proxy, reason = (
                max(desired_tunnels, key=lambda candidate: candidate.opened_at).proxy,
                ClosingReason.EXCESS,
            )
        else:
            closable = closable_by_rfd(live_tunnels.values(), snapshot)
            if not closable:
                break
            closed_proxy = first_by_rfd([live_tunnels[proxy] for proxy in closable], closable).proxy
            reason = closable[closed_proxy]
        index = next(
            position for position, candidate in enumerate(open_tunnels) if candidate.proxy_id == closed_proxy
        )
        closed_tunnels.append((open_tunnels.pop(index), reason))
    return closed_tunnels


def _record_closings(
    scenario: _Scenario, agent: ObservedAgent, closed_tunnels: Sequence[tuple[ObservedTunnel, ClosingReason]]
) -> None:
    if not closed_tunnels:
        return
    if agent.can_close is False:
        scenario.unsupported_agent_count += 1
        return
    if agent.can_close is None:
        scenario.unknown_version_agent_count += 1
        scenario.unknown_version_closing_count += len(closed_tunnels)
    scenario.closing_count += len(closed_tunnels)
    scenario.closing_tunnel_counts[agent.id] = len(agent.tunnels)
    scenario.single_tunnel_agent_count += len(agent.tunnels) - len(closed_tunnels) == 1
    excess_count = 0
    are_sessions_known = all(tunnel.session_count is not None for tunnel in agent.tunnels)
    for nth, (tunnel, reason) in enumerate(closed_tunnels, 1):
        scenario.closing_counts_by_nth[nth] += 1
        scenario.closing_counts_by_reason[reason] += 1
        excess_count += reason is ClosingReason.EXCESS
        if are_sessions_known or reason is ClosingReason.EXPIRED:
            scenario.min_losses_by_proxy[tunnel.proxy_id] += 1
            scenario.max_losses_by_proxy[tunnel.proxy_id] += 1
        if tunnel.session_count is None:
            scenario.max_in_use_count += 1
        elif tunnel.session_count:
            scenario.min_in_use_count += 1
            scenario.max_in_use_count += 1
    if excess_count and not are_sessions_known:
        for tunnel in agent.tunnels:
            if (tunnel, ClosingReason.EXPIRED) not in closed_tunnels:
                scenario.max_losses_by_proxy[tunnel.proxy_id] += 1
