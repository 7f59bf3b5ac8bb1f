"""Seconds in rows become moments: `fleet/migrations/0019_moments.py`, on SQLite here and on PostgreSQL in tests/flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps as newest_apps
from django.db import connection
from django.db.models import Model

from fleet.models.moments import SecondsField
from tests.fleet.migrations.rows import Apps, newest_migration

pytestmark = pytest.mark.django_db(transaction=True)

#: The newest migration of a release whose columns are all seconds.
_SECONDS = "0013_incident_worst"
#: Fractions that a float holds beyond the microsecond, that round up to a whole second, and that begin with zeros.
_FRACTIONS = (0.123456789, 0.9999997, 0.0, 0.000007)
_START = 1_764_000_000.0
#: What a row of each model cannot do without, beside its moments.
_NEEDED: dict[str, dict[str, Any]] = {
    "Incident": {
        "cluster_id": "default", "key": "proxy/p", "cause_kind": "proxy", "cause_id": "p", "cause_name": "proxy-1",
        "state": "firing", "severity": 2,
    },
    "VersionChange": {"cluster_id": "default", "instance_id": "p", "name": "proxy-1", "new": "2"},
    "IncidentEvent": {"kind": "firing"},
    "Silence": {"reason": "r", "creator": "c"},
    "Delivery": {"kind": "firing", "payload": {}},
    "AlertClock": {},
    "RolloutStep": {"name": "proxy-1"},
    "CampaignAgent": {"name": "agent-1"},
}  # fmt: skip
#: Models whose columns were moments from the start.
_NEVER_SECONDS = {"Channel", "IncidentEvidence", "InstanceChange", "RunbookText"}


def test_rows_of_seconds_are_read_as_moments(migrate: Callable[[str], Apps]) -> None:
    """Every moment survives to the microsecond, none is still none, and what held 0 for none holds none."""
    indexes = _indexes()
    old = migrate(_SECONDS)
    rows_by_model = {name: _write(old, name) for name in _NEEDED}

    migrate(newest_migration())

    assert _indexes() == indexes
    for name, rows in rows_by_model.items():
        model = newest_apps.get_model("fleet", name)
        for key, seconds in rows.items():
            row = model.objects.get(pk=key)
            for column, value in seconds.items():
                assert getattr(row, column) == (None if not value else round(value, 6)), (name, column)
                # As Django would write it: SQLite compares texts.
                assert model.objects.filter(pk=key, **{column: getattr(row, column)}).exists(), (name, column)

    old = migrate(_SECONDS)

    for name, rows in rows_by_model.items():
        for key, seconds in rows.items():
            row = old.get_model("fleet", name).objects.get(pk=key)
            expected_seconds = {column: value if value is None else round(value, 6) for column, value in seconds.items()}
            assert {column: getattr(row, column) for column in seconds} == expected_seconds, name


def test_every_model_with_moments_is_tried() -> None:
    """A model that gets its first column of this kind later has no rows from before."""
    models = newest_apps.get_app_config("fleet").get_models()
    assert {model.__name__ for model in models if _moments(model)} == {*_NEEDED} | _NEVER_SECONDS


def _moments(model: type[Model]) -> list[str]:
    return [column.name for column in model._meta.concrete_fields if isinstance(column, SecondsField)]


def _write(apps: Apps, name: str) -> dict[Any, dict[str, float | None]]:
    """Write a row with all moments and one with as few as may be; return the seconds in each, by its key."""
    model = apps.get_model("fleet", name)
    columns = {column.name: column for column in model._meta.concrete_fields}
    moments = [column for column in _moments(newest_apps.get_model("fleet", name)) if column in columns]
    full = {column: _START + n + _FRACTIONS[n % 4] for n, column in enumerate(moments)}
    least: dict[str, float | None] = {
        column: None if columns[column].null else 0.0 if columns[column].has_default() else _START
        for column in moments
    }
    if name == "Silence":
        least["created_at"] = _START
    rows = {}
    for number, seconds in enumerate((full, least)):
        row = model.objects.create(**_NEEDED[name] | _places(apps, name, number) | seconds)
        rows[row.pk] = seconds
    return rows


def _places(apps: Apps, name: str, number: int) -> dict[str, Any]:
    """Return what tells two rows of a model apart, and the rows that they belong to."""

    def row(model: str, **columns: Any) -> Any:
        return apps.get_model("fleet", model).objects.get_or_create(**columns)[0]

    cluster = row("Cluster", id="default")
    change = {"cluster": cluster, "kind": "reconnect", "title": "t", "who": "w", "actor_kind": "person"}
    if name == "Incident":
        return {"generation": number, "state": ("firing", "resolved")[number]}
    if name == "IncidentEvent":
        return {"incident": apps.get_model("fleet", "Incident").objects.first()}
    if name == "Delivery":
        return {"channel": row("Channel", name="hook", kind="webhook"), "key": f"k{number}"}
    if name == "AlertClock":
        return {"cluster": row("Cluster", id=f"cluster-{number}")}
    if name == "RolloutStep":
        return {"change": row("Change", **change), "position": number, "instance_id": f"i{number}"}
    if name == "CampaignAgent":
        return {"change": row("Change", **change), "position": number, "agent_id": f"a{number}"}
    return {}


def _indexes() -> dict[str, set[str]]:
    """Return the names of indexes and constraints that a migration gave, by table."""
    tables = [newest_apps.get_model("fleet", name)._meta for name in _NEEDED]
    with connection.cursor() as cursor:
        return {
            meta.db_table: {*connection.introspection.get_constraints(cursor, meta.db_table)}
            & {constraint.name for constraint in (*meta.indexes, *meta.constraints)}
            for meta in tables
        }
