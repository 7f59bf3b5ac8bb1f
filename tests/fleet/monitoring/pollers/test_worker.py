"""A worker that polls fake instances over real gRPC and HTTP into a real Valkey."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2
from typing_extensions import override

from fleet.monitoring.classify import health_of, health_sentence
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.evidence import ReconnectMode, Timing
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.pollers.plan import plan_shards
from fleet.monitoring.pollers.worker import PollingSettings, Worker
from fleet.monitoring.state import RecordLostError
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.monitoring.views import Explanation
from fleet.protocol.destination.health import Health
from fleet.protocol.destination.instance_status import DEGRADED_HEADER, DRAINING_HEADER
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, ServingStatus
from fleet.vocabulary.verdicts import State
from fleet.wire import fleet_pb2
from tests.fakes.instances import FakeAuth, FakeProxy, agent_entry
from tests.fakes.waiting import eventually_sync

CLUSTER = "default"
TIMING = Timing(round_interval=0.6)


class Fleet:
    """Two auths, two proxies and the worker that polls them."""

    def __init__(self, writer: Writer) -> None:
        self.auths = [FakeAuth("auth-1-id", "auth-1"), FakeAuth("auth-2-id", "auth-2")]
        self.proxies = [FakeProxy("proxy-1-id", "proxy-1"), FakeProxy("proxy-2-id", "proxy-2")]
        self.writer = writer
        self.worker = Worker(writer, PollingSettings(TIMING, deadline=60.0, rounds_per_connection=4))
        self.round = 0
        self.list_all()
        self.epoch = writer.create(CLUSTER, RecordSeed())

    def list_all(self, *, ttl: float = 60.0) -> None:
        """Make both auths list all instances."""
        expires_at = time.time() + ttl
        for auth in self.auths:
            auth.auths = [a.resource(expires_at, "60s") for a in self.auths]
            auth.proxies = [p.resource(expires_at, "60s") for p in self.proxies]

    def poll(self) -> None:
        """Poll the whole fleet as one shard."""
        self.round += 1
        [shard] = plan_shards(self.writer.load_instances(CLUSTER), 100, time.time())
        bootstrap = [self.auths[0].address]
        place = self.worker.open_record(CLUSTER, self.writer.epoch(CLUSTER))
        self.worker.poll_shard(place, self.round, shard.instances, bootstrap)

    def facts(self, name: str) -> InstanceFacts:
        """Return the facts of an instance by name."""
        return next(f for f in self.writer.load_instances(CLUSTER).values() if f.name == name)

    def stop(self) -> None:
        """Stop the worker and all instances."""
        self.worker.close()
        for instance in (*self.auths, *self.proxies):
            instance.stop()


@pytest.fixture
def fleet(writer: Writer) -> Iterator[Fleet]:
    """Run a healthy fleet."""
    new_fleet = Fleet(writer)
    yield new_fleet
    new_fleet.stop()


def test_first_polls_discover_all_instances(fleet: Fleet) -> None:
    """From one address: the first poll reads the lists, the second one polls the instances."""
    fleet.poll()
    instances = fleet.writer.load_instances(CLUSTER)
    assert sorted((f.kind, f.name) for f in instances.values()) == [
        (InstanceKind.AUTH, "auth-1"),
        (InstanceKind.AUTH, "auth-2"),
        (InstanceKind.PROXY, "proxy-1"),
        (InstanceKind.PROXY, "proxy-2"),
    ]
    proxy = fleet.facts("proxy-1")
    assert (proxy.address, proxy.diag_address) == (fleet.proxies[0].address, fleet.proxies[0].diag_address)
    assert (proxy.ttl, proxy.attempts) == (60.0, ())
    fleet.poll()
    proxy = fleet.facts("proxy-1")
    assert (proxy.serving, proxy.readyz, proxy.attempts[0].ok) == (ServingStatus.SERVING, 200, True)
    assert fleet.writer.load(CLUSTER).probed_at is not None


def test_unhealthy_response_is_a_successful_attempt(fleet: Fleet) -> None:
    """The instance responded."""
    fleet.poll()
    fleet.proxies[0].serving = health_pb2.HealthCheckResponse.NOT_SERVING
    fleet.proxies[0].readyz = 503
    fleet.poll()
    proxy = fleet.facts("proxy-1")
    assert (proxy.serving, proxy.readyz, proxy.attempts[0].ok) == (ServingStatus.NOT_SERVING, 503, True)


def test_polls_determine_destination_health(fleet: Fleet) -> None:
    """A proxy that reports degraded and draining, and then fails one and two of five polls."""
    proxy, timing = fleet.proxies[0], Timing()

    def health() -> Health:
        return health_of(fleet.facts("proxy-1"), time.time(), timing)

    fleet.poll()
    assert health() is Health.UNKNOWN
    fleet.poll()
    assert health() is Health.HEALTHY
    proxy.metadata = {DEGRADED_HEADER: "busy", DRAINING_HEADER: "kernel update"}
    fleet.poll()
    facts = fleet.facts("proxy-1")
    assert health() is Health.DEGRADED
    assert health_sentence(facts, health()) == "proxy-1 reports that it is degraded: busy."
    assert facts.watch.drain_request is not None
    assert facts.watch.drain_request.reason == "kernel update"
    record = fleet.writer.load(CLUSTER)
    assert record.evidence(time.time(), timing).degraded_instances == {facts.index}
    proxy.metadata = {}
    for _ in range(3):
        fleet.poll()
    assert health() is Health.HEALTHY
    assert fleet.facts("proxy-1").watch.drain_request is None
    proxy.readyz = 503
    fleet.poll()
    assert health() is Health.HEALTHY
    fleet.poll()
    assert "too many of the last probes failed" in health_sentence(fleet.facts("proxy-1"), health())


def test_frozen_proxy_fails_its_attempts_and_recovers(fleet: Fleet) -> None:
    """Two attempts exceed the deadline; the other proxy is not delayed."""
    fleet.poll()
    fleet.proxies[1].freeze_event.set()
    settings_before = fleet.worker.polling
    fleet.worker.polling = replace(settings_before, deadline=0.5)

    def failed_twice() -> bool:
        fleet.poll()
        attempts = {
            name: [attempt.ok for attempt in fleet.facts(name).attempts] for name in ("proxy-1", "proxy-2")
        }
        return attempts["proxy-1"][:1] == [True] and attempts["proxy-2"] == [False, False]

    # More than two polls are needed only if the machine is too busy for the deadline.
    eventually_sync(failed_twice)
    frozen = fleet.facts("proxy-2")
    assert "deadline exceeded" in frozen.attempts[0].error
    feeds = fleet.writer.load(CLUSTER).tunnel_feeds[frozen.index].freshness
    assert feeds.responded_at is None
    assert feeds.attempted_at is not None
    fleet.proxies[1].freeze_event.clear()
    fleet.worker.polling = settings_before
    fleet.poll()
    assert fleet.facts("proxy-2").attempts[0].ok


def test_connections_are_renewed_in_turn(fleet: Fleet) -> None:
    """Each instance every fourth poll, and each in another poll."""
    fleet.poll()
    numbers: dict[int, list[int]] = {
        facts.index: [] for facts in fleet.writer.load_instances(CLUSTER).values()
    }
    discarded_addresses: list[str] = []
    discard = Connections.discard

    async def discard_and_record(self: Connections, address: str) -> None:
        discarded_addresses.append(address)
        await discard(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connections, "discard", discard_and_record)
        for _ in range(4):
            discarded_addresses.clear()
            fleet.poll()
            for index in numbers:
                facts = fleet.writer.load_instances(CLUSTER)[index]
                if facts.address in discarded_addresses:
                    numbers[index].append(fleet.round)
    assert [len(rounds) for rounds in numbers.values()] == [1, 1, 1, 1]
    assert len({rounds[0] for rounds in numbers.values()}) == 4


def test_closed_port_fails_at_once(fleet: Fleet) -> None:
    """The error says that the instance is unavailable."""
    fleet.poll()
    fleet.proxies[1].stop()
    fleet.poll()
    error = fleet.facts("proxy-2").attempts[0].error
    assert "unavailable" in error


def test_lists_are_read_from_a_healthy_auth(fleet: Fleet) -> None:
    """If the current auth fails, the other one is used in the same poll and kept."""
    fleet.poll()
    fleet.poll()
    assert fleet.writer.load(CLUSTER).presence_feed.last_auth == fleet.facts("auth-1").index
    fleet.auths[0].error_code = grpc.StatusCode.UNAVAILABLE
    fleet.poll()
    assert fleet.writer.load(CLUSTER).presence_feed.last_auth == fleet.facts("auth-2").index
    fleet.auths[0].error_code = None
    fleet.poll()
    assert fleet.writer.load(CLUSTER).presence_feed.last_auth == fleet.facts("auth-2").index


def test_no_list_is_read_without_a_healthy_auth(fleet: Fleet) -> None:
    """The attempt counts as fresh, so heartbeats are not stale."""
    fleet.poll()
    for auth in fleet.auths:
        auth.serving = health_pb2.HealthCheckResponse.NOT_SERVING
    fleet.poll()
    before = fleet.writer.load(CLUSTER).presence_feed.freshness
    call_count = len(fleet.auths[0].calls)
    fleet.poll()
    after = fleet.writer.load(CLUSTER).presence_feed.freshness
    assert after.responded_at == before.responded_at
    assert after.attempted_at is not None
    assert before.attempted_at is not None
    assert after.attempted_at > before.attempted_at
    assert len(fleet.auths[0].calls) == call_count + 1  # the health check only


def test_lists_that_fail_are_in_the_log_once(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """And again when they are read again, not once per round."""
    fleet.poll()
    for auth in fleet.auths:
        auth.error_code = grpc.StatusCode.INTERNAL
    with caplog.at_level(logging.INFO, logger="fleet.monitoring.pollers.record_lists"):
        fleet.poll()
        fleet.poll()
        for auth in fleet.auths:
            auth.error_code = None
        fleet.poll()
        fleet.poll()
    assert sorted(caplog.messages) == [
        "cluster default: the list of agents could not be read",
        "cluster default: the list of agents is read again",
        "cluster default: the list of auths and proxies could not be read",
        "cluster default: the list of auths and proxies is read again",
    ]


def test_full_list_ends_missing_agents(fleet: Fleet) -> None:
    """Also over several pages; a change affects only the agents that it names."""
    answers = {
        0: fleet_pb2.ListAgentsResponse(
            epoch="e1",
            revision=3,
            full=True,
            agents=[agent_entry(f"agent-{n}-id", "auth-1-id") for n in (1, 2, 3)],
        ),
        3: fleet_pb2.ListAgentsResponse(
            epoch="e1", revision=4, agents=[agent_entry("agent-2-id", "auth-2-id", expires_in=99)]
        ),
        4: fleet_pb2.ListAgentsResponse(
            epoch="e2", revision=10, full=True, more=True, agents=[agent_entry("agent-4-id", "auth-2-id")]
        ),
        10: fleet_pb2.ListAgentsResponse(
            epoch="e2", revision=11, agents=[agent_entry("agent-3-id", "auth-2-id")], removed=["agent-4-id"]
        ),
        11: fleet_pb2.ListAgentsResponse(epoch="e2", revision=11),
    }
    fleet.auths[0].agents = lambda request: answers[request.since_revision]
    started_at = time.time()
    fleet.poll()
    now = time.time()
    record = fleet.writer.load(CLUSTER)
    assert record.ids == ("agent-1-id", "agent-2-id", "agent-3-id")
    assert record.names[0] == "agent-1"
    expires = record.heartbeats["expires_at"].tolist()
    assert all(started_at + 20 <= at <= now + 20 for at in expires)
    assert set(record.heartbeats["mode"].tolist()) == {ReconnectMode.RECONNECT}
    assert record.memory["tracked_count"].tolist() == [2, 2, 2]
    fleet.poll()
    record = fleet.writer.load(CLUSTER)
    first, second, third = record.heartbeats["expires_at"].tolist()
    assert [first, third] == [expires[0], expires[2]]
    assert now + 99 <= second <= time.time() + 99
    assert record.heartbeats["auth"][1] == fleet.facts("auth-2").index
    fleet.poll()
    record = fleet.writer.load(CLUSTER)
    alive = record.heartbeats["expires_at"] > time.time()
    assert alive.tolist() == [False, False, True]
    fleet.poll()
    assert fleet.writer.load(CLUSTER).presence_feed.revision == 11


def test_unknown_proxies_of_auth_connections_are_ignored(fleet: Fleet) -> None:
    """A proxy that no auth has listed is not added to the roster."""
    listed_agents = agent_entry("agent-1-id", "auth-1-id")
    listed_agents.agent.via_proxy_id = "proxy-1-id"
    agents_with_unknown_proxy = [agent_entry(f"agent-{n}-id", "auth-1-id") for n in range(2, 50)]
    for number, entry in enumerate(agents_with_unknown_proxy):
        entry.agent.via_proxy_id = f"invented-{number}"
    agents_with_unknown_proxy[0].agent.via_proxy_id = "auth-2-id"
    fleet.auths[0].agents = lambda request: fleet_pb2.ListAgentsResponse(
        epoch="e1", revision=1, full=True, agents=[listed_agents, *agents_with_unknown_proxy]
    )

    fleet.poll()

    record = fleet.writer.load(CLUSTER)
    assert len(fleet.writer.instance_identities(CLUSTER)) == 4
    assert record.heartbeats["via_proxy"][0] == fleet.facts("proxy-1").index
    assert set(record.heartbeats["via_proxy"][1:].tolist()) == {NO_INSTANCE}


def test_unfinished_list_is_no_response_about_all_agents(fleet: Fleet) -> None:
    """Resources on later pages would look expired otherwise."""
    listed_agents = [agent_entry("agent-1-id", "auth-1-id")]
    answers = {
        0: fleet_pb2.ListAgentsResponse(epoch="e", revision=1, full=True, agents=listed_agents),
        1: fleet_pb2.ListAgentsResponse(epoch="e", revision=2, more=True, agents=listed_agents),
    }
    fleet.auths[0].agents = lambda request: answers[request.since_revision]
    fleet.poll()
    before = fleet.writer.load(CLUSTER).presence_feed.freshness
    assert before.responded_at == before.attempted_at
    fleet.poll()
    after = fleet.writer.load(CLUSTER).presence_feed
    assert (after.revision, after.freshness.responded_at) == (2, before.responded_at)
    assert (after.freshness.attempted_at or 0.0) > (before.attempted_at or 0.0)
    answers[2] = fleet_pb2.ListAgentsResponse(epoch="e", revision=3)
    fleet.poll()
    assert (fleet.writer.load(CLUSTER).presence_feed.freshness.responded_at or 0.0) > (
        before.responded_at or 0.0
    )


def test_tunnels_follow_the_feed_changes(fleet: Fleet) -> None:
    """By revision; another epoch starts with a full list."""

    def entries(*agents: str) -> list[fleet_pb2.TunnelEntry]:
        return [fleet_pb2.TunnelEntry(agent_id=f"{a}-id", agent_name=a, open_for_ms=5000) for a in agents]

    answers = {
        0: fleet_pb2.ListTunnelsResponse(epoch="p", revision=2, full=True, tunnels=entries("a", "b")),
        2: fleet_pb2.ListTunnelsResponse(epoch="p", revision=4, tunnels=entries("c"), closed=["a-id"]),
        4: fleet_pb2.ListTunnelsResponse(epoch="q", revision=1, full=True, tunnels=entries("d")),
        1: fleet_pb2.ListTunnelsResponse(epoch="q", revision=1),
    }
    fleet.proxies[0].tunnels = lambda request: answers[request.since_revision]
    fleet.poll()

    def agents_of_proxy_1() -> set[str]:
        record = fleet.writer.load(CLUSTER)
        proxy = fleet.facts("proxy-1").index
        return {record.ids[a] for a in record.tunnel_agents[record.tunnel_proxies == proxy]}

    for expected in ({"a-id", "b-id"}, {"b-id", "c-id"}, {"d-id"}, {"d-id"}):
        fleet.poll()
        assert agents_of_proxy_1() == expected


def test_missing_instance_is_deregistered_or_expired(fleet: Fleet) -> None:
    """An instance with much of its TTL left was deregistered; otherwise it expired."""
    fleet.poll()
    for auth in fleet.auths:
        auth.proxies = auth.proxies[:1]
    fleet.poll()
    assert fleet.facts("proxy-2").gone_at is not None
    fleet.list_all()
    fleet.poll()
    assert fleet.facts("proxy-2").gone_at is None
    for auth in fleet.auths:
        auth.proxies = [
            fleet.proxies[0].resource(time.time() + 60),
            fleet.proxies[1].resource(time.time() - 1, "60s"),
        ]
    fleet.poll()
    for auth in fleet.auths:
        auth.proxies = auth.proxies[:1]
    fleet.poll()
    assert fleet.facts("proxy-2").gone_at is None


def test_sick_auth_is_the_cause_of_its_proxy(fleet: Fleet, reader: Reader) -> None:
    """The resource of the proxy names its auth."""
    path = {"refloat.dev/heartbeat-auth": "auth-1-id"}
    for auth in fleet.auths:
        auth.proxies = [
            fleet.proxies[0].resource(time.time() + 60, "60s", **path),
            fleet.proxies[1].resource(time.time() + 60, "60s"),
        ]
    fleet.poll()
    fleet.poll()
    assert (fleet.facts("proxy-1").heartbeat_auth, fleet.facts("proxy-2").heartbeat_auth) == ("auth-1-id", "")
    for instance in (fleet.auths[0], fleet.proxies[0]):
        instance.serving, instance.readyz = health_pb2.HealthCheckResponse.NOT_SERVING, 503
    fleet.poll()
    conclude(fleet.writer, CLUSTER, fleet.round, now=time.time(), timing=TIMING, clock=time.monotonic)
    views = {view.facts.name: view for view in reader.instances(CLUSTER, time.time())}
    assert (views["proxy-1"].cause, views["proxy-2"].cause) == ("auth-1-id", "")
    assert views["proxy-1"].sentence.endswith(": its auth auth-1 lost its backend.")
    assert (views["auth-1"].proxies, views["auth-2"].proxies) == (("proxy-1",), ())


def test_poll_of_a_lost_record_is_an_error(fleet: Fleet) -> None:
    """The next poll creates a new record."""
    fleet.poll()
    fleet.writer.redis.delete(fleet.writer.keys(CLUSTER).epoch)
    with pytest.raises(RecordLostError):
        fleet.poll()


def test_agent_reports_are_read_through_tunnels(fleet: Fleet, reader: Reader) -> None:
    """Reports of unhealthy agents override older heartbeats; an invalid report is an error."""
    auth, proxy = fleet.auths[0], fleet.proxies[0]
    auth.agents = lambda _: fleet_pb2.ListAgentsResponse(
        epoch="agents",
        revision=5,
        full=True,
        agents=[agent_entry(name, auth.id, desired_count=2, expires_in=10.0) for name in ("a-id", "b-id")],
    )
    proxy.tunnels = lambda _: fleet_pb2.ListTunnelsResponse(
        epoch="tunnels",
        revision=5,
        full=True,
        tunnels=[fleet_pb2.TunnelEntry(agent_id=name, agent_name=name) for name in ("a-id", "b-id")],
    )
    proxy.statuses["b-id"] = "mumble"
    proxy.statuses["a-id"] = '{"agent_id": "a-id", "tracker": {"desired_count": 1}, "services": ["web"]}'

    def explain(agent_id: str) -> Explanation:
        explanation = reader.explain(CLUSTER, agent_id, time.time())
        assert explanation is not None
        return explanation

    # Instances first, then their agents, then the reports.
    for _ in range(4):
        fleet.poll()
        conclude(fleet.writer, CLUSTER, fleet.round, now=time.time(), timing=TIMING, clock=time.monotonic)
    agent_with_report, agent_without_report = explain("a-id"), explain("b-id")
    assert agent_with_report.agent_report_response is not None
    assert agent_with_report.agent_report_response.report is not None
    assert agent_with_report.agent_report_response.report.services == ("web",)
    assert agent_with_report.instances[agent_with_report.agent_report_response.proxy].facts.name == "proxy-1"
    assert (agent_with_report.view.state, agent_without_report.view.state) == (State.HEALTHY, State.DEGRADED)
    assert agent_without_report.agent_report_response is not None
    assert agent_without_report.agent_report_response.error.startswith("the agent report is invalid")


def test_result_of_a_round_is_not_written_as_text(writer: Writer) -> None:
    """Python 3.11 did, in an error that it caught itself, and it took a third of the time of a round."""
    texts = []

    class RoundOutcome:
        @override
        def __repr__(self) -> str:
            texts.append("a hundred thousand agents")
            return texts[-1]

    async def work() -> RoundOutcome:
        return RoundOutcome()

    worker = Worker(writer, PollingSettings(TIMING, deadline=1.0))
    assert isinstance(worker.run(work()), RoundOutcome)
    worker.close()
    assert texts == []
