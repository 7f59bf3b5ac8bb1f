from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import RequestFactory

from dashboards.fleet import agent_csv
from dashboards.fleet.agent_list.columns import (
    COLUMNS,
    COOKIE,
    ColumnChoice,
    choose_columns,
    find_empty_columns,
)
from fleet.monitoring.agent_attributes import AttributeTable
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader

ALL = {column.slug for column in COLUMNS}


@pytest.fixture
def table() -> FleetTable:
    """Four agents of a product that reports no auth and no labels."""
    table = FakeReader(states=[State.HEALTHY] * 4, as_of=1e6).table("default", 1e6)
    memory, heartbeats = table.memory.copy(), table.heartbeats.copy()
    memory["last_auth"], heartbeats["mode"] = NO_INSTANCE, 2
    rows = table.attributes.rows.copy()
    rows["label_set"] = 0
    attributes = AttributeTable(rows, table.attributes.versions, table.attributes.label_sets)
    return replace(table, memory=memory, heartbeats=heartbeats, attributes=attributes)


def _choose(table: FleetTable, query: str = "", cookie: str = "") -> ColumnChoice:
    request = RequestFactory().get(f"/agents/?{query}")
    request.COOKIES[COOKIE] = cookie
    return choose_columns(request, table, {})


def test_columns_without_evidence_are_hidden_and_say_why(table: FleetTable) -> None:
    """By the capability of the source, if it has one."""
    reasons = find_empty_columns(table, {Capability.AGENT_TO_AUTH: "NATS has no auths."})
    assert reasons == {"auth": "NATS has no auths.", "labels": "No agent of this cluster reports it."}
    assert _choose(table).shown_slugs == ALL - {"auth", "labels"}


def test_cluster_without_agents_hides_nothing() -> None:
    table = FakeReader(states=[]).table("default", 1e6)
    assert find_empty_columns(table, {}) == {}


def test_address_comes_before_the_cookie(table: FleetTable) -> None:
    """Both before what is reported; unknown names are left out, and none is a choice."""
    assert _choose(table, "columns=auth,x", "labels").shown_slugs == {"auth"}
    assert _choose(table, "columns=none&columns=since&columns=mode", "labels").text == "since,mode"
    assert _choose(table, "", "labels,none").shown_slugs == {"labels"}
    assert (_choose(table, "columns=none").shown_slugs, _choose(table, "columns=none").text) == (
        set(),
        "none",
    )


def test_downloads_have_the_columns_of_the_page(table: FleetTable) -> None:
    """And the fields of a column that the page words in one cell."""
    assert _choose(table, "columns=version").export_names == ("id", "name", "state", "version")
    all_names = _choose(table, f"columns={','.join(ALL)}").export_names
    assert all_names[:3] == ("id", "name", "state")
    assert {"cause", "health_check", "generations", "labels"} < set(all_names) < set(agent_csv.COLUMNS)
