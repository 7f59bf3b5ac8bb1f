"""Give every object of alerting an owner, and let the delivery log outlive its channels. docs/reference/access.md."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def note_clusters(apps: Any, _editor: Any) -> None:
    """Note of which cluster each notification speaks; a test of a channel speaks of none."""
    delivery = apps.get_model("fleet", "Delivery")
    for cluster in apps.get_model("fleet", "Cluster").objects.values_list("pk", flat=True):
        delivery.objects.filter(incident__cluster=cluster).update(cluster=cluster)
    for row in delivery.objects.filter(incident=None, kind="digest").only("payload").iterator():
        cluster = str(row.payload.get("incident", {}).get("cluster", ""))[:64]
        delivery.objects.filter(pk=row.pk).update(cluster=cluster)


def note_attempts(apps: Any, _editor: Any) -> None:
    """Note when the newest attempt ended, as far as the rows tell."""
    rows = apps.get_model("fleet", "Delivery").objects
    rows.exclude(sent_at=None).update(attempted_at=models.F("sent_at"))
    rows.filter(sent_at=None).exclude(failed_at=None).update(attempted_at=models.F("failed_at"))
    open_rows = rows.filter(sent_at=None, failed_at=None, attempts__gt=0)
    open_rows.exclude(last_error="").update(attempted_at=models.F("created_at"))


def hand_routes_down(apps: Any, _editor: Any) -> None:
    """Give what stands below a route of a cluster to that cluster: no other incident ever came there."""
    route = apps.get_model("fleet", "Route")
    owned = {row.pk: row.cluster for row in route.objects.exclude(cluster="")}
    while owned:
        below = {}
        for row in route.objects.filter(parent__in=list(owned), cluster=""):
            row.cluster = below[row.pk] = owned[row.parent_id]
            row.save(update_fields=["cluster"])
        owned = below


def keep_built_in_rules(apps: Any, _editor: Any) -> None:
    """Split a built-in rule that somebody limited to one cluster: a rule of that cluster, and one that is off."""
    rule = apps.get_model("fleet", "AlertRule")
    for row in rule.objects.filter(builtin=True).exclude(cluster=""):
        rule.objects.filter(pk=row.pk).update(builtin=False)
        row.pk, row.cluster, row.enabled = None, "", False
        row.save(force_insert=True)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0014_history_by_agent")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        migrations.AlterModelOptions(
            name="channel", options={"default_permissions": (), "ordering": ("name", "cluster")}
        ),
        migrations.AddField(
            model_name="channel", name="cluster", field=models.CharField(blank=True, default="", max_length=64)
        ),
        migrations.AlterField(model_name="channel", name="name", field=models.CharField(max_length=100)),
        migrations.AlterField(model_name="alertrule", name="name", field=models.CharField(max_length=100)),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.UniqueConstraint(fields=("cluster", "name"), name="one_channel_per_name"),
        ),
        migrations.AddConstraint(
            model_name="alertrule",
            constraint=models.UniqueConstraint(fields=("cluster", "name"), name="one_rule_per_name"),
        ),
        migrations.AlterField(
            model_name="delivery",
            name="channel",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="deliveries",
                to="fleet.channel",
            ),
        ),
        migrations.AddField(
            model_name="delivery",
            name="channel_name",
            field=models.CharField(blank=True, default="", max_length=100),
        ),
        migrations.AddField(
            model_name="delivery", name="cluster", field=models.CharField(blank=True, default="", max_length=64)
        ),
        migrations.AddField(
            model_name="delivery", name="attempted_at", field=models.FloatField(blank=True, null=True)
        ),
        migrations.AddIndex(
            model_name="delivery", index=models.Index(fields=["cluster", "-id"], name="delivery_by_cluster")
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["channel", "-attempted_at"], name="delivery_by_attempt"),
        ),
        # Last: PostgreSQL alters no table that has changed rows in the same transaction.
        migrations.RunPython(note_clusters, migrations.RunPython.noop),
        migrations.RunPython(note_attempts, migrations.RunPython.noop),
        migrations.RunPython(hand_routes_down, migrations.RunPython.noop),
        migrations.RunPython(keep_built_in_rules, migrations.RunPython.noop),
    ]
