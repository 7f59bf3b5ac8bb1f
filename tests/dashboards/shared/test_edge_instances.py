"""Rows of gateways and tunnel servers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytest_django import Settings

from dashboards.shared.edge_instances import (
    make_row,
    read_edge_addresses,
    read_edge_report,
    read_edge_rows,
    summarize,
)
from fleet.models.clusters import Cluster
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.edge_store import EdgeStore
from fleet.vocabulary.edge_instances import EdgeInstanceKind, EdgePoll, GatewayReport
from fleet.vocabulary.instances import InstanceState
from tests.fleet.monitoring.test_edge_documents import DESTINATIONS, ROUTES

_NOW = 1000.0
_POLL = EdgePoll(
    "gw-1",
    "a:1",
    999.0,
    999.0,
    0,
    "",
    200,
    EdgeInstanceKind.GATEWAY,
    {"rules": 1, "destinations": 2, "ejected": 0, "problems": 0},
)


@pytest.mark.parametrize(
    ("changes", "state", "sentence", "is_current"),
    [
        ({}, InstanceState.OK, "", True),
        (
            {"failure_count": 1, "answered_at": 990.0, "error": "a:1: no response"},
            InstanceState.OK,
            "",
            False,
        ),
        (
            {"readyz": 503},
            InstanceState.UNHEALTHY,
            "/readyz responds with 503: the instance is starting, shutting down or degraded.",
            True,
        ),
        ({"error": "a:1: no JSON"}, InstanceState.UNHEALTHY, "a:1: no JSON.", True),
        (
            {"failure_count": 2, "answered_at": 990.0, "error": "a:1: connection refused"},
            InstanceState.SILENT,
            "a:1: connection refused.",
            False,
        ),
        (
            {"at": 1.0, "answered_at": 1.0},
            InstanceState.UNKNOWN,
            "Refloat has no current data: its workers do not poll this cluster.",
            False,
        ),
        (
            {"at": 0.0, "answered_at": None, "kind": None},
            InstanceState.UNKNOWN,
            "Refloat has not polled this instance yet.",
            False,
        ),
    ],
)
def test_row(changes: dict[str, object], state: InstanceState, sentence: str, is_current: bool) -> None:
    """State, what is wrong, and whether the report is of now."""
    row = make_row("gw-1", "a:1", replace(_POLL, **changes), _NOW)  # type: ignore[arg-type] # fields by name
    assert (row.state, row.sentence, row.is_current) == (state, sentence, is_current)


def test_poll_of_another_address_does_not_count() -> None:
    """Somebody has just changed the address."""
    row = make_row("gw-1", "b:1", _POLL, _NOW)
    assert (row.state, row.kind, row.summary) == (InstanceState.UNKNOWN, None, "")


@pytest.mark.parametrize(
    ("kind", "counts", "text"),
    [
        (None, {}, ""),
        (EdgeInstanceKind.GATEWAY, {"rules": 1, "destinations": 1200}, "1 rule, 1,200 destinations"),
        (
            EdgeInstanceKind.GATEWAY,
            {"rules": 2, "destinations": 3, "ejected": 1, "problems": 1},
            "2 rules, 3 destinations, 1 ejected, 1 configuration problem",
        ),
        (
            EdgeInstanceKind.TUNNEL_SERVER,
            {"targets": 0, "sessions": 1, "missing": 2},
            "0 registered targets, 1 session, 2 not registered",
        ),
    ],
)
def test_summary(kind: EdgeInstanceKind | None, counts: dict[str, int], text: str) -> None:
    """What is wrong is named, what is not is left out."""
    assert summarize(kind, counts) == text


@pytest.mark.django_db
def test_rows_of_a_cluster(settings: Settings, valkey_url: str, prefix: str) -> None:
    """By name, with those that were not polled yet; the path quotes the name."""
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    Cluster.objects.create(id="eu", name="EU", edge_instances={"gw-10": "b:1", "gw-1": "a:1"})
    store = EdgeStore(connect(valkey_url), prefix)
    store.write("eu", [_POLL], {"gw-1": {"/routes": ROUTES, "/destinations": DESTINATIONS}})
    first, second = read_edge_rows("eu", read_edge_addresses("eu"), _NOW)
    assert (first.name, first.summary) == ("gw-1", "1 rule, 2 destinations")
    assert (second.name, second.state) == ("gw-10", InstanceState.UNKNOWN)
    assert isinstance(read_edge_report("eu", first), GatewayReport)
    assert read_edge_report("eu", second) is None
    assert read_edge_addresses("none") == {}
    assert make_row("a?b", "a:1", None, _NOW).path == "/edge-instances/a%3Fb/"
