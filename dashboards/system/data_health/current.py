"""Data health as of now, read with the settings of this process."""

from __future__ import annotations

from django.conf import settings

from dashboards.shared import record_reader
from fleet.management.data_health.facts import DataHealth
from fleet.management.data_health.reading import Installation, read_data_health
from fleet.management.programs import QUEUES_BY_WORKER


def read_current_health(cluster: str) -> DataHealth:
    """Return the data health of a cluster. Raises nothing: what cannot be read says so."""
    installation = Installation(
        reader=record_reader.reader(),
        redis_url=settings.REDIS_URL,
        prefix=settings.REFLOAT_PREFIX,
        celery_key_prefix=str(settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]),
        queues=tuple(QUEUES_BY_WORKER.values()),
        round_interval=settings.REFLOAT_ROUND_INTERVAL,
        home=settings.REFLOAT_HOME,
    )
    return read_data_health(cluster, installation, record_reader.current_time())
