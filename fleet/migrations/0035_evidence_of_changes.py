"""Evidence of changes, so that past moments have the sentences of their time. NULL in the rows of earlier versions."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0034_agent_sets")]  # noqa: RUF012 - Django's way

    # Nullable and without a default: no database rewrites the rows.
    operations = [  # noqa: RUF012 - as above
        migrations.AddField("agentchange", "evidence", models.BinaryField(null=True)),
        migrations.AddField("instancechange", "evidence", models.TextField(null=True)),
    ]
