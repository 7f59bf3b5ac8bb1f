"""Writing the networking config of a change, by a worker: update what was read, read it back, say what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import QuerySet
from typing_extensions import override

from fleet.changes import engine
from fleet.changes.base_runner import Runner, StepContext
from fleet.changes.instance_dialer import Auths
from fleet.changes.networking import plan as networking_plan
from fleet.changes.networking import revisions
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.models.networking import NetworkingReading
from fleet.protocol.networking import config as rules
from fleet.transport.admin import (
    AdminError,
    RevisionConflict,
    NetworkingConfigAdmin,
    StoredConfig,
    UnreachableError,
)
from fleet.vocabulary.changes import ChangeState

#: How long a write is tried that reaches nobody.
_TRY_FOR = timedelta(seconds=60)


def read(cluster: str, auths: Auths, now: datetime) -> None:
    """Read what is stored, and take note. While a change is under way that is its own business."""
    if engine.occupant(cluster) is not None:
        return
    try:
        stored = auths.do(_get)
    except AdminError as error:
        revisions.unread(cluster, str(error))
        return
    revisions.remember(cluster, stored.resource, now)


def _write(change: Change, context: StepContext, *, resumed: bool) -> None:
    try:
        after = context.auths.do(lambda client: _update(client, change, resumed=resumed))
    except UnreachableError as error:
        if change.started_at is None or context.moment() < change.started_at + _TRY_FOR:
            engine.note(change, detail=f"tried again: {error}")
            return
        _fail(change, context, f"no auth could be reached; it may have been written: {error}")
    except RevisionConflict as error:
        _remember_theirs(change, context)
        _fail(change, context, f"somebody else wrote meanwhile, and nothing of this was: {error}")
    except AdminError as error:
        _fail(change, context, f"the auth refused it: {error}")
    else:
        _conclude(change, after, context.moment())


async def _update(client: NetworkingConfigAdmin, change: Change, *, resumed: bool) -> StoredConfig:
    """Update and read back; what a worker that died has written already is not written twice."""
    stored = await client.get()
    wanted = revisions.config_of(change.after)
    if resumed and stored.resource.config == wanted:
        return stored
    base = revisions.base_of(change)
    if stored.resource.revision != base:
        raise RevisionConflict(f"revision {stored.resource.revision} is stored, the plan is of {base}")
    await client.update(stored, replace(stored.resource, config=wanted))
    return await client.get()


def _conclude(change: Change, after: StoredConfig, now: datetime) -> None:
    wanted = rules.with_defaults(revisions.config_of(change.after))
    found = rules.with_defaults(after.resource.config)
    row = revisions.remember(change.cluster_id, after.resource, now, change=change)
    lost = [field.key for field, _, _ in rules.differences(wanted, found)]
    if wanted.graceful_tunnel_closing:
        NetworkingReading.objects.filter(cluster=change.cluster_id).update(
            knows_closing=found.graceful_tunnel_closing
        )
    if lost:
        state, sentence = (
            ChangeState.FAILED,
            f"written, but when read back these were not kept: {', '.join(lost)}",
        )
        if "graceful_tunnel_closing" in lost:
            sentence = f"{revisions.UNKNOWN_FIELD}; it is off"
    else:
        waits = networking_plan.moves(change.plan)
        state = ChangeState.VERIFYING if waits else ChangeState.VERIFIED
        sentence = f"written as revision {row.revision}"
    engine.move(
        change,
        state,
        now,
        detail=sentence,
        reason=change.reason,
        log_before=change.before,
        log_after=row.document,
    )
    if not lost:
        engine.take_back(change, now)


def _fail(change: Change, context: StepContext, sentence: str) -> None:
    engine.move(change, ChangeState.FAILED, context.moment(), detail=sentence, reason=change.reason)


def _remember_theirs(change: Change, context: StepContext) -> None:
    try:
        revisions.remember(change.cluster_id, context.auths.do(_get).resource, context.moment())
    except AdminError as error:
        revisions.unread(change.cluster_id, str(error))


async def _get(client: NetworkingConfigAdmin) -> StoredConfig:
    return await client.get()


class NetworkingRunner(Runner):
    """Writes the config of a change, and holds what agents made of it against the plan."""

    task = "fleet.tasks.look_after_networking"

    @override
    def due(self, changes: QuerySet[Change]) -> Iterator[Change]:
        yield from super().due(changes.order_by("pk"))
        yield from changes.filter(state=ChangeState.VERIFYING.value)

    @override
    def step(self, change: Change, context: StepContext) -> None:
        if change.state == ChangeState.VERIFYING:
            table = context.reader.table(change.cluster_id, context.clock())
            revisions.verify(change, table, context.moment())
        else:
            super().step(change, context)

    @override
    def carry_on(self, change: Change, context: StepContext, held: ClusterLease) -> None:
        """Carry a confirmed change out, or go on with one whose worker died."""
        resumed = change.state == ChangeState.RUNNING
        if not resumed:
            engine.start(change, context.moment())
        _write(change, context, resumed=resumed)
