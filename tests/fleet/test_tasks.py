"""A round through the tasks themselves, in this process; tests/flow/test_rounds.py has the real worker and beat."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery import signals
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from dashboards.config.celery import app
from fleet import tasks
from fleet.audit import RequestActor
from fleet.changes.operations import degradations, drains
from fleet.changes.operations.degradations import DegradeRequest
from fleet.clusters.test_store import open_test_store
from fleet.models import Agent, AgentChange, Change, Cluster, Drain
from fleet.models.changes import AuditEntry
from fleet.models.networking import NetworkingReading
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.policy_report_store import open_policy_report_store
from fleet.monitoring.state.reader import open_reader
from fleet.vocabulary.changes import Actor, ActorKind
from fleet.vocabulary.clusters import AddressKind, TLSSource
from fleet.vocabulary.node_policies import UNSUPPORTED_ERROR
from fleet.vocabulary.verdicts import State
from fleet.wire import fleet_pb2
from tests.fakes.config_auth import run_config_auth
from tests.fakes.identity_files import make_identity_file
from tests.fakes.instances import FakeAuth, agent_entry
from tests.fakes.waiting import eventually_sync

pytestmark = pytest.mark.django_db


@pytest.fixture
def auth(settings: Settings, valkey_url: str, prefix: str) -> Iterator[FakeAuth]:
    """The auth of the only cluster, with an agent that it lists; tasks run where they are enqueued."""
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    settings.REFLOAT_ROUND_INTERVAL, settings.REFLOAT_ROUND_DEADLINE = 0.001, 60.0
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    fake_auth = FakeAuth("auth-1-id", "auth-1")
    fake_auth.auths = [fake_auth.resource(time.time() + 600)]
    fake_auth.agents = lambda request: fleet_pb2.ListAgentsResponse(
        epoch="e", revision=1, full=request.epoch != "e", agents=[agent_entry("agent-1-id", "auth-1-id")]
    )
    Cluster.objects.create(id="default", name="Default", auths=[fake_auth.address])
    app.conf.task_always_eager = app.conf.task_eager_propagates = True
    tasks.get_worker_resources.cache_clear()
    yield fake_auth
    tasks.get_worker_resources().worker.close()
    tasks.get_worker_resources.cache_clear()
    app.conf.task_always_eager = app.conf.task_eager_propagates = False
    fake_auth.stop()


def test_rounds_reach_record_and_database(auth: FakeAuth, valkey_url: str, prefix: str) -> None:
    """From a row of the cluster to verdicts in the record, and the agent in the database."""
    for _ in range(3):
        tasks.start_round()
    reader = open_reader(valkey_url, prefix)
    summary = reader.summary("default", time.time())
    assert (summary.agent_count, summary.instance_count) == (1, 1)
    assert Agent.objects.get().agent_id == "agent-1-id"
    table = reader.table("default", time.time())
    newest = AgentChange.objects.first()
    assert newest is None or newest.new == reader.agent(table, 0).state


def test_one_shard_of_a_round_is_polled_without_a_task(auth: FakeAuth, settings: Settings) -> None:
    """A fleet of one shard costs one task a round; of two shards one is left for another worker."""
    other_auth = FakeAuth("auth-2-id", "auth-2")
    auth.auths.append(other_auth.resource(time.time() + 600))
    for _ in range(2):
        tasks.start_round()
    shards: list[object] = []

    def record_shard(sender: object, args: Sequence[object], **_: object) -> None:
        if sender is app.tasks["fleet.tasks.poll_shard"]:
            shards.append(args[2])

    signals.task_prerun.connect(record_shard)
    try:
        tasks.start_round()
        assert shards == []
        settings.REFLOAT_SHARD_SIZE = 1
        tasks.start_round()
    finally:
        signals.task_prerun.disconnect(record_shard)
        other_auth.stop()
    assert shards == [1]


def test_expiry_of_the_identity_is_read_until_there_is_none(
    auth: FakeAuth, valkey_url: str, prefix: str, tmp_path: Path
) -> None:
    """A renewed file has a new expiry; a cluster without TLS has none."""
    path, now, reader = tmp_path / "identity", datetime.now(UTC), open_reader(valkey_url, prefix)
    row = Cluster.objects.get()
    row.tls_source, row.tls_files = TLSSource.IDENTITY, {"identity": str(path)}
    row.save()
    for hours in (1, 2):
        ends_at = now.replace(microsecond=0) + timedelta(hours=hours)
        path.write_bytes(make_identity_file(begins_at=now, ends_at=ends_at))
        tasks.read_identities()
        validity = reader.identity("default")
        assert validity is not None
        assert (validity.common_name, validity.expires_at) == ("refloat", ends_at.timestamp())
    row.tls_source = TLSSource.NONE
    row.save()
    tasks.read_identities()
    assert reader.identity("default") is None


def test_unavailable_redis_is_a_warning(
    auth: FakeAuth, settings: Settings, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each round, without a traceback; the round after Redis returned reaches the record."""
    working_url, settings.REDIS_URL = settings.REDIS_URL, "redis://127.0.0.1:1/0"
    tasks.get_worker_resources.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            tasks.start_round()
    tasks.get_worker_resources().worker.close()
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)] * 2
    for line in caplog.messages:
        assert line.startswith("cluster default: this poll of the fleet failed: Redis is not responding")
        assert "\n" not in line
    settings.REDIS_URL = working_url
    tasks.get_worker_resources.cache_clear()
    tasks.start_round()
    assert open_reader(working_url, prefix).summary("default", time.time()).as_of


