"""Presents changes, revisions and the audit log for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.changes.pictures.closing_chart import ClosingChart, closing_chart_of
from dashboards.changes.pictures.proxy_bars import proxy_bars_of
from dashboards.fleet.agent_csv import to_csv_cell
from fleet.changes.networking import plan as networking_plan
from fleet.changes.networking import revisions
from fleet.models.changes import AuditEntry, Change
from fleet.models.moments import to_seconds
from fleet.models.networking import NetworkingRevision
from fleet.protocol import durations
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import FIELDS, ConfigField, FieldKind, FieldValue, NetworkingConfig
from fleet.vocabulary.changes import ChangeState

AUDIT_COLUMNS = (
    "id", "at", "actor_name", "actor_kind", "action", "subject", "outcome", "detail", "reason", "change_id",
    "request_id", "before", "after",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One field of a config before and after a change."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ThreeWayRow:
    """One field that either of two people changed: the base value, the stored value, the value of the edit."""

    key: str
    base_value: str
    stored_value: str
    own_value: str
    #: Both changed the field, to different values.
    is_conflict: bool


def config_of(document: Any) -> NetworkingConfig:
    """Return the config in a document of a change or a revision, with defaults."""
    return rules.with_defaults(config_yaml.from_document(document, strict=False).config)


def diff_rows_of(before: Any, after: Any) -> list[DiffRow]:
    """Return the fields in which two documents differ."""
    differences = rules.differences(config_of(before), config_of(after))
    return [
        DiffRow(field.key, format_field_value(field, old), format_field_value(field, new))
        for field, old, new in differences
    ]


def three_way_rows_of(
    base_config: NetworkingConfig, stored_config: NetworkingConfig, own_config: NetworkingConfig
) -> list[ThreeWayRow]:
    """Return all fields that `stored_config` or `own_config` changed from `base_config`."""
    base_config, stored_config, own_config = (
        rules.with_defaults(config) for config in (base_config, stored_config, own_config)
    )
    _, conflicts = rules.rebase(base_config, own_config, stored_config)
    return [
        ThreeWayRow(
            field.key,
            format_field_value(field, base_config.value_of(field)),
            format_field_value(field, stored_config.value_of(field)),
            format_field_value(field, own_config.value_of(field)),
            is_conflict=field in conflicts,
        )
        for field in FIELDS
        if len({base_config.value_of(field), stored_config.value_of(field), own_config.value_of(field)}) > 1
    ]


def format_field_value(field: ConfigField, field_value: FieldValue) -> str:
    """Return a value as people read it; 0 is shown as what it means."""
    if isinstance(field_value, bool):
        return "on" if field_value else "off"
    if field_value in (0, ""):
        return field.zero_meaning or "empty"
    if field.kind is FieldKind.DURATION:
        return durations.format_exact(float(field_value))
    return str(field_value)


def closing_context_of(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the expected tunnel closings of a plan in words; None when the plan does not affect tunnels."""
    closing_plan = plan.get("closing")
    if closing_plan is None:
        return None
    format_counted_noun = networking_plan.format_counted_noun
    end_seconds = max((step["latest_seconds"] for step in closing_plan["steps"]), default=0) or 1.0
    steps = [
        {
            "nth": step["nth"],
            "tunnel_count": step["tunnel_count"],
            "earliest": durations.format_readable(step["earliest_seconds"]),
            "latest": durations.format_readable(step["latest_seconds"]),
            "x": round(100 * step["earliest_seconds"] / end_seconds, 1),
            "w": max(round(100 * (step["latest_seconds"] - step["earliest_seconds"]) / end_seconds, 1), 1.0),
        }
        for step in closing_plan["steps"]
    ]
    proxies = [
        {
            **proxy,
            "tunnels_after": networking_plan.format_range(proxy["tunnels_after"]),
            "closing_count": _format_range_or_empty(proxy["closing_count"]),
            "opening_count": _format_range_or_empty(proxy["opening_count"]),
        }
        for proxy in closing_plan["proxies"]
    ]
    return {
        **closing_plan,
        "closing_text": format_counted_noun(closing_plan["closing_count"], "tunnel"),
        "opening_text": format_counted_noun([closing_plan["opening_count"]] * 2, "tunnel"),
        "agent_text": format_counted_noun(closing_plan["agent_count"], "agent"),
        "excess_text": networking_plan.format_range(closing_plan["excess_count"]),
        "expired_text": networking_plan.format_range(closing_plan["expired_count"]),
        "in_use_text": networking_plan.format_range(closing_plan["in_use_count"]),
        "tunnels_after_text": networking_plan.format_range(closing_plan["tunnels_after"]),
        "steps": steps,
        "proxies": proxies,
        "proxy_bars": proxy_bars_of(closing_plan["proxies"], closing_plan.get("uncertain_proxies", ())),
    }


