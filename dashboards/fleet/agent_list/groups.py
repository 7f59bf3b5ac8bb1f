"""Groups of the list of agents: one line for the agents with the same cause, state, proxy, auth, version or label.

Each group is counted by the filter that lists it, so an agent with tunnels to two proxies is in both their groups.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dashboards.fleet import agent_groups
from dashboards.fleet.agent_groups import GroupingError
from dashboards.fleet.agent_list import tallies
from dashboards.fleet.agent_list.tallies import Memberships
from dashboards.fleet.agent_masks import BACKEND_NAME, NO_INSTANCE_NAME, Mask
from dashboards.fleet.agent_query import LABEL_PREFIX
from fleet.alerts.headlines.causes import find_causes
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, STATES_BY_URGENCY, State

#: Groupings besides `label.KEY`, each with its name on pages.
GROUPINGS: Mapping[str, str] = {
    "cause": "Cause",
    "state": "State",
    "proxy": "Proxy",
    "auth": "Auth",
    "version": "Version",
}
#: Most groups on the page and in a response; the worst ones.
MAX_GROUPS = 500
#: States that need no attention.
_CALM_STATES = (State.HEALTHY, State.WORKING, State.EXCESS, State.NEVER, State.RETIRED)


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """Agents of the list with one value."""

    #: Name of the group: an instance, a version; empty: the agents without one.
    name: str
    #: What failed, as a clause: `auth-1 lost its backend`; empty if nothing is known to have failed.
    clause: str
    #: Number of agents by state, the most urgent state first; only states that agents have.
    counts: tuple[tuple[State, int], ...]
    #: Filter that lists these agents; empty if there is none.
    filter: str

    @property
    def total(self) -> int:
        """Return the number of agents."""
        return sum(count for _, count in self.counts)

    @property
    def sentence(self) -> str:
        """Return the agents by state in words: `40 agents stranded, 12 at risk`."""
        parts = [f"{count:,} {state.label}" for state, count in self.counts]
        if not parts:
            return "no agents"
        first_count = self.counts[0][1]
        parts[0] = f"{first_count:,} agent{'' if first_count == 1 else 's'} {self.counts[0][0].label}"
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class _Grouping:
    memberships: Memberships
    #: Name, clause and filter by group number.
    groups: Mapping[int, tuple[str, str, str]]


def group_agents(table: FleetTable, grouping: str, mask: Mask) -> list[ListedGroup]:
    """Return the groups of the agents of the mask, the worst group first. Raises GroupingError."""
    build = _BUILDERS.get(grouping)
    if build is not None:
        groups = build(table)
    elif grouping.startswith(LABEL_PREFIX) and grouping != LABEL_PREFIX:
        groups = _by_attribute(table, grouping)
    else:
        raise GroupingError(
            f"Unknown grouping {grouping!r}. Available groupings: {', '.join(GROUPINGS)}, label.KEY."
        )
    if not groups.groups:
        return []
    counts = groups.memberships.count_by_state(mask, table.verdicts["state"], max(groups.groups) + 1)
    agent_groups_in_use = [
        ListedGroup(
            name,
            clause,
            tuple(
                (state, int(counts[number][state])) for state in STATES_BY_URGENCY if counts[number][state]
            ),
            filter_text,
        )
        for number, (name, clause, filter_text) in groups.groups.items()
        if counts[number].any()
    ]
    return sorted(agent_groups_in_use, key=_urgency_of)


def _urgency_of(group: ListedGroup) -> tuple[object, ...]:
    counts = dict(group.counts)
    urgent_counts = [-counts.get(state, 0) for state in STATES_BY_URGENCY if state not in _CALM_STATES]
    return (*urgent_counts, not group.name, -group.total, natural_sort_key(group.name))


def _by_cause(table: FleetTable) -> _Grouping:
    clauses = {cause.key: cause.clause.present for cause in find_causes(table)}
    groups = {
        index: (
            name,
            clauses.get(f"{table.instances[index].facts.kind}/{table.instances[index].facts.id}", ""),
            f"cause:{text}",
        )
        for index, name, text in _names_of(table)
    }
    groups[BACKEND_CAUSE] = (
        "auth backend",
        clauses.get(f"backend/{table.cluster}", ""),
        f"cause:{BACKEND_NAME}",
    )
    groups[NO_CAUSE] = ("", "", f"cause:{NO_INSTANCE_NAME}")
    return _Grouping(tallies.each_in_one(table.verdicts["cause"]), groups)


def _by_state(table: FleetTable) -> _Grouping:
    groups = {int(state): (state.label, "", f"state:{state.slug}") for state in State}
    return _Grouping(tallies.each_in_one(table.verdicts["state"]), groups)


def _by_proxy(table: FleetTable) -> _Grouping:
    return _by_instance(table, "proxy", tallies.proxies_of_agents(table))


def _by_auth(table: FleetTable) -> _Grouping:
    return _by_instance(table, "auth", tallies.auths_of_agents(table))


def _by_instance(table: FleetTable, kind: str, memberships: Memberships) -> _Grouping:
    groups = {
        index: (name, table.instances[index].sentence.rstrip("."), f"{kind}:{text}")
        for index, name, text in _names_of(table, kind)
    }
    groups[NO_INSTANCE] = ("", "", f"{kind}:{NO_INSTANCE_NAME}")
    return _Grouping(memberships, groups)


def _by_attribute(table: FleetTable, grouping: str) -> _Grouping:
    groups = agent_groups.group_of_agents(table, grouping)
    without_filter = f"{grouping}:" if grouping == agent_groups.BY_VERSION else f"-{grouping}:*"
    return _Grouping(
        tallies.each_in_one(groups.numbers),
        {
            number: (name, "", f"{grouping}:{glob.escape(name)}" if name else without_filter)
            for number, name in enumerate(groups.names)
        },
    )


def _by_version(table: FleetTable) -> _Grouping:
    return _by_attribute(table, agent_groups.BY_VERSION)


def _names_of(table: FleetTable, kind: str = "") -> list[tuple[int, str, str]]:
    """Return index, name and text for filters of the instances of a kind, or of all: the id if names are not unique."""
    facts_by_index = {
        index: view.facts for index, view in table.instances.items() if not kind or view.facts.kind == kind
    }
    uses = Counter(facts.name for facts in facts_by_index.values())
    return [
        (index, facts.name, facts.name if uses[facts.name] == 1 else facts.id)
        for index, facts in facts_by_index.items()
    ]


_BUILDERS: Mapping[str, Callable[[FleetTable], _Grouping]] = {
    "cause": _by_cause,
    "state": _by_state,
    "proxy": _by_proxy,
    "auth": _by_auth,
    "version": _by_version,
}