def test_drain_error_of_an_instance_is_stored(auth: FakeAuth) -> None:
    """An auth that does not support the call; the drain stays due, so the next beat retries."""
    for _ in range(3):
        tasks.start_round()
    Drain.objects.create(
        cluster_id="default",
        instance="auth-1-id",
        name="auth-1",
        is_drained=True,
        reason="x",
        actor_name="alice",
    )
    for _ in range(2):
        tasks.apply_drains()
        row = Drain.objects.get()
        assert "not found" in row.error.lower()
        assert row.applied_at is None
        assert drains.find_due_drains(
            "default", tasks.get_worker_resources().writer.load_instances("default")
        )


def test_failed_degrade_request_is_logged(auth: FakeAuth) -> None:
    """An auth that does not support the call."""
    for _ in range(3):
        tasks.start_round()
    request = DegradeRequest("auth-1-id", "auth-1", is_degraded=True, duration_seconds=60.0)
    actor = RequestActor(Actor(ActorKind.PERSON, "alice"), "r-1")
    change = degradations.request_degradation("default", request, actor, "slow disk", timezone.now)
    tasks.run_change(change.pk)
    row = AuditEntry.objects.get(action="degrade.failed")
    assert (row.change_id, row.request_id) == (change.pk, "r-1")
    assert "not found" in row.detail.lower()


def test_retired_agents_are_marked_and_classified(auth: FakeAuth, valkey_url: str, prefix: str) -> None:
    """The next round counts them as such."""
    for _ in range(3):
        tasks.start_round()
    Agent.objects.update(is_retired=True)
    tasks.apply_retired()
    tasks.start_round()
    counts = open_reader(valkey_url, prefix).summary("default", time.time()).counts
    assert (counts[State.RETIRED], sum(counts.values())) == (1, 1)


def test_config_is_read_from_the_gateway_or_else_from_an_auth(auth: FakeAuth, settings: Settings) -> None:
    """An auth is used if the gateway does not respond."""
    with run_config_auth() as gateway_auth, run_config_auth() as direct_auth:
        gateway_auth.config.metadata.revision = "through"
        direct_auth.config.metadata.revision = "direct"
        Cluster.objects.update(auths=[direct_auth.address])
        settings.REFLOAT_GATEWAY = gateway_auth.address

        tasks.look_after_networking()
        first = NetworkingReading.objects.get()
        settings.REFLOAT_GATEWAY = "127.0.0.1:1"
        tasks.look_after_networking()
        second = NetworkingReading.objects.get()

    assert first.current is not None
    assert first.current.revision == "through"
    assert second.current is not None
    assert (second.current.revision, second.error) == ("direct", "")


def test_policies_are_read_and_actions_stepped(auth: FakeAuth, valkey_url: str, prefix: str) -> None:
    """Reports are stored; a confirmed change of policies is stepped by any worker."""
    for _ in range(2):
        tasks.start_round()
    tasks.read_policies()
    reports = open_policy_report_store(valkey_url, prefix).read("default")
    assert UNSUPPORTED_ERROR in {report.error for report in reports.values()}
    change = Change.objects.create(
        cluster_id="default", kind="policy", title="x", actor_name="a", actor_kind="person", state="confirmed",
        before={}, after={"auth": {"TELEPORT_UNSTABLE_AUTH_ANNOUNCE_TTL": "1m"}},
        parameters={"concurrency": 1, "drain_seconds": 0, "soak_seconds": 0, "timeout_seconds": 10},
    )  # fmt: skip
    tasks.step_actions()
    change.refresh_from_db()
    assert change.state == "verified"


def test_marks_of_an_ended_campaign_are_removed(auth: FakeAuth) -> None:
    """It was aborted on a page; the next step removes its marks."""
    tasks.start_round()
    writer = tasks.get_worker_resources().writer
    writer.expect_reconnects("default", {"agent-1-id": time.time() + 600})
    assert writer.memory("default")["working_until"].all()
    change = Change.objects.create(
        cluster_id="default", kind="reconnect", title="x", actor_name="a", actor_kind="person", state="cancelled",
        before=None, after={}, parameters={}, progress={"has_marks": True},
    )  # fmt: skip
    tasks.step_actions()
    change.refresh_from_db()
    assert change.progress["has_marks"] is False
    assert not writer.memory("default")["working_until"].any()


