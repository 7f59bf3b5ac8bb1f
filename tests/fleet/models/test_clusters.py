from __future__ import annotations

import pytest
from pytest_django import Settings

from fleet.models import Cluster, ensure_default_cluster
from fleet.vocabulary.clusters import AddressKind

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


def test_addresses_of_the_settings_replace_those_that_people_entered(settings: Settings) -> None:
    """Those are static addresses, so the name of an SRV record is gone, too."""
    settings.REFLOAT_AUTHS = []
    ensure_default_cluster()
    Cluster.objects.update(address_kind=AddressKind.SRV, auths=["_auth._tcp.example"])
    assert ensure_default_cluster().address_kind == AddressKind.SRV
    settings.REFLOAT_AUTHS = ["127.0.0.1:1"]
    ensure_default_cluster()
    row = Cluster.objects.get()
    assert (row.address_kind, row.auths) == (AddressKind.STATIC, ["127.0.0.1:1"])
