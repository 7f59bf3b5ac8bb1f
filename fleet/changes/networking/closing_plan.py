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

Range = tuple[int, int]


class Rule(StrEnum):
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


def rule_of(config: NetworkingConfig) -> Rule:
    """The rule that a config puts in force; a threshold wins, as agents have it."""
    if config.tunnel_disconnect_threshold > 0:
        return Rule.UPSTREAM
    return Rule.RFD if config.graceful_tunnel_closing else Rule.NONE


@dataclass(frozen=True, slots=True)
class SeenTunnel:
    """A tunnel of an agent as a proxy reports it, and what the agent said of it."""

    proxy: str
    #: User connections on it; None when the agent was not asked lately.
    sessions: int | None = None
    opened_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SeenAgent:
    """An agent with the tunnels it holds."""

    id: str
    #: How many it says it wants; 0: one to every proxy.
    desired: int
    tunnels: tuple[SeenTunnel, ...]
    #: Whether its version knows how to close; None when its version was not said.
    knows: bool | None = None


@dataclass(frozen=True, slots=True)
class SeenProxy:
    """A proxy, as agents must see it by now."""

    id: str
    name: str
    #: Unexpired, so that agents track it.
    tracked: bool = True
    #: Of its group's newest generation.
    newest: bool = True
    #: Silent or unhealthy: it may expire while agents wait, or not.
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class Step:
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
    after: Range
    #: Tunnels to it that close, and that agents dial.
    closes: Range
    dials: Range


@dataclass(frozen=True, slots=True)
class ClosingPlan:
    """What is foreseen. A range has equal ends where there is no doubt."""

    rule: Rule
    closes: Range
    #: Of those, by reason.
    excess: Range
    expired: Range
    #: Agents that close at least one.
    agents: Range
    #: Closing tunnels that carry user connections: they end with their last one.
    carrying: Range
    #: Agents that will hold exactly one tunnel because of it.
    left_with_one: int
    #: Tunnels that agents will dial, for more are wanted.
    opens: int
    steps: tuple[Step, ...]
    proxies: tuple[ProxyOutlook, ...]
    #: Agents that would close tunnels, but whose version does not know how; and those of which no version was said.
    too_old: int
    version_unknown: int
    #: Who is touched: the agents that close or dial.
    touched: tuple[str, ...] = field(repr=False, default=())
    #: Tunnels of those that close, now.
    watched: Mapping[str, int] = field(repr=False, default_factory=dict)
    #: By agent that dials and closes nothing: how many tunnels it has now, and how many it dials.
    dialling: Mapping[str, Range] = field(repr=False, default_factory=dict)
    #: All tunnels now, and in the end.
    tunnels: int = 0
    tunnels_after: Range = (0, 0)


@dataclass(slots=True)
class _World:
    """The future under one assumption about proxies of which we are not sure."""

    closes: int = 0
    by_reason: Counter[ClosingReason] = field(default_factory=Counter)
    sure: int = 0
    carrying_low: int = 0
    carrying_high: int = 0
    left_with_one: int = 0
    nth: Counter[int] = field(default_factory=Counter)
    lost_low: Counter[str] = field(default_factory=Counter)
    lost_high: Counter[str] = field(default_factory=Counter)
    too_old: int = 0
    unknown: int = 0
    unknown_closes: int = 0
    watched: dict[str, int] = field(default_factory=dict)
    opening: dict[str, int] = field(default_factory=dict)
    has: dict[str, int] = field(default_factory=dict)
    gained_low: Counter[str] = field(default_factory=Counter)
    gained_high: Counter[str] = field(default_factory=Counter)


def foresee(
    before: NetworkingConfig,
    after: NetworkingConfig,
    agents: Iterable[SeenAgent],
    proxies: Sequence[SeenProxy],
    held: Mapping[str, int],
) -> ClosingPlan:
    """Foresee what `after` does to agents; `held` is how many tunnels each proxy, by id, has now.

    An agent that wants another number than `before` says was told so by its own flag, and goes on wanting that.
    """
    seen = list(agents)
    certain = {proxy.id for proxy in proxies if proxy.tracked}
    without = certain - {proxy.id for proxy in proxies if proxy.unsure}
    newest = {proxy.id for proxy in proxies if proxy.newest}
    policy = ClosingPolicy.of(after)
    likely = _world(before, after, policy, seen, certain, newest)
    other = likely if without == certain else _world(before, after, policy, seen, without, newest)
    return _summed(after, policy, likely, other, proxies, held)


def _summed(
    after: NetworkingConfig,
    policy: ClosingPolicy,
    likely: _World,
    other: _World,
    proxies: Sequence[SeenProxy],
    held: Mapping[str, int],
) -> ClosingPlan:
    worlds = (likely, other)
    # Versions nobody said are taken for new ones, unless some are known to be old.
    doubted = {id(world): world.unknown_closes if world.too_old else 0 for world in worlds}

    def spread(low: Iterable[int], high: Iterable[int]) -> Range:
        return max(min(low), 0), max(high)

    closes = spread((w.closes - doubted[id(w)] for w in worlds), (w.closes for w in worlds))
    opens, tunnels = sum(likely.opening.values()), sum(held.values())
    return ClosingPlan(
        rule=rule_of(after),
        closes=closes,
        excess=_both(w.by_reason[ClosingReason.EXCESS] for w in worlds),
        expired=_both(w.by_reason[ClosingReason.EXPIRED] for w in worlds),
        agents=_both(len(w.watched) for w in worlds),
        carrying=spread((w.carrying_low for w in worlds), (w.carrying_high for w in worlds)),
        left_with_one=likely.left_with_one,
        opens=opens,
        steps=tuple(
            Step(nth, count, *_closing_times(policy, nth)) for nth, count in sorted(likely.nth.items())
        ),
        proxies=tuple(_outlook(proxy, held.get(proxy.id, 0), likely, other) for proxy in proxies),
        too_old=likely.too_old,
        version_unknown=likely.unknown,
        touched=tuple(sorted({*likely.watched, *likely.opening})),
        watched={**other.watched, **likely.watched},
        dialling={
            agent: (likely.has[agent], missing)
            for agent, missing in likely.opening.items()
            if agent not in likely.watched and agent not in other.watched
        },
        tunnels=tunnels,
        tunnels_after=(max(tunnels - closes[1] + opens, 0), max(tunnels - closes[0] + opens, 0)),
    )


