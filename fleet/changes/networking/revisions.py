"""Changes of the networking config as far as they dial nobody: revisions, plans, what came of them.

docs/networking-config.md, "In the console". Writing is in `run.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fleet import audit
from fleet.audit import CONSOLE, By
from fleet.changes import Refused, Stale, engine
from fleet.changes.base_kind import Record
from fleet.changes.engine import Draft
from fleet.changes.networking import plan as networking_plan
from fleet.changes.networking.plan_input import fleet_of, tunnels_of
from fleet.models.changes import Change
from fleet.models.networking import NetworkingReading, NetworkingRevision
from fleet.monitoring.views import FleetTable
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfig, NetworkingConfigError, Origin, NetworkingResource
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.changes import ChangeKind, ChangeState

UNKNOWN_FIELD = "this cluster does not know GracefulTunnelClosing: it did not keep it when it was written"
#: After the foreseen end: agents look now and then, and heartbeats take a moment.
_SLACK = timedelta(seconds=60)
_POINTS = 120


def resource_of(revision: NetworkingRevision) -> NetworkingResource:
    """The config of a revision."""
    return config_yaml.from_document(revision.document, strict=False)


def config_of(document: Any) -> NetworkingConfig:
    """The config of a kept document."""
    return config_yaml.from_document(document, strict=False).config


def base_of(change: Change) -> str:
    """The revision that a change was planned on."""
    return config_yaml.from_document(change.before, strict=False).revision


def reading_of(cluster: str) -> NetworkingReading | None:
    """What is known of a cluster's config; None before anybody tried to read it."""
    return NetworkingReading.objects.select_related("current").filter(cluster=cluster).first()


def remember(
    cluster: str, resource: NetworkingResource, now: datetime, *, change: Change | None = None
) -> NetworkingRevision:
    """Take note of what is stored now; one that nobody here wrote is a row in the log as well."""
    reading, _ = NetworkingReading.objects.get_or_create(cluster_id=cluster)
    before = reading.current
    if before is not None and before.revision == resource.revision and change is None:
        NetworkingReading.objects.filter(cluster=cluster).update(read_at=now, error="")
        return before
    row, made = NetworkingRevision.objects.get_or_create(
        cluster_id=cluster,
        revision=resource.revision,
        defaults={
            "document": config_yaml.to_document(resource),
            "previous": before,
            "who": change.who if change else "",
            "reason": change.reason if change else "",
            "change": change,
            "at": now,
        },
    )
    NetworkingReading.objects.filter(cluster=cluster).update(current=row, read_at=now, error="")
    if resource.config.graceful_tunnel_closing:
        # Whoever wrote it: it was kept.
        NetworkingReading.objects.filter(cluster=cluster).update(knows_closing=True)
    if made and change is None and before is not None:
        seen = CONSOLE.attempt(
            AuditAction.NETWORKING_SEEN,
            cluster,
            "written by somebody else",
            before=before.document,
            after=row.document,
            detail=f"revision {row.revision} was not written through this console",
        )
        audit.record(seen, AuditOutcome.DONE, now)
    return row


def unread(cluster: str, error: str) -> None:
    """Take note that the config could not be read."""
    NetworkingReading.objects.update_or_create(cluster_id=cluster, defaults={"error": error})


def try_closing(cluster: str, by: By, now: datetime) -> None:
    """Forget that a cluster did not know GracefulTunnelClosing: its auths may have been upgraded since."""
    NetworkingReading.objects.filter(cluster=cluster).update(knows_closing=None)
    audit.record(by.attempt(AuditAction.NETWORKING_TRY_CLOSING, cluster), AuditOutcome.DONE, now)


class Conflict(Stale):
    """Somebody else wrote since; `theirs` is what is there."""

    def __init__(self, theirs: NetworkingRevision) -> None:
        who = theirs.who or "somebody, not through this console"
        super().__init__(
            f"{who} wrote revision {theirs.revision} meanwhile; nothing of yours was lost or written",
            what="networking-config",
            revision=theirs.revision,
        )
        self.theirs = theirs


