"""The path of a webhook's address often is the key to it: addresses that were kept as they are get sealed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.db import migrations

from fleet.models.sealed_secrets import UnsealError, seal, unseal


def seal_addresses(apps: Any, editor: Any) -> None:
    """Seal what is not; a channel whose secrets cannot be opened any more has to be entered again in any case."""
    for channel in apps.get_model("fleet", "Channel").objects.filter(kind="webhook"):
        url = channel.config.get("url")
        if not url:
            continue
        try:
            secrets = unseal(channel.secrets)
        except UnsealError:
            continue
        parts = urlsplit(url)
        channel.secrets = seal({**secrets, "url": url})
        channel.config = {"host": f"{parts.scheme}://{parts.netloc}"}
        channel.save(update_fields=["secrets", "config"])


class Migration(migrations.Migration):
    dependencies = [("fleet", "0009_alert_digests_and_versions")]  # noqa: RUF012 - Django's way

    operations = [migrations.RunPython(seal_addresses, migrations.RunPython.noop)]  # noqa: RUF012 - as above
