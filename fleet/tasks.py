"""Celery tasks. Each is short, and may be lost or run twice without harm. docs/explanation/data-flow.md, "Rounds"."""

from __future__ import annotations

import functools
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from celery import current_task, shared_task
from channels.layers import get_channel_layer
from django.conf import settings
from django.db.models import QuerySet

from fleet.alerts.alerting_loops import prune as prune_incidents
from fleet.alerts.outbox import prune as prune_notifications
from fleet.changes import runners
from fleet.changes.base_runner import StepContext
from fleet.changes.instance_dialer import AuthClient, Dialer
from fleet.changes.networking import run as networking_run
from fleet.changes.operations import drains, drains_run, retirements
from fleet.changes.runners import RUNNERS
from fleet.clusters.address_cache import AddressCache
from fleet.clusters.background_tests import BackgroundTests
from fleet.clusters.credentials import tls_files_of
from fleet.clusters.identity_expiry import read_validity
from fleet.clusters.test_store import ConnectionTestStore
from fleet.isolation import for_each_change, for_each_cluster, isolate_errors
from fleet.models import Change, Cluster
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.evidence import Timing
from fleet.monitoring.history.attributes import save_attributes
from fleet.monitoring.history.minutes import downsample
from fleet.monitoring.history.retention import (
    compact_past_days,
    create_partitions_ahead,
    delete_old_history,
)
from fleet.monitoring.history.store import flush_outbox, load_record_seed
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.pollers.edge_records import edge_addresses_in_round
from fleet.monitoring.pollers.loaded_source import find_loaded_source
from fleet.monitoring.pollers.plan import find_admin_addresses, plan_shards
from fleet.monitoring.pollers.policies import read_node_reports
from fleet.monitoring.pollers.poll_order import PollOrder
from fleet.monitoring.pollers.poll_reports import PollReports
from fleet.monitoring.pollers.record_sightings import RecordHandle
from fleet.monitoring.pollers.worker import PollingSettings, Worker
from fleet.monitoring.publish import publish
from fleet.monitoring.state import RecordLostError, StateError
from fleet.monitoring.state.connect import connect, map_redis_errors
from fleet.monitoring.state.identities import IdentityStore
from fleet.monitoring.state.policy_report_store import PolicyReportStore
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.rounds import Rounds, RoundStart
from fleet.monitoring.state.writer import Writer
from fleet.processes import garbage
from fleet.protocol.destination.health import SETTINGS_BY_NAME
from fleet.source_plugins.registry import find_source
from fleet.transport.retry.read_retries import DEFAULT_READ_RETRIES
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.clusters import AddressKind
from fleet.vocabulary.instances import InstanceFacts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerResources:
    """Objects that a worker process keeps between tasks."""

    writer: Writer
    rounds: Rounds
    worker: Worker
    timing: Timing
    reader: Reader
    policy_report_store: PolicyReportStore
    identity_store: IdentityStore
    address_cache: AddressCache
    background_tests: BackgroundTests
    poll_order: PollOrder
    poll_reports: PollReports
    #: When each chore of `tend` last ran, by its name; monotonic seconds.
    last_run_times: dict[str, float] = field(default_factory=dict)


@functools.cache
def get_worker_resources() -> WorkerResources:
    """Return the objects of this process; created at its first task, after the fork."""
    garbage.collect_less()
    redis = connect(settings.REDIS_URL)
    writer = Writer(redis, settings.REFLOAT_PREFIX)
    timing = Timing(round_interval=settings.REFLOAT_ROUND_INTERVAL)
    polling = PollingSettings(
        timing=timing,
        deadline=settings.REFLOAT_ROUND_DEADLINE,
        rounds_per_connection=settings.REFLOAT_FRESH_CHANNEL_ROUNDS,
        retry_policy=replace(
            DEFAULT_READ_RETRIES,
            attempts=settings.REFLOAT_READ_RETRIES,
            backoff=settings.REFLOAT_READ_RETRY_BACKOFF,
        ),
        health_settings=SETTINGS_BY_NAME[settings.REFLOAT_DESTINATION_HEALTH],
    )
    return WorkerResources(
        writer,
        Rounds(redis, settings.REFLOAT_PREFIX),
        Worker(writer, polling),
        timing,
        Reader(redis, settings.REFLOAT_PREFIX),
        PolicyReportStore(redis, settings.REFLOAT_PREFIX),
        IdentityStore(redis, settings.REFLOAT_PREFIX),
        AddressCache(),
        BackgroundTests(ConnectionTestStore(redis, settings.REFLOAT_PREFIX)),
        PollOrder(settings.REFLOAT_ROUND_DEADLINE),
        PollReports(redis, settings.REFLOAT_PREFIX),
    )


