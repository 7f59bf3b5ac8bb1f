"""A day of counts in the history of a cluster that has a record: what tests of the History page look at."""

from __future__ import annotations

import numpy as np

from fleet.models.history import FleetMinute
from fleet.models.incidents import Incident
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import create_instance_change, instance_key

#: Proxies of the scene.
PROXY_COUNT = 3
#: Minutes before the end in which agents of proxy-2 were stranded.
FAULT_MINUTES = range(100, 160)
#: Minutes before the end in which nothing was recorded.
GAP_MINUTES = range(400, 430)


def write(cluster: str, end: float, day_minutes: int = 1400) -> None:
    """Write the minutes before `end` (a full minute): a fault of proxy-2, and a gap."""
    keys = [instance_key(f"proxy-{number}-id", cluster) for number in range(1, PROXY_COUNT + 1)]
    instance_key("auth-1-id", cluster)
    all_keys = np.arange(max(keys) + 1)
    calm, faulty = (
        pack_groups(np.array([(GroupKind.PROXY, state, keys[1], 67)], GROUP_COUNT), all_keys)
        for state in (State.HEALTHY, State.STRANDED)
    )
    FleetMinute.objects.bulk_create(
        FleetMinute(
            cluster_id=cluster, at=end - 60 * age, state_counts=b"",
            stranded_peak=67 if age in FAULT_MINUTES else 0, at_risk_peak=80 if 150 < age < 170 else 0,
            groups=faulty if age in FAULT_MINUTES else calm,
        )
        for age in range(1, day_minutes)
        if age not in GAP_MINUTES
    )  # fmt: skip
    create_instance_change("proxy-2-id", end - 9600, "ok", "silent", 101, cluster)
    create_instance_change("proxy-2-id", end - 6000, "silent", "ok", 102, cluster)
    Incident.objects.create(
        cluster_id=cluster, key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-2", generation=1,
        state="resolved", severity=2, opened_at=end - 9000, fired_at=end - 9000, resolved_at=end - 6000,
        summary="67 agents stranded.",
    )  # fmt: skip


def add_proxies(cluster: str, count: int) -> None:
    """Add proxies up to a number, so that the heat strip scrolls."""
    for number in range(1, count + 1):
        instance_key(f"proxy-{number}-id", cluster)
