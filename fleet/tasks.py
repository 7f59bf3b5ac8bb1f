"""What Celery runs: rounds. Each task is short and may be lost or run twice without harm. docs/flow.md, "Rounds"."""

from __future__ import annotations

import functools
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from celery import shared_task
from channels.layers import get_channel_layer
from django.conf import settings

from fleet.alerts.alerting_loops import prune as prune_incidents
from fleet.alerts.outbox import prune as prune_messages
from fleet.changes import runners
from fleet.changes.base_runner import StepContext
from fleet.changes.instance_dialer import Auths, Dialer
from fleet.changes.networking import run as networking_run
from fleet.changes.runners import RUNNERS
from fleet.changes.standing import degradations, degradations_run, drains, drains_run, retirements
from fleet.changes.standing.degradations import DegradeRequest
from fleet.isolation import apart, each_change, each_cluster
from fleet.models import Change, Cluster
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.moments import to_seconds
from fleet.monitoring.evidence import Timing
from fleet.monitoring.history.store import prune, recall, settle
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.pollers.plan import operators_auths, plan
from fleet.monitoring.pollers.policies import ask_all
from fleet.monitoring.pollers.record_sightings import Place
from fleet.monitoring.pollers.worker import Polling, Worker
from fleet.monitoring.publish import publish
from fleet.monitoring.state import RecordLost, StateError
from fleet.monitoring.state.connect import connect, reaching
from fleet.monitoring.state.policy_book import PolicyBook
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.rounds import Rounds
from fleet.monitoring.state.writer import Writer
from fleet.processes import garbage
from fleet.protocol.destination.health import READINGS
from fleet.transport.retry.read_retries import DEFAULT
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.instances import InstanceFacts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Process:
    """What a worker process keeps between tasks."""

    writer: Writer
    rounds: Rounds
    worker: Worker
    timing: Timing
    reader: Reader
    policies: PolicyBook
    #: When each of `tend`'s chores was done last, monotonic.
    tended_at: dict[str, float] = field(default_factory=dict)


@functools.cache
def process() -> Process:
    """Make it when the first task runs, that is after the fork."""
    garbage.collect_less()
    redis = connect(settings.REDIS_URL)
    writer = Writer(redis, settings.REFLOAT_PREFIX)
    timing = Timing(round_interval=settings.REFLOAT_ROUND_INTERVAL)
    polling = Polling(
        timing=timing,
        deadline=settings.REFLOAT_ROUND_DEADLINE,
        fresh_rounds=settings.REFLOAT_FRESH_CHANNEL_ROUNDS,
        tls=_tls(),
        retries=replace(
            DEFAULT, attempts=settings.REFLOAT_READ_RETRIES, backoff=settings.REFLOAT_READ_RETRY_BACKOFF
        ),
        destination_health=READINGS[settings.REFLOAT_DESTINATION_HEALTH],
    )
    return Process(
        writer,
        Rounds(redis, settings.REFLOAT_PREFIX),
        Worker(writer, polling),
        timing,
        Reader(redis, settings.REFLOAT_PREFIX),
        PolicyBook(redis, settings.REFLOAT_PREFIX),
    )


