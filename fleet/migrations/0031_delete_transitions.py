"""Delete the earlier table of state changes, whose rows were copied."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("fleet", "0030_copy_transitions")]  # noqa: RUF012 - Django's way
    operations = [migrations.DeleteModel("Transition")]  # noqa: RUF012 - as above
