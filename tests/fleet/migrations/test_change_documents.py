"""Documents of changes get the keys of the API: `fleet/migrations/0027_change_documents.py`.

On SQLite here and on PostgreSQL in tests/flow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps as newest_apps

from fleet.models.changes import Change
from tests.fleet.migrations.rows import Apps, create_row, newest_migration

pytestmark = pytest.mark.django_db(transaction=True)

_LOADS = (
    {"detection": "2m0s", "detection_seconds": 120.0, "writes": 1.0, "messages": 2.0, "names": 3.0},
    {"detection_time": "2m0s", "detection_seconds": 120.0, "writes_per_second": 1.0, "messages_per_second": 2.0,
     "names_per_second": 3.0},
)  # fmt: skip
#: Documents of a change of each kind, by column: before the migration and after it.
_DOCUMENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "reconnect": (
        {
            "plan": {"asked": 2, "skipped": {"it is retired": 1}, "leaving": {"proxy-1": 2}, "seconds": 7.5, "as_of": 1},
            "after": {"chosen": "state:degraded", "agents": 3, "connection": "tunnel"},
            "progress": {"stranded": 1, "heard_at": 2.0, "canaries_at": 3.0, "credit": 0.5, "stepped_at": 4.0,
                         "waits_for": "x", "working": True, "working_untold": False},
        },
        {
            "plan": {"reconnect_count": 2, "skipped_by_reason": {"it is retired": 1},
                     "agents_by_instance": {"proxy-1": 2}, "duration_seconds": 7.5, "as_of": 1},
            "after": {"target_agents": "state:degraded", "agent_count": 3, "connection": "tunnel"},
            "progress": {"initial_stranded_count": 1, "responses_read_at": 2.0, "canaries_finished_at": 3.0,
                         "credit": 0.5, "stepped_at": 4.0, "waiting_for": "x", "has_marks": True,
                         "has_unwritten_marks": False},
        },
    ),
    "networking-config": (
        {
            "after": {"kind": "cluster_networking_config", "agents": 1},
            "plan": {
                "question": "?", "age": 1.0, "size": 5, "agents": 2, "watched": {"a": 2}, "dialling": {"b": [1, 1]},
                "rule_before": "none",
                "closing": {
                    "rule": "rfd", "closes": [3, 3], "excess": [3, 3], "expired": [0, 0], "agents": [2, 2],
                    "carrying": [0, 1], "left_with_one": 2, "opens": 0, "too_old": 0, "version_unknown": 0,
                    "steps": [{"nth": 1, "tunnels": 2, "earliest": 1.0, "latest": 2.0}],
                    "proxies": [{"id": "p", "name": "q", "before": 5, "after": [2, 3], "closes": [2, 3], "dials": [0, 0]}],
                    "unsure_proxies": [], "tunnels": 9, "tunnels_after": [6, 6],
                },
            },
            "outcome": {"closed": 2, "gone": 1, "difference": -1, "foreseen": [3, 3], "dialled": 0, "to_dial": 0,
                        "curve": [[0.0, 0]], "at": 9.0},
        },
        {
            "after": {"kind": "cluster_networking_config", "agents": 1},
            "plan": {
                "question": "?", "data_age_seconds": 1.0, "agent_count": 5, "affected_count": 2,
                "closing_tunnel_counts": {"a": 2}, "dialing_agents": {"b": [1, 1]}, "previous_rule": "none",
                "closing": {
                    "rule": "rfd", "closing_count": [3, 3], "excess_count": [3, 3], "expired_count": [0, 0],
                    "agent_count": [2, 2], "in_use_count": [0, 1], "single_tunnel_agent_count": 2, "opening_count": 0,
                    "unsupported_agent_count": 0, "unknown_version_agent_count": 0,
                    "steps": [{"nth": 1, "tunnel_count": 2, "earliest_seconds": 1.0, "latest_seconds": 2.0}],
                    "proxies": [{"id": "p", "name": "q", "tunnels_before": 5, "tunnels_after": [2, 3],
                                 "closing_count": [2, 3], "opening_count": [0, 0]}],
                    "uncertain_proxies": [], "tunnels_before": 9, "tunnels_after": [6, 6],
                },
            },
            "outcome": {"closed_count": 2, "missing_agent_count": 1, "difference": -1, "expected_closed_count": [3, 3],
                        "opened_count": 0, "expected_opened_count": 0, "closing_curve": [[0.0, 0]], "as_of": 9.0},
        },
    ),
    "policy": (
        {
            "after": {"auth": {"failed": "1"}},
            "plan": {
                "restarts": [{"id": "i", "name": "auth-1", "agents": 3}], "by_hand": [{"name": "auth-2", "why": "w"}],
                "at_connect": ["X"], "notes": ["n"], "age": 1.0, "size": 5,
                "ttl": [{"title": "t", "names": ["auth-1"], "before": _LOADS[0], "after": _LOADS[0], "warnings": []}],
                "effects": [{"label": "l", "restart": ["auth-1"], "by_hand": [], "agents_now": 1, "agents_later": 2,
                             "sentence": "s"}],
            },
            "progress": {"stepped_at": 1.0, "waits_for": "y"},
            "outcome": {"total": 2, "done": 1, "failed": 1, "percent": 50},
        },
        {
            "after": {"auth": {"failed": "1"}},
            "plan": {
                "restarts": [{"id": "i", "name": "auth-1", "agent_count": 3}],
                "manual_restarts": [{"name": "auth-2", "reason": "w"}], "policies_read_at_connect": ["X"],
                "notes": ["n"], "data_age_seconds": 1.0, "agent_count": 5,
                "ttl": [{"title": "t", "instances": ["auth-1"], "before": _LOADS[1], "after": _LOADS[1], "warnings": []}],
                "effects": [{"label": "l", "restarted_instances": ["auth-1"], "manual_restarts": [],
                             "affected_now_count": 1, "affected_later_count": 2, "explanation": "s"}],
            },
            "progress": {"stepped_at": 1.0, "waiting_for": "y"},
            "outcome": {"total_count": 2, "finished_count": 1, "failed_count": 1, "percent": 50},
        },
    ),
}  # fmt: skip
#: A key in the documents of audit entries, before the migration and after it.
_AUDITED = {
    "instance.drain": ("drained", "is_drained"),
    "instance.undegrade": ("degraded", "is_degraded"),
    "agent.retire": ("retired", "is_retired"),
    "agent.reinstate": ("retired", "is_retired"),
}


def test_documents_of_changes_keep_their_values(migrate: Callable[[str], Apps]) -> None:
    """Under their new keys, in the audit log too; a change without documents keeps that; and back."""
    apps = migrate("0023_column_names")
    cluster, _ = apps.get_model("fleet", "Cluster").objects.get_or_create(id="default")
    person = {"actor_name": "a", "actor_kind": "person"}
    for kind, (documents, _) in _DOCUMENTS.items():
        create_row(apps, "Change", cluster=cluster, kind=kind, title="t", agents=4, **person, **documents)
        create_row(apps, "Change", cluster=cluster, kind=kind, title="empty", **person)
        entry = {"action": f"{kind}.confirm", "outcome": "succeeded", "after": documents["after"]}
        create_row(apps, "AuditEntry", **person, **entry)
    for action, (old, _) in _AUDITED.items():
        documents = {"before": {"agent": "a", old: False}, "after": {"agent": "a", old: True}}
        create_row(apps, "AuditEntry", **person, action=action, outcome="succeeded", **documents)
        create_row(apps, "AuditEntry", **person, action=action, outcome="refused")

    def check(models: Apps, version: int) -> None:
        changes, entries = models.get_model("fleet", "Change").objects, models.get_model("fleet", "AuditEntry").objects
        for kind, versions in _DOCUMENTS.items():
            documents = versions[version]
            row = changes.get(kind=kind, title="t")
            assert {column: getattr(row, column) for column in documents} == documents
            assert entries.get(action=f"{kind}.confirm").after == documents["after"]
            empty = changes.get(kind=kind, title="empty")
            assert (empty.plan, empty.progress, empty.outcome, empty.after) == ({}, {}, {}, None)
        for action, keys in _AUDITED.items():
            entry = entries.get(action=action, outcome="succeeded")
            assert [entry.before[keys[version]], entry.after[keys[version]]] == [False, True]
            assert entries.get(action=action, outcome="refused").after is None

    migrate(newest_migration())
    check(newest_apps, 1)
    assert {*Change.objects.values_list("affected_count", flat=True)} == {4, 0}
    check(migrate("0023_column_names"), 0)


def test_plans_without_opened_tunnels_are_completed(migrate: Callable[[str], Apps]) -> None:
    """With what earlier versions showed for them."""
    closing = _DOCUMENTS["networking-config"][0]["plan"]["closing"]
    later_columns = ("tunnels", "tunnels_after")
    old_closing = {name: value for name, value in closing.items() if name not in later_columns}
    old_closing["proxies"] = [{"id": "p", "name": "q", "before": 5, "after": [2, 3]}]
    apps = migrate("0023_column_names")
    cluster, _ = apps.get_model("fleet", "Cluster").objects.get_or_create(id="default")
    create_row(
        apps, "Change", cluster=cluster, kind="networking-config", title="t", actor_name="a", actor_kind="person",
        plan={"closing": old_closing}, outcome={"closed": 2, "gone": 0, "foreseen": [3, 3]},
    )  # fmt: skip

    migrate(newest_migration())

    change = Change.objects.get()
    (proxy,) = change.plan["closing"]["proxies"]
    assert (proxy["closing_count"], proxy["opening_count"]) == ([2, 3], [0, 0])
    assert (change.plan["closing"]["tunnels_before"], change.plan["closing"]["tunnels_after"]) == (0, [0, 0])
    assert (change.outcome["closed_count"], change.outcome["opened_count"], change.outcome["difference"]) == (2, 0, 0)
