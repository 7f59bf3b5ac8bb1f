"""What agents lose if one auth or proxy fails now. Pure. docs/reference/instance.md, "If the instance fails".

Each function is one pass over the columns of a table, whatever the number of agents.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import HEALTH_CHECK, NO_INSTANCE
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.last_tunnels import is_responding
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.verdicts import State

Mask = npt.NDArray[np.bool_]

#: States of agents that are connected to their auth: their resource has not expired, and they have a tunnel.
CONNECTED_STATES = (State.HEALTHY, State.DEGRADED, State.AT_RISK, State.EXCESS, State.WORKING)


@dataclass(frozen=True, slots=True)
class AuthFailureImpact:
    """What happens to the agents of an auth that becomes unhealthy and keeps its connections."""

    #: Agents in the states of the forecast.
    agent_count: int
    #: Those that move to another auth automatically: mode `reconnect` with a health check.
    automatic_count: int
    #: Those that stay until the auth closes their connections: another mode, or no health check.
    waiting_count: int
    #: Another auth is OK, so that an agent can move.
    has_other_auth: bool

    @property
    def unreported_count(self) -> int:
        """The number of agents that have not reported a reconnect mode."""
        return self.agent_count - self.automatic_count - self.waiting_count


def mask_only_tunnels(table: FleetTable, proxies: Collection[int]) -> Mask:
    """Return the mask of agents that lose their only tunnel if one of these proxies fails, by instance index."""
    agents, _ = find_only_tunnels(table, proxies)
    mask: Mask = np.zeros(len(table.ids), dtype=np.bool_)
    mask[agents] = True
    return mask


def find_only_tunnels(
    table: FleetTable, proxies: Collection[int] | None = None
) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    """Return the agents that lose their only tunnel if its proxy fails, and that proxy: parallel arrays of indices.

    They have a tunnel with that proxy, and none with another proxy that responds. Of a proxy that does not respond,
    its last known tunnels count. Retired agents do not count. An agent with two tunnels with the same proxy is there
    twice. `proxies`: only tunnels with these; None: with any.
    """
    agents, tunnel_proxies = table.tunnel_agents, table.tunnel_proxies
    is_live = np.isin(
        tunnel_proxies,
        [
            index
            for index, view in table.instances.items()
            if view.facts.kind is InstanceKind.PROXY and is_responding(view)
        ],
    )
    live_agents, live_proxies = agents[is_live], tunnel_proxies[is_live]
    # One proxy of each agent, and whether the agent has another one: without sorting, which took 150 ms for 170,000
    # tunnels. An agent may have two tunnels with the same proxy.
    any_proxy = np.full(len(table.ids), NO_INSTANCE, np.uint16)
    any_proxy[live_agents] = live_proxies
    has_others: Mask = np.zeros(len(table.ids), dtype=np.bool_)
    has_others[live_agents[any_proxy[live_agents] != live_proxies]] = True
    if proxies is not None:
        is_target = np.isin(tunnel_proxies, list(proxies))
        agents, tunnel_proxies = agents[is_target], tunnel_proxies[is_target]
    is_only = (any_proxy[agents] == tunnel_proxies) | (any_proxy[agents] == NO_INSTANCE)
    is_only &= ~has_others[agents] & (table.verdicts["state"][agents] != State.RETIRED)
    return agents[is_only], tunnel_proxies[is_only]


def predict_auth_failure(
    table: FleetTable, auth: InstanceView, states: Collection[State] = CONNECTED_STATES
) -> AuthFailureImpact:
    """Return what happens to the agents of an auth in these states.

    The rules are those of `classify.recovery.from_auth`.
    """
    is_agent = np.isin(table.verdicts["state"], list(states)) & (
        table.memory["last_auth"] == auth.facts.index
    )
    modes = table.heartbeats["mode"][is_agent]
    has_health_check = (table.heartbeats["flags"][is_agent] & HEALTH_CHECK) != 0
    is_automatic = (modes == ReconnectMode.RECONNECT) & has_health_check
    is_reported = modes != ReconnectMode.UNKNOWN
    return AuthFailureImpact(
        agent_count=int(np.count_nonzero(is_agent)),
        automatic_count=int(np.count_nonzero(is_automatic)),
        waiting_count=int(np.count_nonzero(is_reported & ~is_automatic)),
        has_other_auth=has_other_ok_instance(table, auth),
    )


def has_other_ok_instance(table: FleetTable, view: InstanceView) -> bool:
    """Return whether another instance of the same kind is OK and does not drain."""
    return any(
        other_view.facts.kind is view.facts.kind
        and other_view.facts.index != view.facts.index
        and other_view.state is InstanceState.OK
        and other_view.drain_request is None
        for other_view in table.instances.values()
    )
