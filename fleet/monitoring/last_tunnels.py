"""Agents of a proxy that does not respond: those that may still be on it, and those that have left. Pure.

The record keeps the last known tunnels of such a proxy: they say nothing about where its agents are now.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.counts import format_agent_count
from fleet.vocabulary.instances import RESPONSIVE_STATES, SICK_STATES, InstanceKind, InstanceState

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class ProxyAgents:
    """Rows of the agents that had a tunnel with a proxy in its newest list of tunnels."""

    #: Agents that have it now; of a proxy that does not respond: those without a tunnel to a proxy that responds.
    remaining_agents: Indices
    #: Agents that have a tunnel to a proxy that responds and does not fail; none while the proxy itself responds.
    moved_agents: Indices


def is_responding(view: InstanceView) -> bool:
    """Return whether an instance responds, so that its tunnels are current and requests reach it."""
    if view.state is InstanceState.EXPIRED:
        # An instance that expired long ago is no longer polled.
        return all(attempt.ok for attempt in view.facts.attempts[:1])
    return view.state in RESPONSIVE_STATES


def find_proxy_agents(table: FleetTable, proxy: InstanceView) -> ProxyAgents:
    """Return the agents of a proxy, apart from those that have connected elsewhere since it stopped responding."""
    agents = np.unique(table.tunnel_agents[table.tunnel_proxies == proxy.facts.index]).astype(np.intp)
    if is_responding(proxy):
        return ProxyAgents(agents, agents[:0])
    live_proxies = {
        index: view
        for index, view in table.instances.items()
        if view.facts.kind is InstanceKind.PROXY and is_responding(view)
    }
    # A proxy that fails as well holds its agents, but they have not found a way out yet.
    usable_indices = [index for index, view in live_proxies.items() if view.state not in SICK_STATES]

    def have_tunnel(indices: Collection[int]) -> npt.NDArray[np.bool_]:
        """Return which of the agents have a tunnel to one of the proxies."""
        return np.isin(agents, table.tunnel_agents[np.isin(table.tunnel_proxies, list(indices))])

    return ProxyAgents(agents[~have_tunnel(live_proxies)], agents[have_tunnel(usable_indices)])


def describe_unreachable_agents(name: str, remaining_count: int = 0, moved_count: int = 0) -> str:
    """Return why Refloat cannot move the agents of a proxy that does not respond, as sentences."""
    moved_text = f"{format_agent_count(moved_count)} that had a tunnel with {name}"
    elsewhere_text = f"{moved_text} {'has' if moved_count == 1 else 'have'} already connected elsewhere."
    if moved_count and not remaining_count:
        return f"No agents are left to move: {elsewhere_text}"
    count_text = f" ({remaining_count:,} when last known)" if remaining_count else ""
    text = f"Refloat cannot reach the agents of {name}{count_text}, so it cannot move them."
    return f"{text} {elsewhere_text}" if moved_count else text
