"""Presents changes, revisions and the audit log for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.fleet.agent_csv import cell
from fleet.changes.networking import plan as networking_plan
from fleet.changes.networking import revisions
from fleet.models.changes import AuditEntry, Change
from fleet.models.networking import NetworkingRevision
from fleet.protocol import durations
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import FIELDS, ConfigField, FieldValue, NetworkingConfig

AUDIT_COLUMNS = (
    "at", "who", "kind", "action", "subject", "outcome", "detail", "reason", "change", "request_id", "before", "after",
)  # fmt: skip
#: Columns that have another name in the database.
_DATABASE_COLUMNS = {"kind": "actor_kind", "change": "change_id"}


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
    base: str
    theirs: str
    mine: str
    #: Both changed the field, to different values.
    clash: bool


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
    """Return all fields that `theirs` or `mine` changed from `base`."""
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
            clash=field in conflicts,
        )
        for field in FIELDS
        if len({base_config.value_of(field), stored_config.value_of(field), own_config.value_of(field)}) > 1
    ]


def format_field_value(field: ConfigField, field_value: FieldValue) -> str:
    """Return a value as people read it; 0 is shown as what it means."""
    if isinstance(field_value, bool):
        return "on" if field_value else "off"
    if field_value in (0, ""):
        return field.zero or "empty"
    return str(rules.format_value(field, field_value))


def closing_context_of(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the expected tunnel closings of a plan in words; None when the plan does not affect tunnels."""
    closing_plan = plan.get("closing")
    if closing_plan is None:
        return None
    format_count = networking_plan.format_count
    end_seconds = max((step["latest"] for step in closing_plan["steps"]), default=0) or 1.0
    steps = [
        {
            "nth": step["nth"],
            "tunnels": step["tunnels"],
            "earliest": durations.format_seconds(step["earliest"]),
            "latest": durations.format_seconds(step["latest"]),
            "x": round(100 * step["earliest"] / end_seconds, 1),
            "w": max(round(100 * (step["latest"] - step["earliest"]) / end_seconds, 1), 1.0),
        }
        for step in closing_plan["steps"]
    ]
    proxies = [
        {
            **proxy,
            "after": networking_plan.format_range(proxy["after"]),
            "loses": _format_losses(proxy),
            "gains": _format_counts(proxy.get("dials", (0, 0))),
        }
        for proxy in closing_plan["proxies"]
    ]
    return {
        **closing_plan,
        "closes_said": format_count(closing_plan["closes"], "tunnel"),
        "agents_said": format_count(closing_plan["agents"], "agent"),
        "excess_said": networking_plan.format_range(closing_plan["excess"]),
        "expired_said": networking_plan.format_range(closing_plan["expired"]),
        "carrying_said": networking_plan.format_range(closing_plan["carrying"]),
        "tunnels_after_said": networking_plan.format_range(closing_plan.get("tunnels_after", (0, 0))),
        "steps": steps,
        "proxies": proxies,
    }


def _format_losses(proxy: Mapping[str, Any]) -> str:
    low, high = proxy["after"]
    # Plans of older versions do not count opened tunnels; they have only the tunnels afterwards.
    return _format_counts(proxy.get("closes", (proxy["before"] - high, proxy["before"] - low)))


def _format_counts(numbers: Sequence[int]) -> str:
    return networking_plan.format_range(numbers) if numbers[1] else ""


def audit_cells_of(entry: AuditEntry, dump_json: Any) -> list[str]:
    """Return an audit entry as CSV cells, in the order of AUDIT_COLUMNS. `dump_json` writes JSON."""
    audit_row = audit_item_of(entry)
    return [
        cell(
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
    audit_row = {column: getattr(entry, _DATABASE_COLUMNS.get(column, column)) for column in AUDIT_COLUMNS}
    return audit_row | {"at": entry.at.isoformat()}


def outcome_context_of(change: Change) -> dict[str, Any] | None:
    """Return the result of a change beside its plan; None while there is none."""
    if not change.outcome:
        return None
    change_outcome = change.outcome
    difference = change_outcome.get("difference", 0)
    return {
        "closed": change_outcome["closed"],
        "foreseen": networking_plan.format_range(change_outcome["foreseen"]),
        "gone": change_outcome["gone"],
        "more": max(difference, 0),
        "fewer": -min(difference, 0),
        "dialled": change_outcome.get("dialled", 0),
        "to_dial": change_outcome.get("to_dial", 0),
        "curve": [
            (durations.format_seconds(round(at)), closed_count)
            for at, closed_count in change_outcome.get("curve", ())
        ],
    }


def instance_names_of(change: Change) -> dict[str, str]:
    """Return the names of the instances of a change's cluster, by id."""
    return dict(change.cluster.instances.values_list("instance_id", "name"))


def stale_context_of(row: Change) -> dict[str, Any] | None:
    """Return what was written since a config change was planned, if the change was not applied; else None."""
    if row.state not in ("planned", "failed"):
        return None
    desired_resource, read_state = (
        config_yaml.from_document(row.after, strict=False),
        revisions.read_state_of(row.cluster_id),
    )
    stored_revision = read_state.current if read_state is not None else None
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
            f"{stored_revision.who or 'Someone outside of Refloat'} wrote revision "
            f"{stored_revision.revision} in the meantime."
        ),
        "revision": desired_resource.revision,
        "yaml": config_yaml.to_yaml(desired_resource),
        "rows": three_way_rows_of(base_config, stored_config, desired_config),
    }
