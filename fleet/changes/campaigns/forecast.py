"""What a campaign would do: which agents move, which it skips, and the loads of instances afterwards.

The plan of a campaign, the form to plan it and the page that takes an instance out of service show the same forecast.
docs/reference/campaigns.md, "Forecast".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleet.changes import ChangeRefusedError, NoEvidenceError
from fleet.changes.campaigns.move_strategies import (
    CampaignSnapshot,
    create_move_strategy,
    reachable_proxies_of,
)
from fleet.changes.load_forecast import InstanceLoadForecast, round_shares
from fleet.monitoring.last_tunnels import find_proxy_agents, is_responding
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.campaigns import AgentSnapshot, ConnectionKind
from fleet.vocabulary.instances import InstanceKind


@dataclass(frozen=True, slots=True)
class TargetAgents:
    """The target agents of a campaign, and the filter that selected them."""

    #: Rows of the agents in the table.
    indices: npt.NDArray[np.intp]
    #: The filter in words: "state:degraded", "agents of proxy-1".
    description: str
    #: Instance ids of the proxies or auths to leave; empty: any.
    instances_to_leave: tuple[str, ...] = ()
    #: The connection that moves.
    connection: ConnectionKind = ConnectionKind.TUNNEL
    #: They were selected so that their move makes the loads even (`spread.py`).
    is_spread: bool = False


@dataclass(frozen=True, slots=True)
class CampaignForecast:
    """What a campaign would do with its target agents."""

    target_count: int
    #: Agents that would be asked to reconnect.
    reconnect_count: int = 0
    #: Number of skipped agents by reason, most frequent first.
    skipped_by_reason: Mapping[str, int] = field(default_factory=dict)
    #: Skipped agents that have no other connection than the one to leave.
    cut_off_count: int = 0
    #: Number of agents to reconnect by the name of the instance that they leave.
    agents_by_instance: Mapping[str, int] = field(default_factory=dict)
    #: The instances that agents leave or can move to, those to leave first.
    loads: tuple[InstanceLoadForecast, ...] = ()

    @property
    def skipped_count(self) -> int:
        """The number of target agents that cannot move."""
        return self.target_count - self.reconnect_count

    @property
    def main_skip_reason(self) -> str:
        """The most frequent reason of skipped agents; empty when no agent is skipped."""
        return next(iter(self.skipped_by_reason), "")

    @property
    def only_instance_to_leave(self) -> str:
        """The name of the instance that all agents leave; empty when they leave several, or none moves."""
        return next(iter(self.agents_by_instance)) if len(self.agents_by_instance) == 1 else ""

    @property
    def destinations(self) -> dict[str, int]:
        """The present load of each instance that agents can move to, by name."""
        return {load.name: load.before for load in self.loads if not load.is_leaving}


def require_current_record(table: FleetTable) -> None:
    """Raise NoEvidenceError when the data of the fleet is not current."""
    if table.as_of is None or table.stale:
        raise NoEvidenceError("no current data: polling has stopped. Check that a poller is running")


def forecast_campaign(table: FleetTable, target_agents: TargetAgents) -> CampaignForecast:
    """Return what a campaign would do now. Raises NoEvidenceError without current data."""
    require_current_record(table)
    agent_ids = [table.ids[index] for index in target_agents.indices.tolist()]
    snapshot = CampaignSnapshot(table, set(agent_ids))
    strategy = create_move_strategy(target_agents.connection, target_agents.instances_to_leave)
    skipped_by_reason = Counter[str]()
    moves: list[tuple[AgentSnapshot, str]] = []
    cut_off_count = 0
    for agent_id in agent_ids:
        agent = snapshot.find_agent(agent_id)
        skip_reason = strategy.find_skip_reason(agent, snapshot)
        if skip_reason or agent is None:
            skipped_by_reason[skip_reason] += 1
            cut_off_count += agent is not None and _has_no_other_connection(agent, target_agents, snapshot)
        else:
            moves.append((agent, strategy.choose_instance_to_leave(agent, snapshot, agent_id)))
    leaving_counts = Counter(instance for _, instance in moves)
    return CampaignForecast(
        target_count=len(agent_ids),
        reconnect_count=len(moves),
        skipped_by_reason=dict(skipped_by_reason.most_common()),
        cut_off_count=cut_off_count,
        agents_by_instance=dict(
            sorted((snapshot.name_of(instance), count) for instance, count in leaving_counts.items())
        ),
        loads=_forecast_loads(table, target_agents, snapshot, moves, leaving_counts),
    )


def require_moves(forecast: CampaignForecast, description: str) -> None:
    """Raise ChangeRefusedError with the reason when no agent would move."""
    problem = ""
    if not forecast.target_count:
        problem = f"there are no agents {description}. Select other agents"
    elif not forecast.reconnect_count:
        problem = f"none of the target agents can reconnect: {forecast.main_skip_reason}"
    if problem:
        raise ChangeRefusedError(problem, {"target_agents": problem})


def _has_no_other_connection(
    agent: AgentSnapshot, target_agents: TargetAgents, snapshot: CampaignSnapshot
) -> bool:
    if target_agents.connection is ConnectionKind.AUTH:
        return agent.auth in target_agents.instances_to_leave
    return bool(agent.proxies) and reachable_proxies_of(agent, snapshot) <= set(
        target_agents.instances_to_leave
    )


def _forecast_loads(
    table: FleetTable,
    target_agents: TargetAgents,
    snapshot: CampaignSnapshot,
    moves: Iterable[tuple[AgentSnapshot, str]],
    leaving_counts: Mapping[str, int],
) -> tuple[InstanceLoadForecast, ...]:
    """Return the loads before and after. An agent chooses at random between the instances that it can move to."""
    kind = InstanceKind.AUTH if target_agents.connection is ConnectionKind.AUTH else InstanceKind.PROXY
    ids_to_leave = {*leaving_counts, *target_agents.instances_to_leave}
    arriving_counts = _expected_arrivals_of(kind, snapshot, moves)
    views = [view for view in table.instances.values() if view.facts.kind is kind]
    loads = [
        InstanceLoadForecast(
            view.facts.name,
            kind,
            _load_of(table, view),
            max(0, _load_of(table, view) - leaving_counts.get(view.facts.id, 0))
            + arriving_counts.get(view.facts.id, 0),
            is_leaving=view.facts.id in ids_to_leave and view.facts.id not in arriving_counts,
        )
        for view in views
        if view.facts.id in ids_to_leave or view.facts.id in arriving_counts
    ]
    return tuple(sorted(loads, key=lambda load: (not load.is_leaving, load.name)))


def _load_of(table: FleetTable, view: InstanceView) -> int:
    """Return the present load; of a proxy that does not respond, without agents that have connected elsewhere."""
    if view.facts.kind is InstanceKind.AUTH or is_responding(view):
        return view.agent_count
    return len(find_proxy_agents(table, view).remaining_agents)


def _expected_arrivals_of(
    kind: InstanceKind, snapshot: CampaignSnapshot, moves: Iterable[tuple[AgentSnapshot, str]]
) -> dict[str, int]:
    """Return the expected number of agents that move to each instance, in whole agents that add up."""
    instances = snapshot.auths if kind is InstanceKind.AUTH else snapshot.proxies
    usable_ids = frozenset(instance for instance, state in instances.items() if state.is_usable)
    # Agents with the same choice are counted together.
    counts_by_choice = Counter(
        usable_ids - ({instance_to_leave} if kind is InstanceKind.AUTH else agent.proxies)
        for agent, instance_to_leave in moves
    )
    shares: dict[str, float] = {}
    for choice, count in counts_by_choice.items():
        for instance in choice:
            shares[instance] = shares.get(instance, 0.0) + count / len(choice)
    return round_shares(shares)
