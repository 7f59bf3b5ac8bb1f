from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from dashboards.fleet import agent_groups
from dashboards.fleet.agent_groups import GroupingError
from fleet.monitoring.agent_attributes import AttributeTable
from fleet.monitoring.columns import ATTRIBUTE
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader


@pytest.fixture
def table() -> FleetTable:
    """Five agents with three kinds of attributes in turn; agents 0 and 3 have none."""
    return FakeReader(states=[State.HEALTHY] * 5, as_of=time.time()).table("default", time.time())


@pytest.mark.parametrize(
    ("grouping", "names", "numbers"),
    [
        ("version", ("18.9.1", "18.10.0", ""), [2, 1, 0, 2, 1]),
        ("label.env", ("dev", "prod", ""), [2, 1, 0, 2, 1]),
        ("label.site", ("oslo", ""), [1, 1, 0, 1, 1]),
        ("label.unknown", ("",), [0, 0, 0, 0, 0]),
    ],
)
def test_groups_in_natural_order(
    table: FleetTable, grouping: str, names: tuple[str, ...], numbers: list[int]
) -> None:
    """Agents without the version or label are the last group."""
    groups = agent_groups.group_of_agents(table, grouping)
    assert (groups.names, groups.numbers.tolist()) == (names, numbers)


def test_values_of_no_agent_have_no_group(table: FleetTable) -> None:
    """Rosters keep entries that agents had before. Different label sets with an equal value are one group."""
    rows = np.array([(1, 1), (1, 3), (1, 3), (1, 1), (1, 1)], ATTRIBUTE)
    label_sets = ({}, {"env": "prod"}, {"env": "old"}, {"env": "prod", "site": "oslo"})
    table = replace(table, attributes=AttributeTable(rows, ("", "2.0", "1.0"), label_sets))
    assert agent_groups.group_of_agents(table, "version").names == ("2.0",)
    groups = agent_groups.group_of_agents(table, "label.env")
    assert (groups.names, set(groups.numbers.tolist())) == (("prod",), {0})
    assert agent_groups.label_keys_of(table) == ("env", "site")


@pytest.mark.parametrize("grouping", ["", "label.", "label", "auth"])
def test_unknown_grouping_is_a_sentence(table: FleetTable, grouping: str) -> None:
    with pytest.raises(GroupingError, match=r"Available groupings: version, label\.KEY"):
        agent_groups.group_of_agents(table, grouping)


def test_table_without_agents_has_no_groups() -> None:
    """So has one without any labels no keys."""
    table = FakeReader(states=[], as_of=time.time()).table("default", time.time())
    assert agent_groups.group_of_agents(table, "version").names == ()
    assert agent_groups.label_keys_of(table) == ()
