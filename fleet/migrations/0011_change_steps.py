from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0010_seal_webhooks")]

    operations = [
        migrations.AddField(
            model_name="change", name="step", field=models.PositiveIntegerField(default=1)
        ),
    ]
