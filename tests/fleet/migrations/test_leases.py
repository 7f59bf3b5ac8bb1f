"""Leases move into one table: `fleet/migrations/0018_leases.py`, on SQLite here and on PostgreSQL in tests/flow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from fleet import lease
from fleet.lease import ALERTS, CHANGES, LEASE_TTL_BY_PURPOSE, LeaseHeldError
from fleet.models.alerting import AlertClock
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from tests.fleet.migrations.rows import Apps, newest_migration

pytestmark = pytest.mark.django_db(transaction=True)

#: The newest migration of a release with a table for the leases of changes, and those of alerting in its clocks.
_TWO_PLACES = "0013_incident_worst"
_NOW = datetime(2026, 11, 23, 5, 0, 0, 250_000, tzinfo=UTC)
_LATER = _NOW + timedelta(seconds=30)


def _fill(apps: Apps) -> int:
    """Write the leases of three clusters as the release did; return the id of the change under way."""

    def create(model: str, **columns: Any) -> Any:
        return apps.get_model("fleet", model).objects.create(**columns)

    apps.get_model("fleet", "Cluster").objects.all().delete()
    for name in ("busy", "free", "new"):
        create("Cluster", id=name)
    change = create("Change", cluster_id="busy", kind="reconnect", title="t", who="w", actor_kind="person")
    create("ClusterLease", cluster_id="busy", holder="worker 1", change=change, token=7, expires_at=_LATER)
    create("ClusterLease", cluster_id="free", token=3, expires_at=_NOW)
    clock_columns = {"looked_at": _NOW.timestamp(), "took_ms": 4.5, "digest_at": _NOW.timestamp() - 60}
    create("AlertClock", cluster_id="busy", holder="host/1", held_until=_LATER.timestamp(), **clock_columns)
    create("AlertClock", cluster_id="free")
    return int(change.pk)


def test_leases_of_changes_and_of_alerting_are_kept(migrate: Callable[[str], Apps]) -> None:
    """With holder, token, change and end, and today's code goes by them."""
    change = _fill(migrate(_TWO_PLACES))

    migrate(newest_migration())

    columns = ("cluster", "purpose", "holder", "change", "token", "expires_at")
    assert sorted(ClusterLease.objects.values_list(*columns)) == [
        ("busy", "alerts", "host/1", None, 1, _LATER),
        ("busy", "changes", "worker 1", change, 7, _LATER),
        ("free", "changes", "", None, 3, _NOW),
    ]
    clock = AlertClock.objects.get(cluster="busy")
    assert (clock.evaluated_at, clock.duration_ms, clock.digest_at) == (
        pytest.approx(_NOW.timestamp(), abs=1e-6),
        4.5,
        pytest.approx(_NOW.timestamp() - 60, abs=1e-6),
    )
    for purpose in (CHANGES, ALERTS):
        with pytest.raises(LeaseHeldError):
            lease.take("busy", purpose, "another", _NOW)
        assert lease.take("new", purpose, "another", _NOW).token == 1
    assert lease.take("free", CHANGES, "another", _NOW).token == 4
    assert lease.take("busy", CHANGES, "another", _LATER).token == 8


def test_table_of_leases_has_its_keys(migrate: Callable[[str], Apps]) -> None:
    """One lease for each purpose; a change that goes leaves the lease, a cluster takes it along."""
    change = _fill(migrate(_TWO_PLACES))
    migrate(newest_migration())

    with pytest.raises(IntegrityError), transaction.atomic():
        ClusterLease.objects.create(cluster_id="busy", purpose="changes", expires_at=_NOW)
    Change.objects.filter(pk=change).delete()
    assert ClusterLease.objects.get(cluster="busy", purpose="changes").change is None
    with pytest.raises(IntegrityError), transaction.atomic():
        ClusterLease.objects.create(cluster_id="unknown", purpose="changes", expires_at=_NOW)
        connection.check_constraints()


def test_way_back_puts_leases_where_they_were(migrate: Callable[[str], Apps]) -> None:
    """For an installation that returns to the release before; and forward again."""
    change = _fill(migrate(_TWO_PLACES))
    migrate(newest_migration())
    AlertClock.objects.create(cluster_id="new")
    lease.take("new", ALERTS, "host/2", _NOW)

    old = migrate(_TWO_PLACES)

    leases = old.get_model("fleet", "ClusterLease").objects.order_by("pk")
    assert list(leases.values_list("cluster", "holder", "change", "token", "expires_at")) == [
        ("busy", "worker 1", change, 7, _LATER),
        ("free", "", None, 3, _NOW),
    ]
    clocks = old.get_model("fleet", "AlertClock").objects.order_by("pk")
    assert list(clocks.values_list("cluster", "holder", "held_until")) == [
        ("busy", "host/1", pytest.approx(_LATER.timestamp(), abs=1e-6)),
        ("free", "", 0.0),
        ("new", "host/2", pytest.approx((_NOW + LEASE_TTL_BY_PURPOSE[ALERTS]).timestamp(), abs=1e-6)),
    ]
