"""Rename columns to the terms of pages and docs: `who` is `actor_name`, `waits_for` `delay_reason`. Copies no data."""

from __future__ import annotations

from django.db import migrations

#: Old and new names of columns, by model.
_COLUMNS = {
    "alertclock": {"looked_at": "evaluated_at", "took_ms": "duration_ms"},
    "auditentry": {"who": "actor_name"},
    "campaignagent": {
        "leaves": "from_instance",
        "held": "initial_proxies",
        "via": "via_proxy",
        "told": "request_sent",
        "asked_at": "requested_at",
    },
    "change": {"needs_second": "review_required", "who": "actor_name"},
    "cluster": {"second_approver": "review_required"},
    "delivery": {"waits_for": "delay_reason"},
    "drain": {
        "drained": "is_drained",
        "who": "actor_name",
        "asked_at": "requested_at",
        "told_at": "applied_at",
    },
    "incident": {"acked_at": "acknowledged_at", "acked_by": "acknowledged_by"},
    "incidentevent": {"who": "actor_name"},
    "maintenancewindow": {"starts": "start_time", "zone": "time_zone"},
    "networkingrevision": {"who": "author"},
    "rolloutstep": {"wanted": "desired_values"},
    "route": {"least": "min_severity", "goes_on": "continue_matching"},
    "silence": {"warned": "expiry_notified"},
}


class Migration(migrations.Migration):
    dependencies = [("fleet", "0022_state_names")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        migrations.RenameField(model, old, new)
        for model, columns in _COLUMNS.items()
        for old, new in columns.items()
    ]
