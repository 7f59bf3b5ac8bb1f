"""Revisions, plans and verification of networking config changes, without connections to instances.

docs/reference/networking-config.md, "Console". `run.py` writes the config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fleet import audit
from fleet.audit import CONSOLE_ACTOR, RequestActor
from fleet.changes import ChangeRefusedError, StaleRevisionError, engine
from fleet.changes.base_kind import RecordSnapshot
from fleet.changes.engine import ChangeDraft
from fleet.changes.networking import plan as networking_plan
from fleet.changes.networking.plan_input import fleet_snapshot_of, tunnel_counts_of
from fleet.changes.networking.source_rules import SourceRules, rules_of_source
from fleet.changes.networking.titles import describe_changes
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.monitoring.views import FleetTable
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import (
    NetworkingConfig,
    NetworkingConfigError,
    NetworkingResource,
    Origin,
)
from fleet.source_plugins.registry import DEFAULT_SOURCE, find_source
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.changes import ChangeKind, ChangeState

CLOSING_UNSUPPORTED = (
    "this cluster does not support GracefulTunnelClosing: its auth discarded the field on a write"
)
#: Wait after the expected end, because agents check periodically and heartbeats take a moment.
_VERIFY_SLACK = timedelta(seconds=60)
_MAX_CURVE_POINTS = 120


def resource_of(revision: NetworkingRevision) -> NetworkingResource:
    """Return the config of a revision with its metadata."""
    return config_yaml.from_document(revision.document, strict=False)


def config_of(document: Any) -> NetworkingConfig:
    """Return the config of a stored document."""
    return config_yaml.from_document(document, strict=False).config


def base_revision_of(change: Change) -> str:
    """Return the revision that the plan of a change is based on."""
    return config_yaml.from_document(change.before, strict=False).revision


def source_rules_of(cluster: str) -> SourceRules:
    """Return what the source of a cluster means for changes of its networking config."""
    slug = Cluster.objects.filter(pk=cluster).values_list("source", flat=True).first() or DEFAULT_SOURCE
    return rules_of_source(find_source(slug))


def last_reading_of(cluster: str) -> NetworkingReading | None:
    """Return the last reading of a cluster's config; None when no worker has tried to read it yet."""
    return NetworkingReading.objects.select_related("current").filter(cluster=cluster).first()


def record_revision(
    cluster: str, resource: NetworkingResource, now: datetime, *, change: Change | None = None
) -> NetworkingRevision:
    """Store the config that was read, and return its revision; with an audit entry if it was written elsewhere."""
    last_reading, _ = NetworkingReading.objects.get_or_create(cluster_id=cluster)
    resource = replace(resource, omitted_keys=source_rules_of(cluster).omitted_keys)
    previous_revision = last_reading.current
    if previous_revision is not None and previous_revision.revision == resource.revision and change is None:
        NetworkingReading.objects.filter(cluster=cluster).update(read_at=now, error="")
        return previous_revision
    row, is_created = NetworkingRevision.objects.get_or_create(
        cluster_id=cluster,
        revision=resource.revision,
        defaults={
            "document": config_yaml.to_document(resource),
            "previous": previous_revision,
            "author": change.actor_name if change else "",
            "reason": change.reason if change else "",
            "change": change,
            "at": now,
        },
    )
    NetworkingReading.objects.filter(cluster=cluster).update(current=row, read_at=now, error="")
    if resource.config.graceful_tunnel_closing:
        # The auths kept the field, whoever wrote it.
        NetworkingReading.objects.filter(cluster=cluster).update(knows_closing=True)
    if is_created and change is None and previous_revision is not None:
        attempt = CONSOLE_ACTOR.create_attempt(
            AuditAction.NETWORKING_EXTERNAL_WRITE,
            cluster,
            "written outside of Refloat",
            before=previous_revision.document,
            after=row.document,
            detail=f"revision {row.revision} was written outside of Refloat",
        )
        audit.write_entry(attempt, AuditOutcome.SUCCEEDED, now)
    return row