@shared_task(name="fleet.tasks.start_round", ignore_result=True)
def start_round() -> None:
    """Start the current round in every cluster that is not paused, unless another worker has started it.

    One shard is polled in this task: a fleet of one shard costs one task per round.
    """
    resources = get_worker_resources()
    interval = resources.timing.round_interval
    shards: list[tuple[Cluster, _ShardTask, RecordHandle]] = []
    clusters: list[Cluster] = []
    resources.poll_reports.note_alive("polls")
    with isolate_errors("this poll of the fleet failed"):
        clusters += filter(_has_source, Cluster.objects.filter(is_paused=False))
        resources.worker.keep_only({cluster.id for cluster in clusters})
        resources.address_cache.keep_only({cluster.id for cluster in clusters})
        resources.poll_order.keep_only({cluster.id for cluster in clusters})

    def begin_round(cluster: Cluster) -> None:
        now = time.time()
        shards.extend((cluster, *shard) for shard in _start_round(cluster, int(now // interval), now))

    # The next beat tries again; until then the data gets older.
    for_each_cluster("this poll of the fleet failed", begin_round, clusters)
    shards.sort(key=lambda shard: resources.poll_order.sort_key(shard[0].id))
    for _, later_shard_task, _ in shards[1:]:
        poll_shard.apply_async(later_shard_task, expires=interval)
    for cluster, shard_task, handle in shards[:1]:
        with isolate_errors(f"cluster {cluster.id}: this poll of the fleet failed"):
            _poll_shard(cluster, shard_task, handle)


@shared_task(name="fleet.tasks.poll_shard", ignore_result=True)
def poll_shard(
    cluster: str,
    round_number: int,
    shard_number: int,
    instances: Sequence[int],
    should_list: bool,
    bootstrap_addresses: Sequence[str],
) -> None:
    """Poll one shard of a round; the task of the last shard concludes the round."""
    shard_task = _ShardTask(cluster, round_number, shard_number, instances, should_list, bootstrap_addresses)
    # None: the cluster was removed or paused during the round.
    row = Cluster.objects.filter(pk=cluster, is_paused=False).first()
    if row is not None and _has_source(row):
        _poll_shard(row, shard_task)


@shared_task(name="fleet.tasks.settle_history", ignore_result=True)
def settle_history(cluster: str) -> None:
    """Write the history of past rounds to the database. Its own task: 100,000 rows take longer than many rounds."""
    writer = get_worker_resources().writer
    with isolate_errors(f"cluster {cluster}: the history was not written; the next round tries again"):
        while flush_outbox(writer, cluster):
            pass
        while save_attributes(writer, cluster):
            pass


@shared_task(name="fleet.tasks.prune_history", ignore_result=True)
def prune_history() -> None:
    """Delete history, incidents and notifications older than REFLOAT_HISTORY_DAYS; make older history smaller."""
    now = time.time()
    with isolate_errors("the history of past days was not compacted; the next attempt is in 1 h"):
        compact_past_days(now)
    with isolate_errors("old history was not deleted; the next attempt is in 1 h"):
        create_partitions_ahead(now)
        downsample(now)
        if not settings.REFLOAT_HISTORY_DAYS:
            return
        before = now - settings.REFLOAT_HISTORY_DAYS * _DAY_SECONDS
        prune_incidents(before)
        prune_notifications(before)
        if deleted_count := delete_old_history(before):
            logger.info("deleted %d changes older than %d days", deleted_count, settings.REFLOAT_HISTORY_DAYS)


@shared_task(name="fleet.tasks.look_after_networking", ignore_result=True)
def look_after_networking() -> None:
    """Read the networking config of every cluster, run changes of it, and verify finished changes."""
    for_each_cluster("networking config was not read", _advance_networking)


@shared_task(name="fleet.tasks.run_change", ignore_result=True)
def run_change(change_id: int) -> None:
    """Run a confirmed change now; if this task is lost, the periodic task of its kind runs the change."""
    for_each_change(_unpaused_changes().filter(pk=change_id), _run_step)


@shared_task(name="fleet.tasks.step_actions", ignore_result=True)
def step_actions() -> None:
    """Run one step of every change but those of the networking config; a lost step is run 1 s later."""
    for_each_change(runners.find_due(step_actions.name, _unpaused_changes()), _run_step)


@shared_task(name="fleet.tasks.test_connection", ignore_result=True)
def test_connection(cluster_id: str, test_id: str) -> None:
    """Start a requested connection test, which runs beside other tasks; only its first task starts it."""
    with isolate_errors(f"cluster {cluster_id}: the connection was not tested"):
        cluster = Cluster.objects.filter(pk=cluster_id).first()
        if cluster is not None:
            get_worker_resources().background_tests.start(
                cluster_id,
                test_id,
                AddressKind(cluster.address_kind),
                cluster.auths,
                tls_files_of(cluster),
                cluster.source,
                cluster.diag_addresses,
            )


@shared_task(name="fleet.tasks.read_policies", ignore_result=True)
def read_policies() -> None:
    """Read the policies that every instance runs with."""
    for_each_cluster("policies were not read", _read_cluster_policies)


def _read_cluster_policies(cluster: Cluster) -> None:
    loaded_source = find_loaded_source(cluster.source)
    policies = None if loaded_source is None else loaded_source.polling.policies
    if policies is None:
        return
    resources = get_worker_resources()
    facts = resources.writer.load_instances(cluster.id).values()
    reports = resources.worker.run(read_node_reports(facts, tls_files_of(cluster), source=policies))
    resources.policy_report_store.write(cluster.id, reports)


@shared_task(name="fleet.tasks.read_identities", ignore_result=True)
def read_identities() -> None:
    """Read until when the identity of Refloat for each cluster is valid: its file may have been renewed."""
    store = get_worker_resources().identity_store
    for_each_cluster(
        "the identity of Refloat was not read",
        lambda cluster: store.write(cluster.id, read_validity(tls_files_of(cluster))),
    )


def _has_source(cluster: Cluster) -> bool:
    """Return whether the source of a cluster can be used; the page of the cluster and `refloat doctor` say if not."""
    return find_loaded_source(cluster.source) is not None


def _unpaused_changes() -> QuerySet[Change]:
    """Return the changes in clusters that are not paused; the others wait until their cluster is resumed."""
    return Change.objects.select_related("cluster").filter(cluster__is_paused=False)


def _run_step(change: Change) -> None:
    RUNNERS[ChangeKind(change.kind)].step(change, _step_context_of(change.cluster))


def _advance_networking(cluster: Cluster) -> None:
    for_each_change(
        runners.find_due(look_after_networking.name, cluster.changes.select_related("cluster")), _run_step
    )
    source = find_source(cluster.source)
    if source is not None and Capability.NETWORKING_READ in source.capabilities:
        networking_run.read_config(cluster.id, _step_context_of(cluster).auth_client, _now())


@shared_task(name="fleet.tasks.apply_drains", ignore_result=True)
def apply_drains() -> None:
    """Send drain requests to the instances that do not match them."""
    for_each_cluster(
        "drain requests were not sent",
        _apply_cluster_drains,
        Cluster.objects.filter(drains__isnull=False, is_paused=False).distinct(),
    )


def _apply_cluster_drains(cluster: Cluster) -> None:
    resources = get_worker_resources()
    if due_drains := drains.find_due_drains(cluster.id, resources.writer.load_instances(cluster.id)):
        drains.record_responses(
            due_drains,
            resources.worker.run(drains_run.send_drain_requests(due_drains, tls_files_of(cluster))),
            _now(),
        )


@shared_task(name="fleet.tasks.apply_retired", ignore_result=True)
def apply_retired() -> None:
    """Copy to the record which agents are retired, where the record differs."""
    writer = get_worker_resources().writer
    for_each_cluster(
        "retired agents were not updated", lambda cluster: retirements.copy_to_record(writer, cluster.id)
    )


#: Chores of `tend`: name, function, and interval in seconds.
_CHORES: Sequence[tuple[str, Callable[[], None], float]] = (
    ("actions", step_actions, 1.0),
    # An instance that restarts forgets that it drains, and gets connections until the request is sent again.
    ("drains", apply_drains, 3.0),
    ("networking configs", look_after_networking, 3.0),
    ("policies", read_policies, 5.0),
    ("identities", read_identities, 15.0),
    # Retiring an agent updates the record too: this is for requests while the broker or the record was away.
    ("retired agents", apply_retired, 15.0),
)
_DAY_SECONDS = 86400.0
#: Share of a round's deadline to wait for the first addresses of a cluster, once; later rounds use the last ones.
_RESOLUTION_SHARE = 0.25
#: Seconds that a chore may run early: beat is not more exact.
_EARLY_SECONDS = 0.5


@shared_task(name="fleet.tasks.tend", ignore_result=True)
def tend() -> None:
    """Run the chores that are due. Every worker does so; running a chore twice does no harm."""
    last_run_times = get_worker_resources().last_run_times
    get_worker_resources().poll_reports.note_alive("actions")
    for name, chore, interval_seconds in _CHORES:
        now = time.monotonic()
        if name not in last_run_times or now - last_run_times[name] >= interval_seconds - _EARLY_SECONDS:
            last_run_times[name] = now
            with isolate_errors(name):
                chore()


def _step_context_of(cluster: Cluster) -> StepContext:
    resources = get_worker_resources()
    instances, tls, run = (
        resources.writer.load_instances(cluster.id),
        tls_files_of(cluster),
        resources.worker.run,
    )
    auth_client = AuthClient(_auth_addresses_of(cluster, instances.values()), tls, run)
    dialer = Dialer(instances.values(), tls, run)
    return StepContext(
        resources.reader, resources.writer, auth_client, dialer, time.time, random.random, _format_holder()
    )


def _auth_addresses_of(cluster: Cluster, instances: Iterable[InstanceFacts]) -> Iterable[tuple[str, str]]:
    """Return the addresses of a cluster's auths: its gateway, the auths that were seen, then the configured ones."""
    resources = get_worker_resources()
    discovered_addresses = find_admin_addresses(instances, time.time(), resources.timing)
    gateway = settings.REFLOAT_GATEWAY if cluster.id == DEFAULT_CLUSTER else ""
    addresses = [(gateway, "gateway")] if gateway else []
    addresses += ((address, "auth") for address in (*discovered_addresses, *_first_addresses_of(cluster)))
    return dict.fromkeys(addresses)


def _first_addresses_of(cluster: Cluster) -> Sequence[str]:
    """Return the configured addresses of a cluster's auths, resolved; a round hardly waits for them."""
    cache = get_worker_resources().address_cache
    wait_seconds = settings.REFLOAT_ROUND_DEADLINE * _RESOLUTION_SHARE
    return cache.addresses_of(
        cluster.id, AddressKind(cluster.address_kind), cluster.auths, wait_seconds=wait_seconds
    ).addresses


def _now() -> datetime:
    return datetime.now(UTC)


def _format_holder() -> str:
    return f"worker {os.getpid()} on {socket.gethostname()}"


class _ShardTask(NamedTuple):
    """Arguments of `poll_shard`, in order."""

    cluster: str
    round_number: int
    shard_number: int
    instances: Sequence[int]
    should_list: bool
    bootstrap_addresses: Sequence[str]


def _start_round(cluster: Cluster, round_number: int, now: float) -> list[tuple[_ShardTask, RecordHandle]]:
    """Begin a round and return its shards with their record; empty when another worker began the round."""
    resources = get_worker_resources()
    if not resources.rounds.claim(cluster.id, round_number, _describe_start(now)):
        return []
    epoch = resources.writer.epoch(cluster.id)
    if epoch is None:
        if not Cluster.objects.filter(pk=cluster.id).exists():
            return []  # it was just removed, and its record must not come back
        epoch = resources.writer.create(cluster.id, load_record_seed(cluster.id))
    handle = resources.worker.open_record(cluster.id, epoch)
    shards = plan_shards(handle.instances, settings.REFLOAT_SHARD_SIZE, now)
    unfinished_round_number = resources.rounds.begin(
        cluster.id, round_number, [shard.number for shard in shards]
    )
    if unfinished_round_number is not None:
        # One of its shards died with its worker or is late: the results of the others must not wait.
        _conclude_round(cluster.id, unfinished_round_number, is_complete=False)
    bootstrap_addresses = _first_addresses_of(cluster)
    return [
        (
            _ShardTask(
                cluster.id,
                round_number,
                planned_shard.number,
                planned_shard.instances,
                planned_shard.reads_lists,
                bootstrap_addresses,
            ),
            handle,
        )
        for planned_shard in shards
    ]


def _poll_shard(cluster: Cluster, shard_task: _ShardTask, handle: RecordHandle | None = None) -> None:
    resources, round_number = get_worker_resources(), shard_task.round_number
    began_at = time.monotonic()
    try:
        if not resources.rounds.claim_shard(cluster.id, round_number, shard_task.shard_number):
            return
        handle = handle or resources.worker.open_record(cluster.id, resources.writer.epoch(cluster.id))
        shard_result = resources.worker.poll_shard(
            handle,
            round_number,
            shard_task.instances,
            shard_task.bootstrap_addresses if shard_task.should_list else None,
            tls_files_of(cluster),
            cluster.source,
            cluster.diag_addresses,
            edge_addresses_in_round(cluster.edge_instances, round_number, resources.timing.round_interval),
        )
        ended_at = time.monotonic()
        resources.poll_order.note(cluster.id, began_at, ended_at)
        resources.poll_reports.note_alive("polls")
        resources.poll_reports.note_shard(
            cluster.id, round_number, shard_task.shard_number, shard_result, ended_at - began_at
        )
        if resources.rounds.finish_shard(cluster.id, round_number, shard_task.shard_number):
            _conclude_round(cluster.id, round_number, is_complete=True)
    except StateError as error:
        logger.warning(
            "cluster %s, round %d, shard %d: %s", cluster.id, round_number, shard_task.shard_number, error
        )


def _describe_start(now: float) -> RoundStart:
    """Return how this task starts a round at `now`, with the process that enqueued the task."""
    # Celery's proxy is false outside a task.
    request = current_task.request if bool(current_task) else None
    expires = getattr(request, "expires", None)
    interval = get_worker_resources().timing.round_interval
    # The scheduler lets a round expire one interval after it enqueued it.
    enqueued_at = datetime.fromisoformat(expires).timestamp() - interval if isinstance(expires, str) else 0.0
    return RoundStart(now, getattr(request, "origin", None) or "", enqueued_at)


def _conclude_round(cluster: str, round_number: int, *, is_complete: bool) -> None:
    """Conclude a round, publish its events to browsers, and write its history, in this order."""
    resources = get_worker_resources()
    try:
        conclusion = conclude(
            resources.writer,
            cluster,
            round_number,
            now=time.time(),
            timing=resources.timing,
            clock=time.perf_counter,
        )
    except RecordLostError:
        return  # the next round begins a new one
    if conclusion is not None:
        with map_redis_errors():
            resources.worker.run(publish(get_channel_layer(), cluster, conclusion.events))
        resources.poll_reports.note_round(
            cluster, round_number, conclusion.header.as_of, is_complete=is_complete
        )
    if resources.writer.has_outbox_entries(cluster):
        settle_history.apply_async((cluster,), expires=resources.timing.stale_after)
