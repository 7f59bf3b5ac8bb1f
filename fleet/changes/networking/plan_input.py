"""The agents, tunnels and proxies from which a networking config change is planned. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import numpy as np

from fleet.changes.networking.closing_plan import ObservedAgent, ObservedProxy, ObservedTunnel
from fleet.changes.networking.plan import FleetSnapshot
from fleet.changes.plan_input import newest_generations_of, require_evidence
from fleet.monitoring.agent_report import AgentReport, AgentReportResponse
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.protocol.recovery import config_notice
from fleet.vocabulary.instances import LOST_STATES, InstanceKind, InstanceState
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import State

#: First version of agents that supports the fields which close tunnels.
_MIN_CLOSING_VERSION = (0, 1)


def fleet_snapshot_of(
    table: FleetTable, responses: Mapping[int, AgentReportResponse], now: float
) -> FleetSnapshot:
    """Return the fleet data for a plan. `now`: seconds since the epoch. Raises NoEvidenceError."""
    require_evidence(table)
    assert table.as_of is not None, "a table without a round is refused as blind"
    instance_ids = {index: view.facts.id for index, view in table.instances.items()}
    retired_mask = table.verdicts["state"] == State.RETIRED
    tunnel_counts = np.bincount(table.tunnel_agents, minlength=len(table.ids))
    order = np.argsort(table.tunnel_agents, kind="stable")
    sorted_agents, sorted_proxies = table.tunnel_agents[order], table.tunnel_proxies[order]
    starts = np.searchsorted(sorted_agents, np.arange(len(table.ids)))
    observed_agents = []
    for index in np.flatnonzero((tunnel_counts > 0) & ~retired_mask).tolist():
        start = int(starts[index])
        proxies = sorted_proxies[start : start + int(tunnel_counts[index])].tolist()
        response = responses.get(index)
        report = response.report if response is not None else None
        observed_agents.append(
            ObservedAgent(
                id=table.ids[index],
                desired_count=int(table.heartbeats["desired_count"][index]),
                tunnels=tuple(
                    _observed_tunnel_of(
                        instance_ids[proxy], response.requested_at if response else 0.0, report
                    )
                    for proxy in proxies
                    if proxy in instance_ids
                ),
                can_close=can_close_tunnels(report),
            )
        )
    counts_by_proxy = np.bincount(table.tunnel_proxies, minlength=max(instance_ids, default=0) + 1)
    views = [view for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY]
    generations = newest_generations_of(views)
    return FleetSnapshot(
        agents=tuple(observed_agents),
        proxies=tuple(
            _observed_proxy_of(view, generations)
            for view in sorted(views, key=lambda view: natural_sort_key(view.facts.name))
        ),
        tunnel_counts_by_proxy={
            instance_id: int(counts_by_proxy[index]) for index, instance_id in instance_ids.items()
        },
        agent_count=int(len(table.ids) - retired_mask.sum()),
        as_of=table.as_of,
        age_seconds=max(now - table.as_of, 0.0),
        reaction_seconds=max(
            (
                config_notice.reaction_seconds_of(
                    view.facts.ttl,
                    int(counts_by_proxy[view.facts.index]),
                    len(views),
                    min((len(agent.tunnels) for agent in observed_agents), default=1),
                )
                for view in views
            ),
            default=0.0,
        ),
    )


def tunnel_counts_of(table: FleetTable, agents: Collection[str]) -> dict[str, int]:
    """Return the present number of tunnels of some agents, by id; without agents that are no longer in the fleet."""
    tunnel_counts = np.bincount(table.tunnel_agents, minlength=len(table.ids))
    return {
        agent_id: int(tunnel_counts[index]) for index, agent_id in enumerate(table.ids) if agent_id in agents
    }


def _observed_tunnel_of(proxy_id: str, reported_at: float, report: AgentReport | None) -> ObservedTunnel:
    tunnel_report = (
        next((tunnel for tunnel in report.tunnels if tunnel.proxy_id == proxy_id), None) if report else None
    )
    if tunnel_report is None:
        return ObservedTunnel(proxy_id)
    return ObservedTunnel(proxy_id, tunnel_report.sessions, reported_at - tunnel_report.open_for_ms / 1000)


def can_close_tunnels(report: AgentReport | None) -> bool | None:
    match = re.match(r"v?(\d+)\.(\d+)", report.version) if report else None
    return (int(match[1]), int(match[2])) >= _MIN_CLOSING_VERSION if match else None


def _observed_proxy_of(view: InstanceView, generations: Mapping[str, int]) -> ObservedProxy:
    facts = view.facts
    return ObservedProxy(
        id=facts.id,
        name=facts.name,
        is_tracked=view.state not in LOST_STATES,
        is_newest_generation=facts.generation == generations.get(facts.group),
        is_uncertain=view.state not in LOST_STATES and view.state is not InstanceState.OK,
        is_draining=view.drain_request is not None,
    )
