"""Instances as the map receives them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.fleet.map_instances import instances_as_json
from fleet.protocol.destination.health import DrainRequest
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, State
from tests.fakes.headline_fleets import HarmedAgents, table_with
from tests.fakes.reader import FakeReader
from tests.fakes.small_fleet import PROXY_1, SILENT


def test_instances_have_the_state_that_other_pages_show() -> None:
    """With its label, symbol and class; a silent proxy's tunnels are not current."""
    reader = FakeReader(as_of=1000.0, proxy_changes={"drain_request": DrainRequest("maintenance", 1.0)})
    rows = instances_as_json(reader.table("default", 1000.0))
    assert [(row["index"], row["name"], row["kind"]) for row in rows] == [
        (0, "auth-1", "auth"),
        (1, "auth-2", "auth"),
        (2, "proxy-1", "proxy"),
        (3, "proxy-2", "proxy"),
    ]
    assert (rows[2]["label"], rows[2]["symbol"], rows[2]["draining"]) == ("draining", "draining", True)
    assert (rows[3]["label"], rows[3]["class"], rows[3]["current"]) == ("OK", "instance-ok", True)
    reader.proxy_changes, reader.proxy_state = {}, InstanceState.SILENT
    silent = next(
        row for row in instances_as_json(reader.table("default", 1000.0)) if row["state"] == "silent"
    )
    assert (silent["name"], silent["label"], silent["current"]) == ("proxy-1", "not responding", False)


def test_proxy_that_strands_agents_has_their_look() -> None:
    """By class and symbol, beside the state."""
    table = table_with(HarmedAgents(2, State.STRANDED, PROXY_1), proxy_1=SILENT)
    rows = {row["name"]: row for row in instances_as_json(table)}
    assert [rows["proxy-1"][name] for name in ("state", "label", "symbol", "class", "stranding")] == [
        "silent", "not responding", "stranded", "state-stranded", True,
    ]  # fmt: skip
    assert (rows["proxy-2"]["class"], rows["proxy-2"]["stranding"]) == ("instance-ok", False)


def test_load_has_its_imbalance() -> None:
    """A share of the mean of the proxies, where other pages name one too; null where the load is usual."""
    table = FakeReader(as_of=1000.0).table("default", 1000.0)
    views = {index: replace(view, agent_count=40) for index, view in table.instances.items()}
    assert [row["imbalance"] for row in instances_as_json(replace(table, instances=views))] == [None] * 4
    views[2] = replace(views[2], agent_count=80)
    rows = instances_as_json(replace(table, instances=views))
    assert [(row["name"], row["load"], row["imbalance"]) for row in rows[2:]] == [
        ("proxy-1", 80, 0.33),
        ("proxy-2", 40, -0.33),
    ]


@pytest.mark.parametrize(
    ("state", "is_failing", "is_cut_off"),
    [
        (InstanceState.OK, False, False),
        (InstanceState.UNKNOWN, False, False),
        (InstanceState.SILENT, True, True),
        (InstanceState.UNHEALTHY, True, False),
        (InstanceState.EXPIRED, True, False),
        (InstanceState.GONE, True, True),
    ],
)
def test_connections_fail_with_their_instance(
    state: InstanceState, is_failing: bool, is_cut_off: bool
) -> None:
    """They survive while it responds, and are lost when it does not."""
    rows = instances_as_json(FakeReader(as_of=1000.0, proxy_state=state).table("default", 1000.0))
    proxy = next(row for row in rows if row["name"] == "proxy-1")
    assert (proxy["failing"], proxy["cut_off"]) == (is_failing, is_cut_off)


def test_a_proxy_names_its_auth_by_index() -> None:
    """None where it has none, or an auth that Refloat does not know."""
    table = FakeReader(as_of=1000.0).table("default", 1000.0)
    views = dict(table.instances)
    for index, auth in ((2, views[1].facts.id), (3, "not an id")):
        views[index] = replace(views[index], facts=replace(views[index].facts, heartbeat_auth=auth))
    rows = instances_as_json(replace(table, instances=views))
    assert [row["auth"] for row in rows] == [None, None, 1, None]


def test_causes_are_those_of_the_live_columns() -> None:
    """An instance by its index, or the auth backend."""
    table = FakeReader(as_of=1000.0).table("default", 1000.0)
    views = dict(table.instances)
    views[2] = replace(views[2], cause=views[0].facts.id)
    views[3] = replace(views[3], cause="backend/default")
    rows = instances_as_json(replace(table, instances=views))
    assert [row["cause"] for row in rows] == [None, None, 0, BACKEND_CAUSE]