def plan(
    cluster: str,
    base: str,
    wanted: NetworkingConfig,
    by: By,
    now: datetime,
    record: Record,
    *,
    undoes: int | None = None,
) -> Change:
    """Plan a change of revision `base` into `wanted`. Raises Refused, Conflict, Blind; each is a row in the log."""
    shown = config_yaml.to_document(NetworkingResource(wanted, {}))["spec"]
    with engine.plan_attempt(ChangeKind.NETWORKING_CONFIG, cluster, by, now, shown):
        draft = _draft(cluster, base, wanted, record, undoes)
    return engine.create(cluster, draft, by, now)


def _draft(cluster: str, base: str, wanted: NetworkingConfig, record: Record, undoes: int | None) -> Draft:
    current = must_be_read(cluster)
    if current.revision != base:
        raise Conflict(current)
    resource = resource_of(current)
    if resource.origin == Origin.CONFIG_FILE:
        raise Refused("the config is owned by the auths' file: change it there and restart them")
    before = rules.with_defaults(resource.config)
    wanted = rules.with_defaults(wanted)
    _check(cluster, before, wanted)
    differing = rules.differences(before, wanted)
    if not differing:
        raise Refused("nothing is changed")
    fleet = None
    if networking_plan.moves_tunnels(before, wanted):
        fleet = fleet_of(record.table(cluster), record.reader.answers(cluster), record.now)
    foreseen = networking_plan.plan_of(before, wanted, fleet)
    return Draft(
        ChangeKind.NETWORKING_CONFIG,
        title=", ".join(_title_of(field, new) for field, _, new in differing)[:200],
        before=current.document,
        after=config_yaml.to_document(replace(resource, config=wanted)),
        plan=foreseen,
        agents=foreseen["agents"],
        undoes=undoes,
    )


def _check(cluster: str, before: NetworkingConfig, wanted: NetworkingConfig) -> None:
    """Raise Refused, with problems by the key of the field, for what cannot be stored."""
    try:
        rules.check(wanted, before)
    except NetworkingConfigError as error:
        raise Refused(str(error), {one.key: one.sentence for one in error.problems}) from None
    reading = reading_of(cluster) if wanted.graceful_tunnel_closing else None
    if reading is not None and reading.knows_closing is False:
        raise Refused(UNKNOWN_FIELD, {"graceful_tunnel_closing": UNKNOWN_FIELD})


def must_be_read(cluster: str) -> NetworkingRevision:
    """The config as last read. Raises Refused when it never was."""
    reading = reading_of(cluster)
    if reading is None or reading.current is None:
        why = reading.error if reading is not None and reading.error else "no worker has read it yet"
        raise Refused(f"the networking config of {cluster} is not known: {why}")
    return reading.current


def _title_of(field: rules.ConfigField, value: rules.FieldValue) -> str:
    """One change in a title: `agent_connection_count = 2`."""
    shown = rules.format_value(field, value)
    return f"{field.key} = {str(shown).lower() if isinstance(shown, bool) else shown or 'empty'}"


def verify(change: Change, table: FleetTable, now: datetime) -> None:
    """Hold what happened against the plan; when all that was foreseen is over, the change is verified."""
    if table.stale or table.as_of is None or change.ended_at is None:
        return
    plan: Mapping[str, Any] = change.plan
    outcome = networking_plan.compare(plan, tunnels_of(table, networking_plan.agents_compared(plan)))
    since = round((now - change.ended_at).total_seconds(), 1)
    curve = list(change.outcome.get("curve", ()))
    told = {**outcome, "at": table.as_of, "curve": curve}
    if not curve or curve[-1][1] != outcome["closed"]:
        told["curve"] = [*curve, [since, outcome["closed"]]][-_POINTS:]
    if told["curve"] != curve or outcome["dialled"] != change.outcome.get("dialled"):
        engine.note(change, outcome=told)
    over = now > change.ended_at + timedelta(seconds=networking_plan.ends_after(plan)) + _SLACK
    if over or networking_plan.is_done(outcome):
        detail = networking_plan.outcome_words(outcome)
        engine.move(change, ChangeState.VERIFIED, now, detail=detail, outcome=told)
