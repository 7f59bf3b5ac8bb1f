"""Two moments of a fleet compared: agents and instances that differ. Pure, over whole columns.

Agents have the same index in both tables, because both have the epoch of the present.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import NO_INSTANCE, PLACE_PROXY_COUNT
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import STATES_BY_URGENCY, State

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

#: State of an agent that was not recorded yet.
ABSENT = len(State)
#: 256 tunnels of an agent are summed without rounding.
_HASH_BITS = 44
#: Most rows of the tables of transitions and of moves: the largest ones.
_MAX_FLOWS = 10


class DifferenceKind(StrEnum):
    """What may differ of an agent."""

    STATE = "state"
    TUNNELS = "tunnels"
    AUTH = "auth"


@dataclass(frozen=True, slots=True)
class StateCount:
    """Number of agents in a state."""

    state: State
    before: int
    after: int

    @property
    def difference(self) -> int:
        """Return how many agents more are in the state at the second moment."""
        return self.after - self.before

    @property
    def decrease(self) -> int:
        """Return how many agents fewer are in the state at the second moment."""
        return -self.difference


@dataclass(frozen=True, slots=True)
class Flow:
    """Agents that changed from one value to another."""

    before: str
    after: str
    count: int


@dataclass(frozen=True, slots=True)
class InstanceDifference:
    """An instance whose state, destination health or drain differs; None: not known at that moment."""

    name: str
    kind: InstanceKind
    before: InstanceView | None
    after: InstanceView | None


@dataclass(frozen=True, slots=True)
class AgentPlaces:
    """State and places of one agent at one moment."""

    #: None: the agent was not recorded yet.
    state: State | None
    #: Names; `auth` is empty without one.
    auth: str
    #: Proxies with a tunnel.
    proxies: tuple[str, ...]
    #: Tunnels to proxies that are not in `proxies`.
    more_tunnel_count: int


#: What is known of an agent that was not recorded yet.
_ABSENT_PLACES = AgentPlaces(None, "", (), 0)


@dataclass(frozen=True, slots=True)
class AgentDifference:
    """One agent that differs."""

    id: str
    name: str
    before: AgentPlaces
    after: AgentPlaces


class Comparison:
    """The differences between two tables of one epoch."""

    def __init__(self, before: FleetTable, after: FleetTable) -> None:
        self.before, self.after = before, after
        # An agent that is in one table only is in the longer table.
        self._names = max(before.names, after.names, key=len)
        self._ids = max(before.ids, after.ids, key=len)
        size = len(self._ids)
        self._states = _states_of(before, size), _states_of(after, size)
        is_in_both = (self._states[0] != ABSENT) & (self._states[1] != ABSENT)
        self._masks = {
            DifferenceKind.STATE: self._states[0] != self._states[1],
            DifferenceKind.TUNNELS: is_in_both & _differ_in_tunnels(before, after, size),
            DifferenceKind.AUTH: is_in_both & _differ_in_auth(before, after, size),
        }

    def count_states(self) -> list[StateCount]:
        """Return the number of agents in every state, in reading order."""
        before, after = (np.bincount(states, minlength=ABSENT + 1) for states in self._states)
        return [StateCount(state, int(before[state]), int(after[state])) for state in STATES_BY_URGENCY]

    def count(self, kind: DifferenceKind | None = None) -> int:
        """Return how many agents differ: in anything, or in one kind."""
        return int(np.count_nonzero(self._mask(kind)))

    def select(self, kind: DifferenceKind | None = None) -> Numbers:
        """Return the indices of the agents that differ, the most urgent states of the second moment first."""
        indices = np.flatnonzero(self._mask(kind))
        ranks = np.zeros(ABSENT + 1, np.int64)
        ranks[[int(state) for state in STATES_BY_URGENCY]] = np.arange(len(STATES_BY_URGENCY))
        ranks[ABSENT] = len(STATES_BY_URGENCY)
        before, after = (ranks[states[indices]] for states in self._states)
        is_state_equal = before == after
        selected: Numbers = indices[np.lexsort((indices, before, after, is_state_equal))]
        return selected

    def describe_agents(self, indices: Numbers) -> list[AgentDifference]:
        """Return agents by index."""
        before, after = (_places_at(table, indices) for table in (self.before, self.after))
        return [
            AgentDifference(self._ids[index], self._names[index], old, new)
            for index, old, new in zip(indices.tolist(), before, after, strict=True)
        ]

    def list_state_flows(self) -> list[Flow]:
        """Return the most frequent changes of state, by slug; an agent that was not recorded yet has none: empty."""
        mask = self._masks[DifferenceKind.STATE]
        slugs = [*(State(number).slug for number in range(ABSENT)), ""]
        return _list_flows(self._states[0][mask], self._states[1][mask], lambda number: slugs[number])

    def list_proxy_flows(self) -> list[Flow]:
        """Return the most frequent moves between current proxies, of agents with a tunnel at both moments."""
        size = min(len(self.before.ids), len(self.after.ids))
        before, after = self.before.places[:size], self.after.places[:size]
        mask = (
            (before["proxy"] != after["proxy"]) & (before["tunnel_count"] > 0) & (after["tunnel_count"] > 0)
        )
        return _list_flows(before["proxy"][mask], after["proxy"][mask], self._name_of)

    def list_auth_flows(self) -> list[Flow]:
        """Return the most frequent moves between auths; empty for an agent without an auth."""
        size = min(len(self.before.ids), len(self.after.ids))
        mask = self._masks[DifferenceKind.AUTH][:size]
        return _list_flows(
            self.before.places["auth"][:size][mask], self.after.places["auth"][:size][mask], self._name_of
        )

    def compare_instances(self) -> list[InstanceDifference]:
        """Return the instances that differ, auths first, in natural order of their names."""
        differences = []
        for index in {*self.before.instances, *self.after.instances}:
            before, after = self.before.instances.get(index), self.after.instances.get(index)
            view = after or before
            if view is not None and _look_of(before) != _look_of(after):
                differences.append(InstanceDifference(view.facts.name, view.facts.kind, before, after))
        return sorted(differences, key=lambda row: (row.kind.value, natural_sort_key(row.name)))

    def _mask(self, kind: DifferenceKind | None) -> Mask:
        if kind is not None:
            kind_mask: Mask = self._masks[kind]
            return kind_mask
        state_mask, tunnel_mask, auth_mask = self._masks.values()
        mask: Mask = state_mask | tunnel_mask | auth_mask
        return mask

    def _name_of(self, index: int) -> str:
        view = self.after.instances.get(index) or self.before.instances.get(index)
        return "" if view is None else view.facts.name


def _states_of(table: FleetTable, size: int) -> Numbers:
    states = np.full(size, ABSENT, np.int64)
    states[: len(table.ids)] = table.verdicts["state"]
    return states


def _differ_in_tunnels(before: FleetTable, after: FleetTable, size: int) -> Mask:
    """Return which agents have tunnels to other proxies, or more or fewer of them."""
    mask = np.zeros(size, np.bool_)
    common = min(len(before.ids), len(after.ids))
    old, new = before.places[:common], after.places[:common]
    mask[:common] = old["tunnel_count"] != new["tunnel_count"]
    # Of more tunnels, which proxies a place names depends on the order in which they were reported.
    is_complete = old["tunnel_count"] <= PLACE_PROXY_COUNT
    differs = np.any(old["proxies"] != new["proxies"], axis=1)
    if not is_complete.all():
        differs = np.where(
            is_complete, differs, _hash_tunnels(before, common) != _hash_tunnels(after, common)
        )
    mask[:common] |= differs
    return mask


def _hash_tunnels(table: FleetTable, agent_count: int) -> npt.NDArray[np.float64]:
    """Return a number for the set of proxies of each agent, whatever their order; other sets have another number."""
    # SplitMix64, cut to as many bits as sums of floats keep exactly.
    hashes = (np.arange(NO_INSTANCE + 1, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    weights = (hashes >> np.uint64(64 - _HASH_BITS)).astype(np.float64)
    sums: npt.NDArray[np.float64] = np.bincount(
        table.tunnel_agents, weights[table.tunnel_proxies], len(table.ids)
    ).astype(np.float64)
    return sums[:agent_count]


def _differ_in_auth(before: FleetTable, after: FleetTable, size: int) -> Mask:
    mask = np.zeros(size, np.bool_)
    common = min(len(before.ids), len(after.ids))
    mask[:common] = before.places["auth"][:common] != after.places["auth"][:common]
    return mask


def _places_at(table: FleetTable, indices: Numbers) -> Iterator[AgentPlaces]:
    """Yield the state and the places of agents."""
    names = {index: view.facts.name for index, view in table.instances.items()}

    # Thousands of agents have tunnels to the same few proxies.
    @functools.cache
    def sort_names(proxies: tuple[int, ...]) -> tuple[str, ...]:
        known_names = (names.get(proxy, "") for proxy in proxies if proxy != NO_INSTANCE)
        return tuple(sorted(known_names, key=natural_sort_key))

    is_recorded = indices < len(table.ids)
    rows = np.where(is_recorded, indices, 0)
    if not len(table.ids):
        yield from (_ABSENT_PLACES for _ in rows)
        return
    states, places = table.verdicts["state"][rows].tolist(), table.places[rows]
    columns = (places[name].tolist() for name in ("auth", "proxies", "tunnel_count"))
    for is_known, state, auth, proxies, tunnel_count in zip(
        is_recorded.tolist(), states, *columns, strict=True
    ):
        yield (
            AgentPlaces(
                State(state),
                names.get(auth, ""),
                sort_names(tuple(proxies)),
                max(tunnel_count - PLACE_PROXY_COUNT, 0),
            )
            if is_known
            else _ABSENT_PLACES
        )


def _list_flows(before: Numbers, after: Numbers, name_of: Callable[[int], str]) -> list[Flow]:
    """Return the most frequent pairs of numbers, by name."""
    if not len(before):
        return []
    pairs, counts = np.unique(np.column_stack((before, after)).astype(np.int64), axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MAX_FLOWS]
    return [Flow(name_of(int(pairs[row][0])), name_of(int(pairs[row][1])), int(counts[row])) for row in order]


def _look_of(view: InstanceView | None) -> object:
    return None if view is None else (view.state, view.health, view.drain_request is not None)
