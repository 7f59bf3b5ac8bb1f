from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from fleet.models.clusters import Cluster
from fleet.models.drains import Drain

pytestmark = pytest.mark.django_db


def test_instance_has_one_drain_row() -> None:
    """In a cluster; the same id in another one is another instance."""
    for name in ("east", "west"):
        Cluster.objects.create(id=name, name=name)
        Drain.objects.create(
            cluster_id=name, instance="p-1", name="proxy-1", is_drained=True, actor_name="alice"
        )
    assert str(Drain.objects.first()) == "proxy-1: drained"
    with pytest.raises(IntegrityError), transaction.atomic():
        Drain.objects.create(
            cluster_id="east", instance="p-1", name="proxy-1", is_drained=False, actor_name="bob"
        )
