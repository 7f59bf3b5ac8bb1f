from __future__ import annotations

import pytest
from pytest_django import Settings

from dashboards.clusters.tls_words import describe, list_choices
from fleet.models.clusters import Cluster
from fleet.vocabulary.clusters import TLSSource


@pytest.mark.parametrize(
    ("authority", "label"),
    [
        ("", "The settings of this console (REFLOAT_TLS_…): none set, so no TLS"),
        ("/etc/ca.crt", "The settings of this console (REFLOAT_TLS_…)"),
    ],
)
def test_settings_say_when_there_are_none(settings: Settings, authority: str, label: str) -> None:
    """In the form, where they are the default, and on the page of the cluster."""
    settings.REFLOAT_TLS_CA, settings.REFLOAT_TLS_CERT, settings.REFLOAT_TLS_KEY = authority, "", ""
    assert dict(list_choices(TLSSource)) == {source.value: source.label for source in TLSSource} | {
        "settings": label
    }
    assert describe(Cluster(tls_source=TLSSource.SETTINGS.value)) == label
    assert describe(Cluster(tls_source=TLSSource.NONE.value)) == "No TLS"
