"""Groups of agents for the map."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest

from dashboards.fleet.agent_query import QueryError
from dashboards.fleet.map_groups import (
    MAX_GROUPS,
    NO_GROUP,
    MapGroup,
    group_agents,
    grouping_as_json,
    list_groupings,
)
from fleet.monitoring.agent_attributes import AttributeTable
from fleet.monitoring.columns import ATTRIBUTE, NO_INSTANCE
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader


def test_agents_are_grouped_by_home_proxy() -> None:
    """Each group stands for its proxy; an agent that never had a tunnel has no group."""
    table = FakeReader(as_of=1000.0).table("default", 1000.0)
    memory = table.memory.copy()
    memory["home_proxy"] = [3, 2, 3, NO_INSTANCE]
    grouping = group_agents(replace(table, memory=memory), "home")
    assert grouping.groups == (MapGroup("proxy-1", 2), MapGroup("proxy-2", 3))
    assert grouping.column.tolist() == [1, 0, 1, NO_GROUP]


def table_with_attributes(envs: list[str]) -> FleetTable:
    """Return a fleet whose agents have these values of the label `env`, and as many versions; empty: none."""
    rows = np.zeros(len(envs), ATTRIBUTE)
    rows["version"] = rows["label_set"] = range(1, len(envs) + 1)
    attributes = AttributeTable(
        rows,
        versions=("", *(f"1.{number}.0" if env else "" for number, env in enumerate(envs))),
        label_sets=({}, *({"env": env} if env else {} for env in envs)),
    )
    states = [State.HEALTHY] * len(envs)
    return replace(FakeReader(states=states, as_of=1000.0).table("default", 1000.0), attributes=attributes)


def test_agents_are_grouped_by_label_and_version() -> None:
    """An agent that reports none has no group."""
    table = table_with_attributes(["prod", "dev", "", "prod"])
    by_label, by_version = group_agents(table, "label.env"), group_agents(table, "version")
    assert [group.name for group in by_label.groups] == ["dev", "prod"]
    assert by_label.column.tolist() == [1, 0, NO_GROUP, 1]
    assert [group.name for group in by_version.groups] == ["1.0.0", "1.1.0", "1.3.0"]
    assert by_version.column.tolist() == [0, 1, NO_GROUP, 2]
    assert list_groupings(table) == [
        ("home", "home proxy"),
        ("version", "version"),
        ("label.env", "label env"),
    ]


def test_more_groups_than_the_map_can_show_are_refused() -> None:
    """A label that is different for each agent is no grouping."""
    table = table_with_attributes([f"host-{number}" for number in range(MAX_GROUPS + 1)])
    with pytest.raises(QueryError, match=r"label\.env has 1,001 values: the map shows up to 1,000 groups\."):
        group_agents(table, "label.env")


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
