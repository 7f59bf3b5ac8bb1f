"""Rename the stored settings of campaigns and rollouts: `rate` becomes `rate_per_minute`, `at_once` `concurrency`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import migrations

_CAMPAIGN = {
    "rate": "rate_per_minute",
    "per_proxy": "concurrency",
    "canaries": "canary_size",
    "hold": "soak_seconds",
    "jitter": "jitter_seconds",
    "patience": "timeout_seconds",
    "max_failed": "failure_threshold_percent",
    "max_stranded": "stranded_threshold",
    "window_from": "window_start",
    "window_to": "window_end",
}
_ROLLOUT = {
    "at_once": "concurrency",
    "drain": "drain_seconds",
    "settle": "soak_seconds",
    "patience": "timeout_seconds",
}


def _rename_settings(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, ("pace", "settings"), _CAMPAIGN, _ROLLOUT)


def _restore_settings(apps: Any, schema_editor: Any) -> None:
    campaign, rollout = ({new: old for old, new in names.items()} for names in (_CAMPAIGN, _ROLLOUT))
    _rename(apps, schema_editor, ("settings", "pace"), campaign, rollout)


def _rename(
    apps: Any, schema_editor: Any, keys: tuple[str, str], campaign: Mapping[str, str], rollout: Mapping[str, str]
) -> None:
    changes = apps.get_model("fleet", "Change").objects.using(schema_editor.connection.alias)
    old_key, new_key = keys
    for change in changes.filter(kind="reconnect").only("parameters").iterator():
        parameters = change.parameters
        if old_key in parameters:
            settings = _with_names(parameters.pop(old_key), campaign)
            changes.filter(pk=change.pk).update(parameters={new_key: settings, **parameters})
    for change in changes.filter(kind="policy").only("parameters").iterator():
        changes.filter(pk=change.pk).update(parameters=_with_names(change.parameters, rollout))


def _with_names(settings: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in settings.items()}


class Migration(migrations.Migration):
    dependencies = [("fleet", "0020_labels")]  # noqa: RUF012 - Django's way

    operations = [migrations.RunPython(_rename_settings, _restore_settings)]  # noqa: RUF012 - as above
