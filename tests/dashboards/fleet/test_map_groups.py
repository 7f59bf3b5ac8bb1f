"""Groups of agents for the map."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest

from dashboards.fleet.agent_query import QueryError
from dashboards.fleet.map_groups import NO_GROUP, MapGroup, group_agents, grouping_as_json
from fleet.monitoring.columns import NO_INSTANCE
from tests.fakes.reader import FakeReader


def test_agents_are_grouped_by_home_proxy() -> None:
    """Each group stands for its proxy; an agent that never had a tunnel has no group."""
    table = FakeReader(as_of=1000.0).table("default", 1000.0)
    memory = table.memory.copy()
    memory["home_proxy"] = [3, 2, 3, NO_INSTANCE]
    grouping = group_agents(replace(table, memory=memory), "home")
    assert grouping.groups == (MapGroup("proxy-1", 2), MapGroup("proxy-2", 3))
    assert grouping.column.tolist() == [1, 0, 1, NO_GROUP]


def test_a_grouping_is_sent_as_a_column() -> None:
    """Two bytes per agent, compressed."""
    grouping = group_agents(FakeReader(as_of=1000.0).table("default", 1000.0), "home")
    content = json.loads(json.dumps(grouping_as_json(grouping)))
    column = np.frombuffer(zlib.decompress(base64.b64decode(content["column"])), "<u2")
    assert column.tolist() == [0, 1, 0, 1]
    assert content["agents"] == 4
    assert content["groups"] == [{"name": "proxy-1", "instance": 2}, {"name": "proxy-2", "instance": 3}]


def test_an_unknown_attribute_is_refused() -> None:
    """With the attributes that exist."""
    with pytest.raises(QueryError, match=r"Unknown group 'colour'\. Available groups: home"):
        group_agents(FakeReader().table("default", 1000.0), "colour")
