from __future__ import annotations

import numpy as np
import pytest

from dashboards.fleet.timeline.trend_rows import read_instance_trends
from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import FleetMinute
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import instance_key

pytestmark = pytest.mark.django_db

#: 2023-11-15 00:00 UTC.
NOW = 1_700_006_400.0


def _save_minute(at: float, *groups: tuple[int, int, int, int]) -> None:
    FleetMinute.objects.create(
        cluster_id="default", at=at, state_counts=b"", stranded_peak=0, at_risk_peak=0,
        groups=pack_groups(np.array([*groups], GROUP_COUNT), np.arange(1000)),
    )  # fmt: skip


def test_trends_are_by_instance() -> None:
    """Of the last hour, of auths and proxies."""
    ensure_default_cluster()
    proxy = instance_key("proxy-1-id")
    _save_minute(NOW - 7200, (GroupKind.PROXY, State.HEALTHY, proxy, 99))
    _save_minute(NOW - 60, (GroupKind.PROXY, State.STRANDED, proxy, 4), (GroupKind.CAUSE, 1, proxy, 50))

    trends = read_instance_trends("default", NOW)
    assert {name: trend.sentence for name, trend in trends.items()} == {
        "proxy-1-id": "4 agents, 4 affected at most"
    }
