"""Numbers of agents by state, instance, mode, version and label, over whole columns: for suggestions and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dashboards.fleet.agent_masks import Mask
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.failure_impact import find_only_tunnels
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State

#: Number of instance indices in a u2 column.
_INDEX_COUNT = 1 << 16


@dataclass(frozen=True, slots=True)
class Memberships:
    """Which agents are in which groups; an agent may be in several groups. Parallel arrays, without duplicates."""

    agents: npt.NDArray[np.intp]
    groups: npt.NDArray[np.intp]

    def count(self, mask: Mask, group_count: int) -> npt.NDArray[np.intp]:
        """Return the number of agents of the mask in each group."""
        return np.bincount(self.groups[mask[self.agents]], minlength=group_count)

    def count_by_state(
        self, mask: Mask, states: npt.NDArray[np.uint8], group_count: int
    ) -> npt.NDArray[np.intp]:
        """Return the number of agents of the mask by group and state."""
        is_counted = mask[self.agents]
        cells = self.groups[is_counted] * len(State) + states[self.agents[is_counted]]
        return np.bincount(cells, minlength=group_count * len(State)).reshape(group_count, len(State))


#: By cluster: the table that was counted last, and its memberships by proxy. A table is one object per round.
_proxies_by_cluster: dict[str, tuple[FleetTable, Memberships]] = {}


def proxies_of_agents(table: FleetTable) -> Memberships:
    """Return the proxies of each agent as the filter `proxy:` has them: with a tunnel, or else those seen last.

    Groups are indices of instances; NO_INSTANCE: no proxy is known.
    """
    entry = _proxies_by_cluster.get(table.cluster)
    if entry is not None and entry[0] is table:
        return entry[1]
    has_no_tunnel = np.ones(len(table.ids), np.bool_)
    has_no_tunnel[table.tunnel_agents] = False
    last_agents, columns = np.nonzero(
        has_no_tunnel[:, np.newaxis] & (table.memory["last_proxies"] != NO_INSTANCE)
    )
    unplaced_agents = np.flatnonzero(table.places["proxy"] == NO_INSTANCE)
    pairs = np.unique(
        np.concatenate(
            [
                _pair(table.tunnel_agents, table.tunnel_proxies),
                _pair(last_agents, table.memory["last_proxies"][last_agents, columns]),
                _pair(unplaced_agents, np.full(len(unplaced_agents), NO_INSTANCE)),
            ]
        )
    )
    memberships = Memberships(pairs // _INDEX_COUNT, pairs % _INDEX_COUNT)
    _proxies_by_cluster[table.cluster] = (table, memberships)
    return memberships


def only_proxies_of_agents(table: FleetTable) -> Memberships:
    """Return the proxies of each agent's only tunnel as the filter `only-proxy:` has them."""
    pairs = np.unique(_pair(*find_only_tunnels(table)))
    return Memberships(pairs // _INDEX_COUNT, pairs % _INDEX_COUNT)


def auths_of_agents(table: FleetTable) -> Memberships:
    """Return the auth of each agent as the filter `auth:` has them; NO_INSTANCE: none is known."""
    agents = np.arange(len(table.ids), dtype=np.intp)
    last_auths = table.memory["last_auth"].astype(np.intp)
    is_known = last_auths != NO_INSTANCE
    unplaced_agents = np.flatnonzero(table.places["auth"] == NO_INSTANCE)
    return Memberships(
        np.concatenate([agents[is_known], unplaced_agents]),
        np.concatenate([last_auths[is_known], np.full(len(unplaced_agents), NO_INSTANCE, np.intp)]),
    )


def each_in_one(numbers: npt.NDArray[Any]) -> Memberships:
    """Return memberships of agents that are in one group each; `numbers`: of the groups, by agent index."""
    return Memberships(np.arange(len(numbers), dtype=np.intp), numbers.astype(np.intp))


def _pair(agents: npt.NDArray[np.integer], proxies: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    return agents.astype(np.int64) * _INDEX_COUNT + proxies.astype(np.int64)
