"""A cluster with a gateway, a tunnel server and one instance that was not polled yet."""

from __future__ import annotations

import time

from fleet.models.clusters import DEFAULT_CLUSTER, Cluster, ensure_default_cluster
from fleet.monitoring.edge_documents import parse_gateway, parse_tunnel_server
from fleet.monitoring.pollers.edge_poll import EdgeAnswer
from fleet.monitoring.pollers.edge_records import record_edge_answers
from fleet.monitoring.state.edge_store import EdgeStore
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.edge_instances import EdgeResponse
from tests.fleet.monitoring.test_edge_documents import DESTINATIONS, ROUTES, TARGETS

ADDRESSES = {"gw-1": "10.0.0.5:3000", "tunnel-1": "10.0.0.6:3000", "new": "10.0.0.7:3000"}


def store_edge_instances(record: Writer) -> None:
    """Store their addresses in the cluster `default`, and a poll of two of them."""
    ensure_default_cluster()
    name_edge_instances(DEFAULT_CLUSTER)
    poll_edge_instances(record, DEFAULT_CLUSTER, time.time())


def name_edge_instances(cluster: str) -> None:
    """Store their addresses in the row of a cluster."""
    Cluster.objects.filter(pk=cluster).update(edge_instances=ADDRESSES)


def poll_edge_instances(record: Writer, cluster: str, at: float, *, is_failing: bool = False) -> None:
    """Record a poll of the gateway and the tunnel server. `is_failing`: then two failed polls of the gateway."""
    store = EdgeStore(record.redis, record.prefix)
    gateway = EdgeAnswer(
        EdgeResponse(200, parse_gateway(ROUTES, DESTINATIONS), ""),
        {"/routes": ROUTES, "/destinations": DESTINATIONS},
    )
    tunnel = EdgeAnswer(EdgeResponse(200, parse_tunnel_server(TARGETS), ""), {"/targets": TARGETS})
    failure = EdgeAnswer(EdgeResponse(None, None, "10.0.0.5:3000: connection refused"))
    addresses = {name: ADDRESSES[name] for name in ("gw-1", "tunnel-1")}
    for answer in (gateway, failure, failure) if is_failing else (gateway,):
        record_edge_answers(store, cluster, addresses, {"gw-1": answer, "tunnel-1": tunnel}, at)
