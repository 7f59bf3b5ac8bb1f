"""Polls and reports of edge instances in Redis."""

from __future__ import annotations

from redis import Redis

from fleet.monitoring.state.edge_store import EdgeStore
from fleet.monitoring.state.keys import Keys
from fleet.vocabulary.edge_instances import EdgeInstanceKind, EdgePoll, GatewayReport
from tests.fleet.monitoring.test_edge_documents import DESTINATIONS, ROUTES

_POLL = EdgePoll("edge-1", "a:1", 2.0, 2.0, 0, "", 200, EdgeInstanceKind.GATEWAY, {"rules": 1})


def test_poll_and_report_are_read_as_they_were_written(redis: Redis, prefix: str) -> None:
    """By cluster; and both keys expire."""
    store = EdgeStore(redis, prefix)
    store.write("c", [_POLL], {"edge-1": {"/routes": ROUTES, "/destinations": DESTINATIONS}})
    assert store.polls("c") == {"edge-1": _POLL}
    report = store.report("c", "edge-1")
    assert isinstance(report, GatewayReport)
    assert report.rules[0].name == "r/0"
    assert store.polls("d") == {}
    assert store.report("c", "edge-2") is None
    keys = Keys(prefix, "c")
    assert all(redis.ttl(key) > 0 for key in (keys.edge_instances, keys.edge_reports))


def test_values_of_another_version_are_left_out(redis: Redis, prefix: str) -> None:
    """The next poll replaces them."""
    keys = Keys(prefix, "c")
    redis.hset(keys.edge_instances, mapping={"a": "{}", "b": '{"kind": "router"}', "c": "no JSON"})
    redis.hset(keys.edge_reports, mapping={"a": "{}", "b": '{"/targets": {"targets": 1}}'})
    store = EdgeStore(redis, prefix)
    assert store.polls("c") == {}
    assert (store.report("c", "a"), store.report("c", "b")) == (None, None)
