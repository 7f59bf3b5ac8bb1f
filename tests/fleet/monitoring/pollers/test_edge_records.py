"""Answers become the record: polls by name, reports, and removals."""

from __future__ import annotations

import pytest
from redis import Redis

from fleet.monitoring.edge_documents import parse_tunnel_server
from fleet.monitoring.pollers.edge_poll import EdgeAnswer
from fleet.monitoring.pollers.edge_records import edge_addresses_in_round, record_edge_answers
from fleet.monitoring.state.edge_store import EdgeStore
from fleet.vocabulary.edge_instances import EdgeInstanceKind, EdgeResponse, TunnelServerReport
from tests.fleet.monitoring.test_edge_documents import TARGETS

_GOOD = EdgeAnswer(EdgeResponse(200, parse_tunnel_server(TARGETS), ""), {"/targets": TARGETS})
_FAILED = EdgeAnswer(EdgeResponse(None, None, "a:1: connection refused"))


@pytest.fixture
def store(valkey_client: Redis, prefix: str) -> EdgeStore:
    """An empty store."""
    return EdgeStore(valkey_client, prefix)


def test_report_outlives_failures(store: EdgeStore) -> None:
    """The page shows the last one with its time."""
    for at, answer in ((1.0, _GOOD), (2.0, _FAILED), (3.0, _FAILED)):
        record_edge_answers(store, "c", {"edge-1": "a:1"}, {"edge-1": answer}, at)
    (poll,) = store.polls("c").values()
    assert (poll.failure_count, poll.answered_at, poll.at) == (2, 1.0, 3.0)
    assert poll.kind is EdgeInstanceKind.TUNNEL_SERVER
    assert isinstance(store.report("c", "edge-1"), TunnelServerReport)


def test_new_address_starts_over(store: EdgeStore) -> None:
    """It may be another program."""
    record_edge_answers(store, "c", {"edge-1": "a:1"}, {"edge-1": _GOOD}, 1.0)
    record_edge_answers(store, "c", {"edge-1": "b:1"}, {"edge-1": _FAILED}, 2.0)
    (poll,) = store.polls("c").values()
    assert (poll.address, poll.kind, poll.failure_count) == ("b:1", None, 1)


def test_removed_instance_leaves_the_record(store: EdgeStore) -> None:
    """With its report; also the last one."""
    record_edge_answers(store, "c", {"a": "a:1", "b": "b:1"}, {"a": _GOOD, "b": _GOOD}, 1.0)
    record_edge_answers(store, "c", {"b": "b:1"}, {"b": _GOOD}, 2.0)
    assert set(store.polls("c")) == {"b"}
    assert store.report("c", "a") is None
    record_edge_answers(store, "c", {}, {}, 3.0)
    assert store.polls("c") == {}


def test_cluster_without_edge_instances_has_no_keys(
    store: EdgeStore, valkey_client: Redis, prefix: str
) -> None:
    """Nothing is written for it, in any round."""
    record_edge_answers(store, "c", {}, {}, 1.0)
    assert list(valkey_client.scan_iter(f"{prefix}:*")) == []


@pytest.mark.parametrize(("interval", "count"), [(5.0, 12), (2.0, 12), (1.0, 6), (0.6, 4), (0.001, 1)])
def test_short_rounds_poll_less_often(interval: float, count: int) -> None:
    """Every round, or about every 2 s if rounds are more frequent."""
    polled = [edge_addresses_in_round({"a": "a:1"}, number, interval) for number in range(12)]
    assert sum(addresses is not None for addresses in polled) == count
