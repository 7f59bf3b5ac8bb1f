"""Rounds of workers at an auth of a Teleport cluster that can be watched, over real gRPC into a real Valkey."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2

from fleet.monitoring.columns import HEARTBEAT
from fleet.monitoring.evidence import PRESENCE, Timing
from fleet.monitoring.pollers import watches as watches_module
from fleet.monitoring.pollers.worker import PollingSettings, Worker
from fleet.monitoring.state.codec import FeedState, rows_of, unpack_feed
from fleet.monitoring.state.missing_capabilities import MissingCapabilityStore
from fleet.monitoring.state.watch_leases import WatchLeases
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.vocabulary.capabilities import Capability
from tests.fakes.teleport_auth import FakeTeleportAuth, delete_event, make_node, put_event
from tests.fakes.waiting import eventually_sync

CLUSTER = "teleport"
#: Later than every test, seconds since the epoch.
LATER = int(time.time()) + 3600


class WatchedCluster:
    """An auth with two nodes, and two workers that poll it in turns."""

    def __init__(self, writer: Writer) -> None:
        self.auth = FakeTeleportAuth()
        self.auth.page_size = 100
        #: Other auths of the cluster, after `auth`.
        self.other_auths: list[FakeTeleportAuth] = []
        self.auth.resources = {
            "node": [make_node("host-1", expires_at=LATER), make_node("host-2", expires_at=LATER)]
        }
        self.writer = writer
        self.leases = WatchLeases(writer.redis, writer.prefix)
        settings = PollingSettings(Timing(round_interval=1.0), deadline=30.0)
        self.workers = [Worker(writer, settings) for _ in range(2)]
        self._round = 0
        writer.create(CLUSTER, RecordSeed())

    def poll(self, worker: int = 0) -> FeedState:
        """Poll a round with a worker; return the place of the record in the changes."""
        self._round += 1
        handle = self.workers[worker].open_record(CLUSTER, self.writer.epoch(CLUSTER))
        addresses = [auth.address for auth in (self.auth, *self.other_auths)]
        self.workers[worker].poll_shard(handle, self._round, (), addresses, source="teleport")
        return unpack_feed(self.writer.feed(CLUSTER, PRESENCE))

    def live_agents(self) -> set[str]:
        """Return the agents whose resource has not expired."""
        ids, _ = self.writer.agent_ids_and_names(CLUSTER)
        blob = self.writer.heartbeats(CLUSTER)
        rows = rows_of(blob, HEARTBEAT, len(blob) // HEARTBEAT.itemsize)
        return {agent for agent, row in zip(ids, rows, strict=True) if row["expires_at"] > time.time()}

    def poll_until(self, agents: set[str], worker: int = 0) -> None:
        """Poll until the record has these unexpired agents."""

        def has_agents() -> bool:
            self.poll(worker)
            return self.live_agents() == agents

        eventually_sync(has_agents)

    def read_missing(self) -> dict[Capability, str]:
        """Return the missing capabilities of the newest round."""
        return MissingCapabilityStore(self.writer.redis, self.writer.prefix).read(CLUSTER)

    def stop(self) -> None:
        """Stop the workers and the auth."""
        for worker in self.workers:
            worker.close()
        for auth in (self.auth, *self.other_auths):
            auth.stop()


@pytest.fixture
def cluster(writer: Writer) -> Iterator[WatchedCluster]:
    """A cluster without a watch."""
    watched_cluster = WatchedCluster(writer)
    yield watched_cluster
    watched_cluster.stop()


def test_changes_are_recorded_without_another_list(cluster: WatchedCluster) -> None:
    """By the rounds of every worker, whichever of them holds the watch."""
    first_feed = cluster.poll()
    assert cluster.live_agents() == {"host-1", "host-2"}
    assert (cluster.auth.list_count, cluster.auth.watch_count) == (1, 1)
    cluster.auth.send(delete_event("node", "host-1"), put_event(make_node("host-3", expires_at=LATER)))
    cluster.poll_until({"host-2", "host-3"}, worker=1)
    cluster.auth.send(put_event(make_node("host-1", expires_at=LATER)))
    cluster.poll_until({"host-1", "host-2", "host-3"})
    feed = cluster.poll()
    assert (feed.epoch, cluster.auth.list_count, cluster.auth.watch_count) == (first_feed.epoch, 1, 1)
    assert feed.revision >= 2
    assert feed.freshness.responded_at > first_feed.freshness.responded_at
    assert Capability.WATCH not in cluster.read_missing()


def test_lost_watch_costs_one_list(cluster: WatchedCluster) -> None:
    """By any worker; what happened meanwhile is in the list."""
    epoch = cluster.poll().epoch
    cluster.auth.resources["node"] = [make_node("host-9", expires_at=LATER)]
    cluster.auth.end_watches()
    cluster.poll_until({"host-9"}, worker=1)
    cluster.poll()
    feed = cluster.poll(1)
    assert feed.epoch not in {"", "list", epoch}
    assert (cluster.auth.list_count, cluster.auth.watch_count) == (2, 1)


def test_holder_that_dies_is_replaced_when_its_lease_expires(cluster: WatchedCluster) -> None:
    """Until then rounds of other workers neither list nor lose agents."""
    assert cluster.leases.take(CLUSTER, "dead", "", 2.0)
    assert cluster.poll(1).epoch == ""
    assert cluster.auth.list_count == 0
    cluster.poll_until({"host-1", "host-2"}, worker=1)
    cluster.poll(1)
    assert cluster.auth.list_count == 1


def test_other_addresses_end_the_watch(cluster: WatchedCluster) -> None:
    """The operator entered another auth, because this one serves old lists."""
    epoch = cluster.poll().epoch
    sick_auth, cluster.auth = cluster.auth, FakeTeleportAuth()
    cluster.auth.resources = {"node": [make_node("host-9", expires_at=LATER)]}
    assert cluster.poll().epoch != epoch
    assert cluster.live_agents() == {"host-9"}
    eventually_sync(lambda: sick_auth.watch_count == 0)
    sick_auth.stop()


def test_auth_that_is_not_ready_is_watched_no_longer(cluster: WatchedCluster) -> None:
    """Without its backend it sends no events, so that every agent would seem to expire."""
    other_auth = FakeTeleportAuth()
    other_auth.page_size = 100
    other_auth.resources = {"node": [make_node("host-9", expires_at=LATER)]}
    cluster.other_auths.append(other_auth)
    cluster.poll()
    assert cluster.auth.watch_count == 1
    cluster.auth.serving = health_pb2.HealthCheckResponse.NOT_SERVING
    cluster.poll_until({"host-9"})
    eventually_sync(lambda: cluster.auth.watch_count == 0)

    def is_other_watched() -> bool:
        cluster.poll()
        return (cluster.auth.watch_count, other_auth.watch_count) == (0, 1)

    eventually_sync(is_other_watched)
    other_auth.send(put_event(make_node("host-8", expires_at=LATER)))
    cluster.poll_until({"host-8", "host-9"})


def test_rebuilt_record_is_listed_again(cluster: WatchedCluster, writer: Writer) -> None:
    cluster.poll()
    writer.redis.delete(writer.keys(CLUSTER).epoch)
    writer.create(CLUSTER, RecordSeed())
    cluster.poll(1)
    assert cluster.live_agents() == {"host-1", "host-2"}
    assert cluster.auth.list_count == 2
    eventually_sync(lambda: cluster.auth.watch_count == 1)


def test_refused_watch_lists_in_each_round(cluster: WatchedCluster) -> None:
    """With the reason. A worker that gets a watch later has its changes recorded by all."""
    cluster.auth.refusals = {"WatchEvents": grpc.StatusCode.PERMISSION_DENIED}
    for list_count in (1, 2):
        assert cluster.poll().epoch == "list"
        assert "lacks the verb read" in cluster.read_missing()[Capability.WATCH]
        assert cluster.auth.list_count == list_count
    cluster.auth.refusals = {}
    assert cluster.poll().epoch == "list"
    epoch = cluster.poll(1).epoch
    assert epoch != "list"
    assert cluster.poll().epoch == epoch
    assert Capability.WATCH not in cluster.read_missing()


def test_refused_watch_is_tried_again(cluster: WatchedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The role may have got the verbs."""
    monkeypatch.setattr(watches_module, "_REFUSED_SECONDS", 0.0)
    cluster.auth.refusals = {"WatchEvents": grpc.StatusCode.PERMISSION_DENIED}
    assert cluster.poll().epoch == "list"
    cluster.auth.refusals = {}
    assert cluster.poll().epoch != "list"


def test_kinds_that_are_not_watched_need_lists(cluster: WatchedCluster) -> None:
    """Changes of their agents would be missed."""
    cluster.auth.unwatched_kinds = {"app_server"}
    assert cluster.poll().epoch == "list"
    assert "app_server" in cluster.read_missing()[Capability.WATCH]
    eventually_sync(lambda: cluster.auth.watch_count == 0)


def test_auth_that_opens_no_watch_is_listed(cluster: WatchedCluster) -> None:
    """As one without its backend: it is asked again in the next round."""
    cluster.auth.refusals = {"WatchEvents": grpc.StatusCode.UNAVAILABLE}
    assert cluster.poll().epoch == "list"
    assert "did not open a watch" in cluster.read_missing()[Capability.WATCH]
    cluster.auth.refusals = {}
    assert cluster.poll().epoch != "list"


def test_paused_cluster_has_no_watch(cluster: WatchedCluster) -> None:
    cluster.poll()
    cluster.workers[0].keep_only(())
    eventually_sync(lambda: cluster.auth.watch_count == 0)
    assert cluster.leases.read(CLUSTER, "", 0) is None