@contextmanager
def _broken_writes(table: str, cluster: str) -> Iterator[None]:
    """The database refuses every update of the rows of one cluster."""
    refuse = "BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END"
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER broken BEFORE UPDATE ON {table} WHEN NEW.cluster_id = '{cluster}' {refuse}"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER broken")


@pytest.mark.django_db(transaction=True)
def test_database_error_of_one_cluster_does_not_affect_polls_of_others(
    auth: FakeAuth, valkey_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first cluster's record cannot be made from the database; the one after it is polled all the same."""
    Cluster.objects.create(id="a", name="A", auths=[auth.address])
    # A gap in the positions: recalling closes it, which is an update.
    Agent.objects.create(cluster_id="a", agent_id="agent-9-id", name="agent-9", position=5)
    with _broken_writes("fleet_agent", "a"):
        for _ in range(3):
            tasks.start_round()
    assert open_reader(valkey_url, prefix).summary("default", time.time()).agent_count == 1
    assert "cluster a: this poll of the fleet failed: database error" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_database_error_of_one_cluster_does_not_affect_drains_of_others(auth: FakeAuth) -> None:
    """What came of the call is written for the cluster after it."""
    Cluster.objects.create(id="a", name="A", auths=[auth.address])
    for cluster in ("a", "default"):
        Drain.objects.create(
            cluster_id=cluster,
            instance="auth-1-id",
            name="auth-1",
            is_drained=True,
            reason="x",
            actor_name="alice",
        )
    for _ in range(3):
        tasks.start_round()
    with _broken_writes("fleet_drain", "a"):
        tasks.apply_drains()
    assert {row.cluster_id: bool(row.error) for row in Drain.objects.all()} == {"a": False, "default": True}


def test_policies_are_read_over_open_connections(auth: FakeAuth, valkey_url: str) -> None:
    """A task that runs every 5 s opens no new pool for each cluster."""
    redis = connect(valkey_url)

    def count_opened_connections() -> int:
        return int(redis.info("stats")["total_connections_received"])

    for _ in range(2):
        tasks.start_round()
    tasks.read_policies()
    before = count_opened_connections()
    for _ in range(3):
        tasks.read_policies()
    assert count_opened_connections() == before


def test_tend_runs_due_chores(auth: FakeAuth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chore at its interval; an error does not affect other chores."""
    calls: list[str] = []

    def fail() -> None:
        calls.append("fail")
        raise ValueError("no luck")

    def often() -> None:
        calls.append("often")

    def seldom() -> None:
        calls.append("seldom")

    monkeypatch.setattr(tasks, "_CHORES", (("a", fail, 0.4), ("b", often, 0.4), ("c", seldom, 3600.0)))
    for _ in range(2):
        tasks.tend()

    assert calls == ["fail", "often", "seldom", "fail", "often"]


def test_tend_runs_all_chores_at_their_intervals(auth: FakeAuth) -> None:
    """The intervals match the docs."""
    assert {name: interval for name, _chore, interval in tasks._CHORES} == {
        "actions": 1.0, "drains": 3.0, "networking configs": 3.0, "policies": 5.0, "identities": 15.0,
        "retired agents": 15.0,
    }  # fmt: skip


def test_first_auths_are_read_from_a_file(
    auth: FakeAuth, valkey_url: str, prefix: str, tmp_path: Path
) -> None:
    """A round, and requests of changes, use the targets of a file_sd file; a missing one stops neither."""
    path = tmp_path / "auths.json"
    path.write_text(json.dumps([{"targets": [auth.address]}]))
    Cluster.objects.update(address_kind=AddressKind.FILE_SD, auths=[str(path)])
    Cluster.objects.create(
        id="other", name="Other", address_kind=AddressKind.FILE_SD, auths=[f"{tmp_path}/missing.json"]
    )

    for _ in range(3):
        tasks.start_round()

    reader = open_reader(valkey_url, prefix)
    assert reader.summary("default", time.time()).agent_count == 1
    assert reader.summary("other", time.time()).agent_count == 0


def test_requested_connection_test_is_run(auth: FakeAuth, valkey_url: str, prefix: str) -> None:
    """From its request to its report; a cluster that was removed is not tested."""
    store = open_test_store(valkey_url, prefix)

    tasks.test_connection("default", store.create("default", time.time()).test_id)

    def has_ended() -> bool:
        report = store.read("default")
        return report is not None and report.ended_at is not None

    eventually_sync(has_ended)
    report = store.read("default")
    assert report is not None
    assert report.steps[1].text == f"{auth.address} accepts connections."
    removed_report = store.create("removed", time.time())
    tasks.test_connection("removed", removed_report.test_id)
    assert store.read("removed") == removed_report
