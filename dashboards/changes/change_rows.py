"""Changes, revisions and the log as pages show them."""

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
from fleet.protocol.networking.config import FIELDS, ConfigField, NetworkingConfig, FieldValue

AUDIT_COLUMNS = (
    "at", "who", "kind", "action", "subject", "outcome", "detail", "reason", "change", "request_id", "before", "after",
)  # fmt: skip
#: Columns that are called otherwise in the database.
_RENAMED = {"kind": "actor_kind", "change": "change_id"}


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One field before and after."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ThreeWayRow:
    """One field that somebody changed: as it was, as they have it, as I want it."""

    key: str
    base: str
    theirs: str
    mine: str
    #: Both changed it, and not to the same.
    clash: bool


def config_of(document: Any) -> NetworkingConfig:
    """The config in a document of a change or a revision."""
    return rules.with_defaults(config_yaml.from_document(document, strict=False).config)


def diff(before: Any, after: Any) -> list[DiffRow]:
    """The fields in which two documents differ."""
    found = rules.differences(config_of(before), config_of(after))
    return [DiffRow(field.key, shown(field, old), shown(field, new)) for field, old, new in found]


def three_way(base: NetworkingConfig, theirs: NetworkingConfig, mine: NetworkingConfig) -> list[ThreeWayRow]:
    """All fields that either changed."""
    base, theirs, mine = (rules.with_defaults(one) for one in (base, theirs, mine))
    _, clashing = rules.rebase(base, mine, theirs)
    return [
        ThreeWayRow(
            field.key,
            shown(field, base.value_of(field)),
            shown(field, theirs.value_of(field)),
            shown(field, mine.value_of(field)),
            clash=field in clashing,
        )
        for field in FIELDS
        if len({base.value_of(field), theirs.value_of(field), mine.value_of(field)}) > 1
    ]


def shown(field: ConfigField, value: FieldValue) -> str:
    """A value for a person; what 0 means is said."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in (0, ""):
        return field.zero or "empty"
    return str(rules.format_value(field, value))


def closing(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """The foreseen closings in words; None when the plan is not about tunnels."""
    said = plan.get("closing")
    if said is None:
        return None
    counted = networking_plan.counted
    end = max((step["latest"] for step in said["steps"]), default=0) or 1.0
    steps = [
        {
            "nth": step["nth"],
            "tunnels": step["tunnels"],
            "earliest": durations.format_seconds(step["earliest"]),
            "latest": durations.format_seconds(step["latest"]),
            "x": round(100 * step["earliest"] / end, 1),
            "w": max(round(100 * (step["latest"] - step["earliest"]) / end, 1), 1.0),
        }
        for step in said["steps"]
    ]
    proxies = [
        {
            **proxy,
            "after": networking_plan.said(proxy["after"]),
            "loses": _loses(proxy),
            "gains": _counts(proxy.get("dials", (0, 0))),
        }
        for proxy in said["proxies"]
    ]
    return {
        **said,
        "closes_said": counted(said["closes"], "tunnel"),
        "agents_said": counted(said["agents"], "agent"),
        "excess_said": networking_plan.said(said["excess"]),
        "expired_said": networking_plan.said(said["expired"]),
        "carrying_said": networking_plan.said(said["carrying"]),
        "tunnels_after_said": networking_plan.said(said.get("tunnels_after", (0, 0))),
        "steps": steps,
        "proxies": proxies,
    }


def _loses(proxy: Mapping[str, Any]) -> str:
    low, high = proxy["after"]
    # Plans of before they counted what is dialled have only the tunnels that are left.
    return _counts(proxy.get("closes", (proxy["before"] - high, proxy["before"] - low)))


def _counts(numbers: Sequence[int]) -> str:
    return networking_plan.said(numbers) if numbers[1] else ""


def audit_cells(entry: AuditEntry, dump: Any) -> list[str]:
    """An entry as CSV cells, in the order of AUDIT_COLUMNS; `dump` writes JSON."""
    item = audit_item(entry)
    return [
        cell("" if value is None else value if isinstance(value, str) else dump(value))
        for value in (item[column] for column in AUDIT_COLUMNS)
    ]


def audit_item(entry: AuditEntry) -> dict[str, Any]:
    """An entry for programs."""
    item = {column: getattr(entry, _RENAMED.get(column, column)) for column in AUDIT_COLUMNS}
    return item | {"at": entry.at.isoformat()}


def outcome(change: Change) -> dict[str, Any] | None:
    """What happened beside what was foreseen; None while there is nothing to say."""
    if not change.outcome:
        return None
    said = change.outcome
    difference = said.get("difference", 0)
    return {
        "closed": said["closed"],
        "foreseen": networking_plan.said(said["foreseen"]),
        "gone": said["gone"],
        "more": max(difference, 0),
        "fewer": -min(difference, 0),
        "dialled": said.get("dialled", 0),
        "to_dial": said.get("to_dial", 0),
        "curve": [(durations.format_seconds(round(at)), closed) for at, closed in said.get("curve", ())],
    }


def instance_names(change: Change) -> dict[str, str]:
    """Names of instances by id."""
    return dict(change.cluster.instances.values_list("instance_id", "name"))


def stale(row: Change) -> dict[str, Any] | None:
    """What somebody else wrote since this was planned, while nothing of this was written; else None."""
    if row.state not in ("planned", "failed"):
        return None
    mine, reading = (
        config_yaml.from_document(row.after, strict=False),
        revisions.reading_of(row.cluster_id),
    )
    theirs = reading.current if reading is not None else None
    if theirs is None or theirs.revision == mine.revision or theirs.change_id == row.pk:
        return None
    base, wanted, stored = (config_of(one) for one in (row.before, row.after, theirs.document))
    if row.state == "failed" and NetworkingRevision.objects.filter(change=row).exists():
        return None
    return {
        "sentence": f"{theirs.who or 'Somebody, not through this console,'} wrote revision {theirs.revision}.",
        "revision": mine.revision,
        "yaml": config_yaml.to_yaml(mine),
        "rows": three_way(base, stored, wanted),
    }
