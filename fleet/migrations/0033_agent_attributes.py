"""Version and labels of agents, as they reported them last."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0032_incident_evidence")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        migrations.AddField("agent", "version", models.CharField(max_length=256, blank=True, default="")),
        migrations.AddField("agent", "labels", models.JSONField(default=dict, blank=True)),
    ]