def record_read_error(cluster: str, error: str) -> None:
    """Store why the config could not be read."""
    NetworkingReading.objects.update_or_create(cluster_id=cluster, defaults={"error": error})


def reset_closing_support(cluster: str, actor: RequestActor, now: datetime) -> None:
    """Allow GracefulTunnelClosing again for a cluster that did not support it: its auths may have been upgraded."""
    NetworkingReading.objects.filter(cluster=cluster).update(knows_closing=None)
    audit.write_entry(
        actor.create_attempt(AuditAction.NETWORKING_RESET_CLOSING_SUPPORT, cluster),
        AuditOutcome.SUCCEEDED,
        now,
    )


class NetworkingConflictError(StaleRevisionError):
    """The config was written after the plan was made; `stored_revision`: the present revision."""

    def __init__(self, stored_revision: NetworkingRevision) -> None:
        author = stored_revision.author or "someone outside of Refloat"
        super().__init__(
            f"out of date: {author} wrote revision {stored_revision.revision} in the meantime. Your "
            "change was not applied",
            resource="networking-config",
            revision=stored_revision.revision,
        )
        self.stored_revision = stored_revision


class UnknownRevisionError(StaleRevisionError):
    """A request names a revision that Refloat never read; `stored_revision`: the present one."""

    def __init__(self, unknown_revision: str, stored_revision: NetworkingRevision) -> None:
        super().__init__(
            f"{unknown_revision[:50]!r} is not a revision of this config; the current one is "
            f"{stored_revision.revision}. Your change was not applied",
            resource="networking-config",
            revision=stored_revision.revision,
        )


def require_base_revision(current: NetworkingRevision, base_revision: str) -> None:
    """Raise NetworkingConflictError for an earlier revision than `current`, UnknownRevisionError for any other."""
    if current.revision == base_revision:
        return
    if NetworkingRevision.objects.filter(cluster=current.cluster_id, revision=base_revision).exists():
        raise NetworkingConflictError(current)
    raise UnknownRevisionError(base_revision, current)


def plan_change(
    cluster: str,
    base_revision: str,
    desired_config: NetworkingConfig,
    actor: RequestActor,
    now: datetime,
    record: RecordSnapshot,
    *,
    undone_change_id: int | None = None,
) -> Change:
    """Plan a change from revision `base_revision` to `desired_config`.

    Raises ChangeRefusedError, NetworkingConflictError, NoEvidenceError, each with an audit entry.
    """
    desired_spec = config_yaml.to_document(NetworkingResource(desired_config, {}))["spec"]
    with engine.record_refused_plan(ChangeKind.NETWORKING_CONFIG, cluster, actor, now, desired_spec):
        draft = _draft_change(cluster, base_revision, desired_config, record, undone_change_id)
    return engine.create_change(cluster, draft, actor, now)


def _draft_change(
    cluster: str,
    base_revision: str,
    desired_config: NetworkingConfig,
    record: RecordSnapshot,
    undone_change_id: int | None,
) -> ChangeDraft:
    current = require_current_revision(cluster)
    if current.revision != base_revision:
        raise NetworkingConflictError(current)
    resource = resource_of(current)
    if resource.origin == Origin.CONFIG_FILE:
        raise ChangeRefusedError(
            "the config is managed by the config file of the auths. Edit that file and restart the auths"
        )
    before = rules.with_defaults(resource.config)
    desired_config = rules.with_defaults(desired_config)
    source_rules = source_rules_of(cluster)
    check_config(cluster, before, desired_config)
    differences = rules.differences(before, desired_config)
    if not differences:
        raise ChangeRefusedError(
            "no changes: the values are the same as the present ones (a field set to 0 has its default)"
        )
    fleet = None
    if networking_plan.moves_tunnels(before, desired_config):
        fleet = fleet_snapshot_of(record.table(cluster), record.reader.agent_responses(cluster), record.now)
    plan = networking_plan.plan_of(before, desired_config, fleet, source_rules)
    title = _title_of(differences, undone_change_id)[:200]
    no_closing_note = ""
    if "closing" in plan:
        is_turned_off = before.graceful_tunnel_closing and not desired_config.graceful_tunnel_closing
        no_closing_note = " Excess tunnels then stay open." if is_turned_off else " No tunnels close now."
    plan["question"] = plan["question"] or f"{title}?{no_closing_note}"
    return ChangeDraft(
        ChangeKind.NETWORKING_CONFIG,
        title=title,
        before=current.document,
        after=config_yaml.to_document(replace(resource, config=desired_config)),
        plan=plan,
        affected_count=plan["affected_count"],
        undone_change_id=undone_change_id,
    )


