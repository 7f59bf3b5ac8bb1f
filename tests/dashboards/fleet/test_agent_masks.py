"""The filters that need more than the other ones' table: reconnect mode, groups, generations, ages, causes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from dashboards.fleet import agent_query
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, State
from tests.fakes.reader import FakeReader

NOW = 1_000_000.0


@pytest.fixture
def table() -> FleetTable:
    """Five agents: even ones on proxy-1 (blue, generation 1), odd ones on proxy-2 (green, 3)."""
    table = FakeReader(states=[State.HEALTHY] * 5, as_of=NOW).table("default", NOW)
    verdicts, heartbeats = table.verdicts.copy(), table.heartbeats.copy()
    verdicts["since"] = [0, NOW - 30, NOW - 301, NOW - 3600, NOW - 90_000]
    verdicts["cause"] = [NO_CAUSE, 2, 3, BACKEND_CAUSE, 2]
    heartbeats["mode"] = [0, 1, 2, 1, 2]
    places: Mapping[int, tuple[str, int]] = {2: ("blue", 1), 3: ("green", 3)}
    instances = {
        index: replace(view, facts=replace(view.facts, group=places[index][0], generation=places[index][1]))
        if index in places
        else view
        for index, view in table.instances.items()
    }
    return replace(table, verdicts=verdicts, heartbeats=heartbeats, instances=instances)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("mode:reconnect", [2, 4]),
        ("mode:pick-first mode:unknown", [0, 1, 3]),
        ("-mode:pick_first", [0, 2, 4]),
        ("group:blue", [0, 2, 4]),
        ("-group:blue", [1, 3]),
        ("group:blue group:green", [0, 1, 2, 3, 4]),
        ("group:red", []),
        ("generation:3", [1, 3]),
        ("generation:<3", [0, 2, 4]),
        ("-generation:>=1", []),
        ("age:>5m", [2, 3, 4]),
        ("age:<5m", [1]),
        ("age:>5m age:<2h", [2, 3]),
        ("-age:>5m", [0, 1]),
        ("-age:>5m -age:<1m", [0]),
        ("cause:none", [0]),
        ("-cause:none", [1, 2, 3, 4]),
    ],
)
def test_filters(table: FleetTable, text: str, indices: list[int]) -> None:
    """Ages must all hold; of other filters with the same key, any. An age that is not known matches none."""
    assert agent_query.select(table, agent_query.parse(text)).tolist() == indices


def test_agents_without_tunnels_are_on_the_proxies_of_their_last_one(table: FleetTable) -> None:
    """As `proxy:` has them."""
    rows = np.array([0, 1, 3])
    table = replace(table, tunnel_agents=table.tunnel_agents[rows], tunnel_proxies=table.tunnel_proxies[rows])
    assert agent_query.select(table, agent_query.parse("group:blue")).tolist() == [0, 2, 4]


def test_unknown_mode_names_the_modes(table: FleetTable) -> None:
    modes = ", ".join(mode.slug for mode in ReconnectMode)
    with pytest.raises(agent_query.QueryError, match=rf"Use one of: {modes}\.$"):
        agent_query.parse("mode:fast")
