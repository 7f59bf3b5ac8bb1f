from __future__ import annotations

import pytest
from ninja.errors import HttpError

from dashboards.clusters.cluster_lookup import require_row
from fleet.models.clusters import Cluster

pytestmark = pytest.mark.django_db


def test_default_cluster_always_exists() -> None:
    Cluster.objects.all().delete()
    assert require_row("default").pk == "default"


@pytest.mark.parametrize("cluster", ["oslo", "os\0lo"])
def test_other_cluster_is_not_found(cluster: str) -> None:
    with pytest.raises(HttpError, match="was not found"):
        require_row(cluster)