def check_config(cluster: str, before: NetworkingConfig, desired_config: NetworkingConfig) -> None:
    """Raise ChangeRefusedError, with problems by key, for a config that cannot be stored."""
    try:
        if fixed_problems := source_rules_of(cluster).find_fixed_problems(before, desired_config):
            raise NetworkingConfigError(fixed_problems)
        rules.check(desired_config, before)
    except NetworkingConfigError as error:
        raise ChangeRefusedError(
            str(error), {problem.key: problem.sentence for problem in error.problems}
        ) from None
    last_reading = last_reading_of(cluster) if desired_config.graceful_tunnel_closing else None
    if last_reading is not None and last_reading.knows_closing is False:
        raise ChangeRefusedError(CLOSING_UNSUPPORTED, {"graceful_tunnel_closing": CLOSING_UNSUPPORTED})


def require_current_revision(cluster: str) -> NetworkingRevision:
    """Return the last revision that was read. Raises ChangeRefusedError when the config was never read."""
    last_reading = last_reading_of(cluster)
    if last_reading is None or last_reading.current is None:
        reason = (
            last_reading.error
            if last_reading is not None and last_reading.error
            else "no worker has read it yet"
        )
        raise ChangeRefusedError(f"the networking config of {cluster} is unknown: {reason}")
    return last_reading.current


def _title_of(
    differences: Sequence[tuple[rules.ConfigField, rules.FieldValue, rules.FieldValue]],
    undone_change_id: int | None,
) -> str:
    if undone_change_id is not None:
        return engine.undo_title_of(undone_change_id)
    return describe_changes(differences)


def verify(change: Change, table: FleetTable, now: datetime) -> None:
    """Compare the result with the plan; mark the change as verified when the expected time is over or all happened."""
    if table.stale or table.as_of is None or change.ended_at is None:
        return
    plan: Mapping[str, Any] = change.plan
    outcome = networking_plan.compare_with_plan(
        plan, tunnel_counts_of(table, networking_plan.compared_agents_of(plan))
    )
    elapsed_seconds = round((now - change.ended_at).total_seconds(), 1)
    closing_curve = list(change.outcome.get("closing_curve", ()))
    recorded_outcome = {**outcome, "as_of": table.as_of, "closing_curve": closing_curve}
    if not closing_curve or closing_curve[-1][1] != outcome["closed_count"]:
        recorded_outcome["closing_curve"] = [*closing_curve, [elapsed_seconds, outcome["closed_count"]]][
            -_MAX_CURVE_POINTS:
        ]
    if recorded_outcome["closing_curve"] != closing_curve or outcome["opened_count"] != change.outcome.get(
        "opened_count"
    ):
        engine.update_change(change, outcome=recorded_outcome)
    is_overdue = (
        now
        > change.ended_at
        + timedelta(seconds=networking_plan.expected_duration_seconds_of(plan))
        + _VERIFY_SLACK
    )
    if is_overdue or networking_plan.is_done(outcome):
        detail = networking_plan.describe_outcome(outcome)
        engine.transition(change, ChangeState.VERIFIED, now, detail=detail, outcome=recorded_outcome)
