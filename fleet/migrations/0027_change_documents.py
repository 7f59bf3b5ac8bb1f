"""Rename the keys in a change's plan, progress and result: `done` is `finished_count`, `gone` `missing_agent_count`.

Plans of versions that did not count opened tunnels get the missing numbers, which the way back leaves there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from django.db import migrations

#: The triggers of the audit log, which would refuse the new names.
_TRIGGERS = import_module("fleet.migrations.0003_changes")

Document = dict[str, Any]
Names = Mapping[str, str]
#: Turns names around on the way back.
Direction = Callable[[Names], Names]

_DATA = {"age": "data_age_seconds", "size": "agent_count"}
_CAMPAIGN = {
    "plan": {
        "asked": "reconnect_count",
        "skipped": "skipped_by_reason",
        "leaving": "agents_by_instance",
        "seconds": "duration_seconds",
    },
    "after": {"chosen": "target_agents", "agents": "agent_count"},
    "parameters": {"leave": "instances_to_leave"},
    "progress": {
        "stranded": "initial_stranded_count",
        "heard_at": "responses_read_at",
        "canaries_at": "canaries_finished_at",
        "waits_for": "waiting_for",
        "working": "has_marks",
        "working_untold": "has_unwritten_marks",
    },
    "outcome": {
        "ended": "end_reason",
        **{
            state: f"{state}_count"
            for state in ("pending", "scheduled", "in_progress", "succeeded", "failed", "skipped")
        },
    },
}
_NETWORKING = {
    "plan": {
        **_DATA,
        "agents": "affected_count",
        "watched": "closing_tunnel_counts",
        "dialling": "dialing_agents",
        "rule_before": "previous_rule",
    },
    "outcome": {
        "closed": "closed_count",
        "gone": "missing_agent_count",
        "foreseen": "expected_closed_count",
        "dialled": "opened_count",
        "to_dial": "expected_opened_count",
        "curve": "closing_curve",
        "at": "as_of",
    },
}
_POLICY = {
    "plan": {**_DATA, "by_hand": "manual_restarts", "at_connect": "policies_read_at_connect"},
    "progress": {"waits_for": "waiting_for"},
    "outcome": {"total": "total_count", "done": "finished_count", "failed": "failed_count"},
}
_CLOSING = {
    "closes": "closing_count",
    "excess": "excess_count",
    "expired": "expired_count",
    "agents": "agent_count",
    "carrying": "in_use_count",
    "left_with_one": "single_tunnel_agent_count",
    "opens": "opening_count",
    "too_old": "unsupported_agent_count",
    "version_unknown": "unknown_version_agent_count",
    "tunnels": "tunnels_before",
    "unsure_proxies": "uncertain_proxies",
}
_STEP = {"tunnels": "tunnel_count", "earliest": "earliest_seconds", "latest": "latest_seconds"}
_PROXY = {
    "before": "tunnels_before",
    "after": "tunnels_after",
    "closes": "closing_count",
    "dials": "opening_count",
}
_LOAD = {
    "detection": "detection_time",
    "writes": "writes_per_second",
    "messages": "messages_per_second",
    "names": "names_per_second",
}
_EFFECT = {
    "restart": "restarted_instances",
    "by_hand": "manual_restarts",
    "agents_now": "affected_now_count",
    "agents_later": "affected_later_count",
    "sentence": "explanation",
}
#: Names in the lists of a policy plan.
_POLICY_ROWS = {
    "restarts": {"agents": "agent_count"},
    "by_hand": {"why": "reason"},
    "effects": _EFFECT,
    "ttl": {"names": "instances"},
}

#: Names in the documents of audit entries, by the start of the action.
_AUDITED = {
    "reconnect.": _CAMPAIGN["after"],
    "instance.drain": {"drained": "is_drained"},
    "instance.undrain": {"drained": "is_drained"},
    "instance.degrade": {"degraded": "is_degraded"},
    "instance.undegrade": {"degraded": "is_degraded"},
    "agent.retire": {"retired": "is_retired"},
    "agent.reinstate": {"retired": "is_retired"},
}


def _rename_documents(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, dict)
    changes = apps.get_model("fleet", "Change").objects.using(schema_editor.connection.alias)
    for change in changes.filter(kind="networking-config").only("plan", "outcome").iterator():
        plan, outcome = change.plan, change.outcome
        if "closing" in plan:
            _complete_closing(plan["closing"])
        if outcome:
            outcome = {"difference": 0, "opened_count": 0, "expected_opened_count": 0, "closing_curve": [], **outcome}
        changes.filter(pk=change.pk).update(plan=plan, outcome=outcome)


def _restore_documents(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, lambda names: {new: old for old, new in names.items()})


def _rename(apps: Any, schema_editor: Any, direction: Direction) -> None:
    alias = schema_editor.connection.alias
    changes = apps.get_model("fleet", "Change").objects.using(alias)
    for kind, documents in (("reconnect", _CAMPAIGN), ("networking-config", _NETWORKING), ("policy", _POLICY)):
        for change in changes.filter(kind=kind).only("plan", *documents).iterator():
            columns: Document = {}
            for column, names in documents.items():
                document = getattr(change, column) or {}
                if column == "plan":
                    document = _rename_rows(kind, document, direction)
                columns[column] = _with_names(document, direction(names)) or getattr(change, column)
            changes.filter(pk=change.pk).update(**columns)
    entries = apps.get_model("fleet", "AuditEntry").objects.using(alias)
    for action, names in _AUDITED.items():
        matching = entries.filter(action__startswith=action, after__isnull=False)
        for entry in matching.only("before", "after").iterator():
            before, after = (
                document if document is None else _with_names(document, direction(names))
                for document in (entry.before, entry.after)
            )
            entries.filter(pk=entry.pk).update(before=before, after=after)


def _rename_rows(kind: str, plan: Document, direction: Direction) -> Document:
    """Rename the keys below those of the plan itself, which have their old or their new names."""
    if kind == "networking-config" and "closing" in plan:
        closing = {
            **plan["closing"],
            "steps": [_with_names(step, direction(_STEP)) for step in plan["closing"]["steps"]],
            "proxies": [_with_names(proxy, direction(_PROXY)) for proxy in plan["closing"]["proxies"]],
        }
        return {**plan, "closing": _with_names(closing, direction(_CLOSING))}
    if kind != "policy":
        return plan
    lists = {
        key: [_with_names(row, direction(_POLICY_ROWS[old])) for row in plan[key]]
        for old in _POLICY_ROWS
        for key in (old, _POLICY["plan"].get(old, old))
        if key in plan
    }
    for row in lists.get("ttl", ()):
        row |= {moment: _with_names(row[moment], direction(_LOAD)) for moment in ("before", "after")}
    return {**plan, **lists}


def _with_names(document: Mapping[str, Any], names: Names) -> Document:
    return {names.get(key, key): value for key, value in document.items()}


def _complete_closing(closing: Document) -> None:
    closing.setdefault("tunnels_before", 0)
    closing.setdefault("tunnels_after", [0, 0])
    for proxy in closing["proxies"]:
        before, (low, high) = proxy["tunnels_before"], proxy["tunnels_after"]
        proxy.setdefault("closing_count", [before - high, before - low])
        proxy.setdefault("opening_count", [0, 0])


class Migration(migrations.Migration):
    dependencies = [("fleet", "0026_agent_columns")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        migrations.RunPython(_TRIGGERS.unguard, _TRIGGERS.guard),
        migrations.RunPython(_rename_documents, _restore_documents),
        migrations.RenameField("change", "agents", "affected_count"),
        migrations.RunPython(_TRIGGERS.guard, _TRIGGERS.unguard),
    ]
