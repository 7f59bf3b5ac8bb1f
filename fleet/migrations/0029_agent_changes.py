"""Create the tables of agent changes, keyframes and minute counts; instance changes get health and drain."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from fleet.models.history import CompactForeignKey, TimeIndex
from fleet.models.moments import CompactSecondsField, SecondsField


class CreateTableByDay(migrations.CreateModel):
    """Create a table that PostgreSQL partitions by `at`; `fleet.models.partitions` creates its partitions."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.name)
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        elif self.allow_migrate_model(schema_editor.connection.alias, model):
            statement, parameters = schema_editor.table_sql(model)
            schema_editor.execute(f"{statement} PARTITION BY RANGE (at)", parameters or None)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0028_fired_rule_names")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        migrations.AddField("agent", "first_change", models.JSONField(blank=True, null=True)),
        migrations.AddField("agent", "last_deleted_change", models.JSONField(blank=True, null=True)),
        CreateTableByDay(
            name="AgentChange",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "agent_id", "at", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                # In this order, PostgreSQL needs no padding between the columns.
                ("at", CompactSecondsField()),
                (
                    "agent",
                    CompactForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="changes",
                        to="fleet.agent",
                    ),
                ),
                ("cause", models.IntegerField()),
                ("auth", models.IntegerField(null=True)),
                ("recovers_after_ms", models.IntegerField(default=0)),
                ("old", models.SmallIntegerField()),
                ("new", models.SmallIntegerField()),
                ("reason", models.SmallIntegerField()),
                ("recovery", models.SmallIntegerField()),
                ("proxies", models.BinaryField(null=True)),
            ],
            options={"db_table": "fleet_agentchange", "ordering": ("-at",), "default_permissions": ()},
        ),
        migrations.AddIndex("agentchange", TimeIndex(fields=["at"], name="agent_change_by_time")),
        migrations.CreateModel(
            name="Keyframe",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", CompactSecondsField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="keyframes", to="fleet.cluster"
                    ),
                ),
                # Last: SQLite reads a row up to the last column that a query names.
                ("content", models.BinaryField()),
            ],
            options={
                "ordering": ("-at",),
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "at"), name="one_keyframe_per_moment")
                ],
            },
        ),
        migrations.CreateModel(
            name="FleetMinute",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", CompactSecondsField()),
                ("resolution", models.PositiveSmallIntegerField(default=60)),
                ("state_counts", models.BinaryField()),
                ("stranded_peak", models.PositiveIntegerField()),
                ("at_risk_peak", models.PositiveIntegerField()),
                ("change_count", models.PositiveIntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="minutes", to="fleet.cluster"
                    ),
                ),
                ("groups", models.BinaryField()),
            ],
            options={
                "ordering": ("at",),
                "default_permissions": (),
                "indexes": [models.Index(fields=["resolution", "at"], name="minute_by_resolution")],
                "constraints": [models.UniqueConstraint(fields=("cluster", "at"), name="one_row_per_minute")],
            },
        ),
        migrations.RenameModel("InstanceTransition", "InstanceChange"),
        migrations.AlterField(
            "instancechange",
            "cluster",
            models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="instance_changes", to="fleet.cluster"
            ),
        ),
        migrations.AddField(
            "instancechange",
            "health",
            models.CharField(
                blank=True,
                choices=[(health, health) for health in ("unknown", "healthy", "degraded", "unhealthy")],
                default="",
                max_length=16,
            ),
        ),
        migrations.AddField("instancechange", "is_draining", models.BooleanField(default=None, null=True)),
        migrations.AlterField("instancechange", "at", SecondsField()),
        migrations.RemoveConstraint("instancechange", "one_turn_per_instance_and_round"),
        migrations.AddConstraint(
            "instancechange",
            models.UniqueConstraint(
                fields=("cluster", "instance", "round"), name="one_change_per_instance_and_round"
            ),
        ),
        migrations.RenameIndex("instancechange", "instance_change_by_time", "instance_turn_by_time"),
        migrations.RenameIndex("instancechange", "instance_change_by_instance", "instance_turn_by_instance"),
    ]