@shared_task(name="fleet.tasks.start_round", ignore_result=True)
def start_round() -> None:
    """Start the round of this moment in every cluster, unless somebody did already.

    The last shard is polled here and now: a fleet of one shard costs one task a round.
    """
    interval = process().timing.round_interval
    last: list[tuple[_Shard, Place]] = []

    def begin(cluster: Cluster) -> None:
        now = time.time()
        for shard in _start(cluster, int(now // interval), now):
            for part, _ in last:
                poll_shard.apply_async(part, expires=interval)
            last[:] = [shard]

    # The next beat tries again; what is shown grows old meanwhile.
    each_cluster("no round", begin)
    for part, place in last:
        with apart(f"cluster {part.cluster}: no round"):
            _poll(part, place)


@shared_task(name="fleet.tasks.poll_shard", ignore_result=True)
def poll_shard(
    cluster: str, number: int, shard: int, instances: Sequence[int], lists: bool, bootstrap: Sequence[str]
) -> None:
    """Poll one shard of a round; who polls the last one concludes the round."""
    _poll(_Shard(cluster, number, shard, instances, lists, bootstrap))


@shared_task(name="fleet.tasks.settle_history", ignore_result=True)
def settle_history(cluster: str) -> None:
    """Give the database all that rounds owe it. Its own task: a hundred thousand rows take longer than many rounds."""
    writer = process().writer
    with apart(f"cluster {cluster}: the database is owed its history until the next round"):
        while settle(writer, cluster):
            pass


@shared_task(name="fleet.tasks.prune_history", ignore_result=True)
def prune_history() -> None:
    """Delete the history that is older than it is kept."""
    with apart("old history is kept until the next hour"):
        before = datetime.now(UTC) - timedelta(days=settings.REFLOAT_HISTORY_DAYS)
        pruned = prune(before)
        prune_incidents(to_seconds(before))
        prune_messages(to_seconds(before))
        if pruned:
            logger.info("deleted %d transitions older than %d days", pruned, settings.REFLOAT_HISTORY_DAYS)


@shared_task(name="fleet.tasks.look_after_networking", ignore_result=True)
def look_after_networking() -> None:
    """Read the networking config of every cluster, carry changes of it on, and hold those done against their plans."""
    each_cluster("networking config", _look_after)


@shared_task(name="fleet.tasks.run_networking_change", ignore_result=True)
def run_networking_change(change_id: int) -> None:
    """Carry one out now; if this is lost, `look_after_networking` does it."""
    each_change([Change.objects.select_related("cluster").get(pk=change_id)], _step)


@shared_task(name="fleet.tasks.step_actions", ignore_result=True)
def step_actions() -> None:
    """Carry every rollout and campaign on by one step; one that is lost is made a second later."""
    each_change(runners.due(step_actions.name, Change.objects.select_related("cluster")), _step)


@shared_task(name="fleet.tasks.read_policies", ignore_result=True)
def read_policies() -> None:
    """Ask every instance for the policies it runs with."""
    each_cluster("policies are not read", _read_policies)


def _read_policies(cluster: Cluster) -> None:
    here = process()
    facts = here.writer.load_instances(cluster.id).values()
    here.policies.write(cluster.id, here.worker.run(ask_all(facts, _tls())))


def _step(change: Change) -> None:
    RUNNERS[ChangeKind(change.kind)].step(change, _context(change.cluster))


def _look_after(cluster: Cluster) -> None:
    each_change(runners.due(look_after_networking.name, cluster.changes.select_related("cluster")), _step)
    networking_run.read(cluster.id, _context(cluster).auths, _now())


@shared_task(name="fleet.tasks.apply_drains", ignore_result=True)
def apply_drains() -> None:
    """Tell instances whether they drain, where they say otherwise than operators want."""
    each_cluster("drains wait", _apply_drains, Cluster.objects.filter(drains__isnull=False).distinct())


def _apply_drains(cluster: Cluster) -> None:
    here = process()
    if due := drains.due(cluster.id, here.writer.load_instances(cluster.id)):
        drains.told(due, here.worker.run(drains_run.tell(due, _tls())), _now())


@shared_task(name="fleet.tasks.degrade_instance", ignore_result=True)
def degrade_instance(**fields: Any) -> None:
    """Have an instance report that it is degraded, or no longer; a failure is a row in the log."""
    here, request = process(), DegradeRequest(**fields)
    instances = here.writer.load_instances(request.cluster)
    if error := here.worker.run(degradations_run.send(request, instances, _tls())):
        degradations.fail(request, error, _now())


@shared_task(name="fleet.tasks.apply_retired", ignore_result=True)
def apply_retired() -> None:
    """Have the record say which agents operators retired, where it says otherwise."""
    writer = process().writer
    each_cluster("retired agents wait", lambda cluster: retirements.apply(writer, cluster.id))


#: What `tend` does, and how often, seconds.
_CHORES: Sequence[tuple[str, Callable[[], None], float]] = (
    ("actions", step_actions, 1.0),
    # Who restarts has forgotten that it drains: until it is told again it gets connections.
    ("drains", apply_drains, 3.0),
    ("networking configs", look_after_networking, 3.0),
    ("policies", read_policies, 5.0),
    # Who retires an agent sends it as well: this is for what was asked while the broker or the record were away.
    ("retired agents", apply_retired, 15.0),
)
#: Seconds that a chore may come early: beat is not that exact.
_EARLY = 0.5


@shared_task(name="fleet.tasks.tend", ignore_result=True)
def tend() -> None:
    """Do what is due by the clock. With several workers each does it; what is done twice does no harm."""
    done_at = process().tended_at
    for name, chore, every in _CHORES:
        now = time.monotonic()
        if name not in done_at or now - done_at[name] >= every - _EARLY:
            done_at[name] = now
            with apart(name):
                chore()


def _context(cluster: Cluster) -> StepContext:
    here = process()
    instances, tls, run = here.writer.load_instances(cluster.id), _tls(), here.worker.run
    auths = Auths(_auths(cluster, instances.values()), tls, run)
    dialer = Dialer(instances.values(), tls, run)
    return StepContext(here.reader, here.writer, auths, dialer, time.time, random.random, _holder())


def _auths(cluster: Cluster, instances: Iterable[InstanceFacts]) -> Iterable[tuple[str, str]]:
    """The auths of a cluster: its gateway first, then those there are, and last those it began with."""
    known = operators_auths(instances, time.time(), process().timing)
    gateway = settings.REFLOAT_GATEWAY if cluster.id == DEFAULT_CLUSTER else ""
    addresses = [(gateway, "gateway")] if gateway else []
    addresses += ((address, "auth") for address in (*known, *cluster.auths))
    return dict.fromkeys(addresses)


def _now() -> datetime:
    return datetime.now(UTC)


def _holder() -> str:
    return f"worker {os.getpid()} on {socket.gethostname()}"


class _Shard(NamedTuple):
    """What `poll_shard` is asked to do, in its order."""

    cluster: str
    round: int
    shard: int
    instances: Sequence[int]
    lists: bool
    bootstrap: Sequence[str]


def _start(cluster: Cluster, number: int, now: float) -> list[tuple[_Shard, Place]]:
    """Begin a round; return its shards with the record that they poll, none if somebody else began it."""
    here = process()
    if not here.rounds.claim(cluster.id, number):
        return []
    epoch = here.writer.epoch(cluster.id) or here.writer.create(cluster.id, recall(cluster.id))
    place = here.worker.place(cluster.id, epoch)
    shards = plan(place.instances, settings.REFLOAT_SHARD_SIZE, now)
    unfinished = here.rounds.begin(cluster.id, number, [shard.number for shard in shards])
    if unfinished is not None:
        # A shard of it died with its worker, or is late: what the others saw must not wait.
        _conclude(cluster.id, unfinished)
    return [
        (_Shard(cluster.id, number, one.number, one.instances, one.lists, cluster.auths), place)
        for one in shards
    ]


def _poll(part: _Shard, place: Place | None = None) -> None:
    here, cluster, number = process(), part.cluster, part.round
    try:
        if not here.rounds.claim_shard(cluster, number, part.shard):
            return
        place = place or here.worker.place(cluster, here.writer.epoch(cluster))
        here.worker.poll_shard(place, number, part.instances, part.bootstrap if part.lists else None)
        if here.rounds.finish(cluster, number, part.shard):
            _conclude(cluster, number)
    except StateError as error:
        logger.warning("cluster %s, round %d, shard %d: %s", cluster, number, part.shard, error)


def _conclude(cluster: str, number: int) -> None:
    """Conclude a round, tell the browsers, and let the database have its due, in this order."""
    here = process()
    try:
        done = conclude(
            here.writer, cluster, number, now=time.time(), timing=here.timing, clock=time.perf_counter
        )
    except RecordLost:
        return  # the next round begins a new one
    if done is not None:
        with reaching():
            here.worker.run(publish(get_channel_layer(), cluster, done.events))
    if here.writer.owes(cluster):
        settle_history.apply_async((cluster,), expires=here.timing.stale_after)


def _tls() -> TLSFiles | None:
    certificate, key, authority = (
        Path(path) if path else None
        for path in (settings.REFLOAT_TLS_CERT, settings.REFLOAT_TLS_KEY, settings.REFLOAT_TLS_CA)
    )
    files = TLSFiles(certificate, key, authority, settings.REFLOAT_TLS_SERVER_NAME)
    return files if files.enabled else None
