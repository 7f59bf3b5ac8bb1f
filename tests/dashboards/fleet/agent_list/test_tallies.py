"""Numbers beside suggestions are those that the filter finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dashboards.fleet import agent_query
from dashboards.fleet.agent_list import tallies
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader


def _table() -> FleetTable:
    """Six agents, with two tunnels each; agents 0 and 1 have none, and 5 was never on a proxy or auth."""
    table = FakeReader(states=[State.HEALTHY] * 6, as_of=1e6, tunnels_per_agent=2).table("default", 1e6)
    has_tunnel = ~np.isin(table.tunnel_agents, [0, 1, 5])
    places, memory = table.places.copy(), table.memory.copy()
    places["proxy"][5] = places["auth"][5] = memory["last_auth"][5] = NO_INSTANCE
    memory["last_proxies"][5] = NO_INSTANCE
    return replace(
        table,
        places=places,
        memory=memory,
        tunnel_agents=table.tunnel_agents[has_tunnel],
        tunnel_proxies=table.tunnel_proxies[has_tunnel],
    )


def test_numbers_are_those_of_the_filters() -> None:
    table = _table()
    mask = np.array([True, True, True, False, True, True])
    for key, memberships in (
        ("proxy", tallies.proxies_of_agents(table)),
        ("auth", tallies.auths_of_agents(table)),
    ):
        counts = memberships.count(mask, NO_INSTANCE + 1)
        names = {index: view.facts.name for index, view in table.instances.items()} | {NO_INSTANCE: "none"}
        for index, name in names.items():
            if name.startswith(key) or name == "none":
                query = agent_query.parse(f"{key}:{name}")
                assert counts[index] == (agent_query.mask_of(table, query) & mask).sum(), (key, name)


def test_next_round_is_counted_anew() -> None:
    """The memberships of one table are kept."""
    table = _table()
    first = tallies.proxies_of_agents(table)
    assert tallies.proxies_of_agents(table) is first
    assert len(tallies.proxies_of_agents(replace(table)).agents) == len(first.agents)
    assert tallies.proxies_of_agents(table) is not first
