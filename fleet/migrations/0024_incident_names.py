"""Rename columns of incidents and fields of notifications to the names of the API: `heals_at` becomes `recovers_at`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import migrations

#: Old and new names of columns.
_COLUMNS = {
    "affected": "affected_count",
    "peak": "peak_count",
    "names": "agent_names",
    "heals_at": "recovers_at",
    "stuck": "is_stuck",
    "sentence": "summary",
    "worst_sentence": "worst_summary",
    "worst_stranded": "worst_stranded_count",
    "flips": "flap_times",
    "quiet_since": "recovering_since",
    "notified_affected": "notified_affected_count",
    "notices": "notification_count",
}
#: Old and new names of fields of the incident in the payload of a notification.
_PAYLOAD = {
    "affected": "affected_count",
    "peak": "peak_count",
    "agents": "agent_names",
    "heals_at": "recovers_at",
    "flapping": "is_flapping",
}
_BATCH = 500


def _rename_fields(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, _PAYLOAD)


def _restore_fields(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, {new: old for old, new in _PAYLOAD.items()})


def _rename(apps: Any, schema_editor: Any, names: Mapping[str, str]) -> None:
    """Rename the fields in all deliveries, because the outbox sends pending ones as they are stored."""
    deliveries = apps.get_model("fleet", "Delivery").objects.using(schema_editor.connection.alias)
    batch: list[Any] = []
    for delivery in deliveries.only("payload").order_by("pk").iterator(_BATCH):
        incident = delivery.payload.get("incident")
        if not isinstance(incident, dict):
            continue
        incident = {names.get(name, name): value for name, value in incident.items()}
        delivery.payload = {**delivery.payload, "incident": incident}
        batch.append(delivery)
        if len(batch) == _BATCH:
            deliveries.bulk_update(batch, ["payload"])
            batch = []
    deliveries.bulk_update(batch, ["payload"])


class Migration(migrations.Migration):
    dependencies = [("fleet", "0023_column_names")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        *(migrations.RenameField("incident", old, new) for old, new in _COLUMNS.items()),
        migrations.RunPython(_rename_fields, _restore_fields),
    ]
