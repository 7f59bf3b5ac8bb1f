"""Rename columns of agents: `retired` becomes `is_retired`, `home` `home_proxy`. Copies no data."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("fleet", "0025_rule_names")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        migrations.RenameField("agent", "retired", "is_retired"),
        migrations.RenameField("agent", "home", "home_proxy"),
    ]
