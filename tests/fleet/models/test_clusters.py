from __future__ import annotations

import pytest
from pytest_django import Settings

from fleet.models import Cluster, ensure_default_cluster

pytestmark = pytest.mark.django_db


def test_default_cluster_follows_the_settings(settings: Settings) -> None:
    """It is created once; empty settings keep its auths."""
    settings.REFLOAT_AUTHS = ["127.0.0.1:1"]
    assert ensure_default_cluster().auths == ["127.0.0.1:1"]
    settings.REFLOAT_AUTHS = ["127.0.0.1:2", "127.0.0.1:3"]
    assert ensure_default_cluster().auths == ["127.0.0.1:2", "127.0.0.1:3"]
    settings.REFLOAT_AUTHS = []
    assert ensure_default_cluster().auths == ["127.0.0.1:2", "127.0.0.1:3"]
    assert Cluster.objects.count() == 1
