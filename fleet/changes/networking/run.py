"""Writes the networking config of a change, on a worker: update, read back, store the result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import QuerySet
from typing_extensions import override

from fleet.changes import engine
from fleet.changes.base_runner import Runner, StepContext
from fleet.changes.instance_dialer import AuthClient
from fleet.changes.networking import plan as networking_plan
from fleet.changes.networking import revisions
from fleet.changes.networking.refusals import describe_refusal
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.models.networking import NetworkingReading
from fleet.protocol.networking import config as rules
from fleet.transport.admin import (
    AdminError,
    NetworkingConfigClient,
    RevisionConflictError,
    StoredConfig,
    UnreachableError,
)
from fleet.vocabulary.changes import ChangeState

#: How long a write is retried while no auth is reachable.
_WRITE_TIMEOUT = timedelta(seconds=60)
#: Reads after a write until the cache of an auth has it, and the seconds between two of them.
_CACHE_READS = 20
_CACHE_READ_SECONDS = 0.1


def read_config(cluster: str, auth_client: AuthClient, now: datetime) -> None:
    """Read the config of a cluster and store it; not while a change is running, which reads it back itself."""
    if engine.find_running_change(cluster) is not None:
        return
    try:
        stored_config = auth_client.call(_get_config)
    except AdminError as error:
        revisions.record_read_error(cluster, str(error))
        return
    revisions.record_revision(cluster, stored_config.resource, now)


def _write_config(change: Change, context: StepContext, *, is_resumed: bool) -> None:
    attempt = _WriteAttempt(is_resumed)
    try:
        stored_config = context.auth_client.call(lambda client: _update_config(client, change, attempt))
    except UnreachableError as error:
        if change.started_at is None or context.now() < change.started_at + _WRITE_TIMEOUT:
            engine.update_change(change, detail=f"retrying: no auth is reachable: {error}")
            return
        _fail_change(
            change, context, f"no auth was reachable within 60 s; the config may have been written: {error}"
        )
    except RevisionConflictError as error:
        _record_stored_revision(change, context)
        _fail_change(
            change,
            context,
            f"conflict: the config was changed in the meantime, and this change was not written: {error}",
        )
    except AdminError as error:
        _fail_change(change, context, describe_refusal(str(error)))
    else:
        _finish_change(change, stored_config, context.now())


@dataclass(slots=True)
class _WriteAttempt:
    """Whether the config of a change may have been written: by a worker that died, or with a response that was lost."""

    is_begun: bool


async def _update_config(
    client: NetworkingConfigClient, change: Change, attempt: _WriteAttempt
) -> StoredConfig:
    """Write the config and read it back; do not repeat a write that was applied."""
    stored_config = await client.get()
    desired_config = revisions.config_of(change.after)
    was_begun, attempt.is_begun = attempt.is_begun, True
    if was_begun and stored_config.resource.config == desired_config:
        return stored_config
    base_revision = revisions.base_revision_of(change)
    if stored_config.resource.revision != base_revision:
        raise RevisionConflictError(
            f"the stored revision is {stored_config.resource.revision}, but the plan is based on {base_revision}"
        )
    try:
        written_config = await client.update(
            stored_config, replace(stored_config.resource, config=desired_config)
        )
    except RevisionConflictError:
        current_config = await _read_back(client, base_revision, stored_config)
        if was_begun and current_config.resource.config == desired_config:
            return current_config
        raise
    return await _read_back(client, base_revision, written_config)


async def _read_back(
    client: NetworkingConfigClient, base_revision: str, written_config: StoredConfig
) -> StoredConfig:
    """Return the config as an auth serves it after a write.

    Auths of Teleport serve reads from a cache, which may have the config before the write for a moment. If it lasts, or
    the auth does not respond any more, return what the auth responded before.
    """
    for _ in range(_CACHE_READS):
        try:
            stored_config = await client.get()
        except UnreachableError:
            break
        if stored_config.resource.revision != base_revision:
            return stored_config
        await asyncio.sleep(_CACHE_READ_SECONDS)
    return written_config


def _finish_change(change: Change, stored_config: StoredConfig, now: datetime) -> None:
    desired_config = rules.with_defaults(revisions.config_of(change.after))
    actual_config = rules.with_defaults(stored_config.resource.config)
    row = revisions.record_revision(change.cluster_id, stored_config.resource, now, change=change)
    dropped_fields = [field.key for field, _, _ in rules.differences(desired_config, actual_config)]
    if desired_config.graceful_tunnel_closing:
        NetworkingReading.objects.filter(cluster=change.cluster_id).update(
            knows_closing=actual_config.graceful_tunnel_closing
        )
    if dropped_fields:
        state, sentence = (
            ChangeState.FAILED,
            f"the config was written, but the auth did not keep these fields: {', '.join(dropped_fields)}",
        )
        if "graceful_tunnel_closing" in dropped_fields:
            sentence = f"{revisions.CLOSING_UNSUPPORTED}. It is off"
    else:
        has_moves = networking_plan.has_tunnel_moves(change.plan)
        state = ChangeState.VERIFYING if has_moves else ChangeState.VERIFIED
        sentence = f"written as revision {row.revision}"
    engine.transition(
        change,
        state,
        now,
        detail=sentence,
        reason=change.reason,
        log_before=change.before,
        log_after=row.document,
    )
    if not dropped_fields:
        engine.mark_original_undone(change, now)


def _fail_change(change: Change, context: StepContext, sentence: str) -> None:
    engine.transition(change, ChangeState.FAILED, context.now(), detail=sentence, reason=change.reason)


def _record_stored_revision(change: Change, context: StepContext) -> None:
    try:
        revisions.record_revision(
            change.cluster_id, context.auth_client.call(_get_config).resource, context.now()
        )
    except AdminError as error:
        revisions.record_read_error(change.cluster_id, str(error))


async def _get_config(client: NetworkingConfigClient) -> StoredConfig:
    return await client.get()


class NetworkingRunner(Runner):
    """Writes the config of a change, and compares the resulting tunnels with the plan."""

    step_task = "fleet.tasks.look_after_networking"

    @override
    def find_due(self, changes: QuerySet[Change]) -> Iterator[Change]:
        yield from super().find_due(changes.order_by("pk"))
        yield from changes.filter(state=ChangeState.VERIFYING.value)

    @override
    def step(self, change: Change, context: StepContext) -> None:
        if change.state == ChangeState.VERIFYING:
            table = context.reader.table(change.cluster_id, context.clock())
            revisions.verify(change, table, context.now())
        else:
            super().step(change, context)

    @override
    def advance(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        """Carry out a confirmed change, or continue one whose worker died."""
        if change.state not in (ChangeState.CONFIRMED, ChangeState.RUNNING):
            # Another worker made the step since the change was selected. To start it again would be a refused attempt.
            return
        is_resumed = change.state == ChangeState.RUNNING
        if not is_resumed:
            engine.start(change, context.now())
        _write_config(change, context, is_resumed=is_resumed)
