"""Where the TLS files of a cluster come from, in words. Without TLS settings, the choice of the settings is no TLS."""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings

from fleet.clusters import service
from fleet.models.clusters import Cluster
from fleet.vocabulary.clusters import TLSSource


def list_choices(sources: Iterable[TLSSource]) -> list[tuple[str, str]]:
    """Return sources as choices of a form: value and label."""
    return [(source.value, _label_of(source)) for source in sources]


def describe(row: Cluster) -> str:
    """Return the source of the TLS files of a cluster, or the files."""
    return (
        _label_of(TLSSource.SETTINGS) if row.tls_source == TLSSource.SETTINGS else service.describe_tls(row)
    )


def _label_of(source: TLSSource) -> str:
    values = (settings.REFLOAT_TLS_CA, settings.REFLOAT_TLS_CERT, settings.REFLOAT_TLS_KEY)
    if source is TLSSource.SETTINGS and not any(values):
        return f"{source.label}: none set, so no TLS"
    return source.label
