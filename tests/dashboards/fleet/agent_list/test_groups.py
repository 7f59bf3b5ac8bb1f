"""Groups of the list: the worst first, and each has as many agents as its filter finds."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from dashboards.fleet import agent_query
from dashboards.fleet.agent_groups import GroupingError
from dashboards.fleet.agent_list.groups import GROUPINGS, ListedGroup, group_agents
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, State
from tests.fakes.reader import FakeReader

S, H, R = State.STRANDED, State.HEALTHY, State.AT_RISK


@pytest.fixture
def table() -> FleetTable:
    """Eight agents with two tunnels each; proxy-1 fails three of them, the backend one."""
    reader = FakeReader(
        states=[S, S, R, S, H, H, H, H], as_of=time.time(), tunnels_per_agent=2,
        proxy_state=InstanceState.SILENT,
    )  # fmt: skip
    table = reader.table("default", time.time())
    verdicts = table.verdicts.copy()
    verdicts["cause"] = [2, 2, 2, BACKEND_CAUSE, *[NO_CAUSE] * 4]
    return replace(table, verdicts=verdicts)


@pytest.mark.parametrize("grouping", [*GROUPINGS, "label.env", "label.none"])
def test_groups_have_the_agents_of_their_filters(table: FleetTable, grouping: str) -> None:
    """Beside another filter."""
    mask = agent_query.mask_of(table, agent_query.parse("-id:id-5"))
    groups = group_agents(table, grouping, mask)
    assert groups
    for group in groups:
        query = agent_query.parse_filters([group.filter, "-id:id-5"])
        states = table.verdicts["state"][agent_query.select(table, query)]
        assert dict(group.counts) == {
            State(state): int((states == state).sum()) for state in np.unique(states)
        }


def test_worst_group_is_first(table: FleetTable) -> None:
    """By stranded agents, then those at risk; agents without a cause are last."""
    groups = group_agents(table, "cause", np.ones(8, np.bool_))
    assert [(group.name, group.sentence) for group in groups] == [
        ("proxy-1", "2 agents stranded, 1 at risk"),
        ("auth backend", "1 agent stranded"),
        ("", "4 agents healthy"),
    ]


def test_instances_with_one_name_are_two_groups(table: FleetTable) -> None:
    """A replaced instance keeps the name: their filters have ids."""
    instances = {
        index: replace(view, facts=replace(view.facts, name="proxy")) if index in (2, 3) else view
        for index, view in table.instances.items()
    }
    groups = group_agents(replace(table, instances=instances), "proxy", np.ones(8, np.bool_))
    assert {group.filter for group in groups} == {"proxy:proxy-id-1", "proxy:proxy-id-2"}


def test_agents_in_words() -> None:
    assert ListedGroup("a", "", ((State.STRANDED, 1200), (State.AT_RISK, 1)), "").sentence == (
        "1,200 agents stranded, 1 at risk"
    )
    assert ListedGroup("a", "", (), "").sentence == "no agents"


@pytest.mark.parametrize("grouping", ["x", "label.", "label"])
def test_unknown_grouping_names_the_groupings(table: FleetTable, grouping: str) -> None:
    with pytest.raises(GroupingError, match=r"cause, state, proxy, auth, version, label\.KEY"):
        group_agents(table, grouping, np.ones(8, np.bool_))