def _closing_times(policy: ClosingPolicy, nth: int) -> tuple[float, float]:
    """Return when an agent's nth closing comes at the earliest and at the latest, seconds after the change.

    By the RFD's rule each surplus tunnel has a wait of its own; by upstream's the wait begins anew with each closing.
    """
    return (nth * policy.threshold, nth * policy.threshold) if policy.threshold > 0 else policy.wait


def _both(values: Iterable[int]) -> Range:
    found = list(values)
    return min(found), max(found)


def _outlook(proxy: SeenProxy, before: int, likely: _World, other: _World) -> ProxyOutlook:
    least = min(world.lost_low[proxy.id] for world in (likely, other))
    most = max(world.lost_high[proxy.id] for world in (likely, other))
    dials = likely.gained_low[proxy.id], likely.gained_high[proxy.id]
    after = max(before - most, 0) + dials[0], max(before - least, 0) + dials[1]
    return ProxyOutlook(proxy.id, proxy.name, before, after, (least, most), dials)


def _world(
    before: NetworkingConfig,
    after: NetworkingConfig,
    policy: ClosingPolicy,
    agents: Iterable[SeenAgent],
    tracked: Collection[str],
    newest: Collection[str],
) -> _World:
    world = _World()
    ids = sorted(tracked)
    desired = sorted(set(tracked) & set(newest))
    for agent in agents:
        own_flag = agent.desired != before.connection_count
        wanted = agent.desired if own_flag else after.connection_count
        snapshot = TrackerSnapshot(wanted, (), tuple(ids), tuple(desired), 0.0, None)
        missing = snapshot.desired_tunnel_count - sum(tunnel.proxy in desired for tunnel in agent.tunnels)
        was = TrackerSnapshot(agent.desired, (), tuple(ids), tuple(desired), 0.0, None)
        if missing > 0 and snapshot.desired_tunnel_count > was.desired_tunnel_count:
            _dial(world, agent, missing, desired)
        if policy.active and len(agent.tunnels) > 1:
            _add(world, agent, closings(policy, agent.tunnels, snapshot))
    return world


def _dial(world: _World, agent: SeenAgent, missing: int, desired: Collection[str]) -> None:
    """Take note of the tunnels an agent dials; the load balancer decides to which of the proxies that it lacks."""
    world.opening[agent.id] = missing
    world.has[agent.id] = len(agent.tunnels)
    lacking = set(desired) - {tunnel.proxy for tunnel in agent.tunnels}
    world.gained_high.update(lacking)
    if len(lacking) <= missing:
        world.gained_low.update(lacking)


def closings(
    policy: ClosingPolicy, tunnels: Sequence[SeenTunnel], snapshot: TrackerSnapshot
) -> list[tuple[SeenTunnel, ClosingReason]]:
    """The tunnels an agent would let go one after the other, the first one first."""
    left = list(tunnels)
    gone: list[tuple[SeenTunnel, ClosingReason]] = []
    while len(left) > 1:
        live = {one.proxy: LiveTunnel(one.proxy, one.opened_at, sessions=one.sessions or 0) for one in left}
        if policy.threshold > 0:
            wanted = snapshot.connection_count
            desired = [tunnel for proxy, tunnel in live.items() if proxy in snapshot.desired_proxies]
            if wanted <= 0 or len(desired) <= wanted:
                break
            # The slowest goes, and nobody told us their times: any of them stands for it.
            chosen, reason = max(desired, key=lambda one: one.opened_at).proxy, ClosingReason.EXCESS
        else:
            closable = closable_by_rfd(live.values(), snapshot)
            if not closable:
                break
            chosen = first_by_rfd([live[proxy] for proxy in closable], closable).proxy
            reason = closable[chosen]
        at = next(number for number, one in enumerate(left) if one.proxy == chosen)
        gone.append((left.pop(at), reason))
    return gone


def _add(world: _World, agent: SeenAgent, gone: Sequence[tuple[SeenTunnel, ClosingReason]]) -> None:
    if not gone:
        return
    if agent.knows is False:
        world.too_old += 1
        return
    if agent.knows is None:
        world.unknown += 1
        world.unknown_closes += len(gone)
    world.closes += len(gone)
    world.watched[agent.id] = len(agent.tunnels)
    world.left_with_one += len(agent.tunnels) - len(gone) == 1
    excess = 0
    told = all(tunnel.sessions is not None for tunnel in agent.tunnels)
    for nth, (tunnel, reason) in enumerate(gone, 1):
        world.nth[nth] += 1
        world.by_reason[reason] += 1
        excess += reason is ClosingReason.EXCESS
        if told or reason is ClosingReason.EXPIRED:
            world.lost_low[tunnel.proxy] += 1
            world.lost_high[tunnel.proxy] += 1
        if tunnel.sessions is None:
            world.carrying_high += 1
        elif tunnel.sessions:
            world.carrying_low += 1
            world.carrying_high += 1
    if excess and not told:
        for tunnel in agent.tunnels:
            if (tunnel, ClosingReason.EXPIRED) not in gone:
                world.lost_high[tunnel.proxy] += 1
