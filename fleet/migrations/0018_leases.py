"""Keep every lease of a cluster in one table: a row for each purpose.

docs/explanation/architecture.md, "Leases and claims".
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import django.db.models.deletion
from django.db import migrations, models

_COLUMNS = ("cluster_id", "holder", "change_id", "token", "expires_at")


def move_leases(apps: Any, _editor: Any) -> None:
    """Copy the leases of changes and those of alerting."""
    rows, clocks = apps.get_model("fleet", "PurposeLease").objects, apps.get_model("fleet", "AlertClock").objects
    for lease in apps.get_model("fleet", "ClusterLease").objects.values(*_COLUMNS):
        rows.create(purpose="changes", **lease)
    for clock in clocks.exclude(holder=""):
        expires_at = datetime.fromtimestamp(clock.held_until, UTC)
        rows.create(cluster_id=clock.pk, purpose="alerts", holder=clock.holder, token=1, expires_at=expires_at)


def move_leases_back(apps: Any, _editor: Any) -> None:
    """Copy them to where each of them was."""
    rows, clocks = apps.get_model("fleet", "PurposeLease").objects, apps.get_model("fleet", "AlertClock").objects
    for lease in rows.filter(purpose="changes").values(*_COLUMNS):
        apps.get_model("fleet", "ClusterLease").objects.create(**lease)
    for lease in rows.filter(purpose="alerts"):
        held_until = lease.expires_at.timestamp()
        clocks.filter(pk=lease.cluster_id).update(holder=lease.holder[:100], held_until=held_until)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0017_worst_stranded")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        # A table of its own, under another name until the old one is gone: no database changes a primary key in place.
        migrations.CreateModel(
            name="PurposeLease",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="leases", to="fleet.cluster"
                    ),
                ),
                ("purpose", models.CharField(max_length=16)),
                ("holder", models.CharField(blank=True, default="", max_length=200)),
                (
                    "change",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="fleet.change",
                    ),
                ),
                ("token", models.PositiveBigIntegerField(default=0)),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "purpose"), name="one_lease_per_purpose")
                ],
            },
        ),
        migrations.RunPython(move_leases, move_leases_back),
        migrations.DeleteModel("ClusterLease"),
        migrations.RenameModel("PurposeLease", "ClusterLease"),
        migrations.RemoveField("alertclock", "holder"),
        migrations.RemoveField("alertclock", "held_until"),
    ]