def closing_chart_context_of(change: Change, now: float) -> ClosingChart | None:
    """Return the closing curve of a config change, as planned and, once it was applied, as seen."""
    steps = change.plan.get("closing", {}).get("steps", ())
    is_verifying = change.state == ChangeState.VERIFYING and change.ended_at is not None
    elapsed_seconds = (
        max(now - to_seconds(change.ended_at), 0.0) if change.ended_at and is_verifying else None
    )
    return closing_chart_of(steps, change.outcome.get("closing_curve", ()), elapsed_seconds)


def _format_range_or_empty(bounds: Sequence[int]) -> str:
    return networking_plan.format_range(bounds) if bounds[1] else ""


def audit_cells_of(entry: AuditEntry, dump_json: Any) -> list[str]:
    """Return an audit entry as CSV cells, in the order of AUDIT_COLUMNS. `dump_json` writes JSON."""
    audit_row = audit_item_of(entry)
    return [
        to_csv_cell(
            ""
            if column_value is None
            else column_value
            if isinstance(column_value, str)
            else dump_json(column_value)
        )
        for column_value in (audit_row[column] for column in AUDIT_COLUMNS)
    ]


def audit_item_of(entry: AuditEntry) -> dict[str, Any]:
    """Return an audit entry as JSON for the API."""
    return {column: getattr(entry, column) for column in AUDIT_COLUMNS} | {"at": entry.at.isoformat()}


def outcome_context_of(change: Change) -> dict[str, Any] | None:
    """Return the result of a change beside its plan; None while there is none."""
    if not change.outcome:
        return None
    change_outcome = change.outcome
    difference = change_outcome["difference"]
    return {
        **change_outcome,
        "expected_closed_text": networking_plan.format_range(change_outcome["expected_closed_count"]),
        "excess_count": max(difference, 0),
        "missing_count": -min(difference, 0),
        "closing_curve": [
            (durations.format_readable(round(at)), closed_count)
            for at, closed_count in change_outcome["closing_curve"]
        ],
    }


def instance_names_of(change: Change) -> dict[str, str]:
    """Return the names of the instances of a change's cluster, by id."""
    return dict(change.cluster.instances.values_list("instance_id", "name"))


def conflict_context_of(row: Change) -> dict[str, Any] | None:
    """Return what was written since a config change was planned, if the change was not applied; else None."""
    if row.state not in ("planned", "failed"):
        return None
    desired_resource, networking_reading = (
        config_yaml.from_document(row.after, strict=False),
        revisions.last_reading_of(row.cluster_id),
    )
    stored_revision = networking_reading.current if networking_reading is not None else None
    if (
        stored_revision is None
        or stored_revision.revision == desired_resource.revision
        or stored_revision.change_id == row.pk
    ):
        return None
    base_config, desired_config, stored_config = (
        config_of(document) for document in (row.before, row.after, stored_revision.document)
    )
    if row.state == "failed" and NetworkingRevision.objects.filter(change=row).exists():
        return None
    return {
        "sentence": (
            f"{stored_revision.author or 'Someone outside of Refloat'} wrote revision "
            f"{stored_revision.revision} in the meantime."
        ),
        "revision": desired_resource.revision,
        "yaml": config_yaml.to_yaml(desired_resource),
        "rows": three_way_rows_of(base_config, stored_config, desired_config),
    }
