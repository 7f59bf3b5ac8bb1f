"""Presentation of incidents."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dashboards.alerts.presenters import find_common_attributes, next_notification_of
from fleet.alerts import store
from fleet.models.alerting import Channel, Route
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.vocabulary.verdicts import Reason, State
from tests.fakes.reader import FakeReader


def test_in_common_counts_most_first() -> None:
    """Shares of the incident's agents."""
    now = time.time()
    table = FakeReader([State.STRANDED] * 10, as_of=now).table("default", now)
    table.verdicts["reason_and_recovery"] = Reason.PROXY_UNHEALTHY
    groups = {
        group["title"]: group["parts"] for group in find_common_attributes(table, np.array([0, 2, 4, 1]))
    }
    assert [(part["name"], part["count"], part["share"]) for part in groups["Home proxy"]] == [
        ("proxy-1", 3, 75), ("proxy-2", 1, 25),
    ]  # fmt: skip
    assert [part["name"] for part in groups["Reason"]] == ["proxy failing"]
    assert find_common_attributes(table, np.array([], dtype=np.intp)) == []


@pytest.mark.django_db
def test_next_notification_has_time_reason_and_channels() -> None:
    """Escalation comes before the repeat when nobody acknowledges."""
    now = time.time()
    row = Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1",
        generation=1, state="firing", severity=2, opened_at=now, fired_at=now, notification_count=1, notified_at=now,
        notified_severity=2, marks={"Agents stranded": [now, 1.0, 2, 2, 9, "", True, False]},
    )  # fmt: skip
    chief = Channel.objects.create(name="chief", kind="webhook")
    root = Route.objects.get()
    root.escalate_after = 900
    root.save()
    root.escalate_to.add(chief)
    next_notification = next_notification_of(
        row, store.read_rules("default"), now, store.read_routes("default"), ()
    )
    assert next_notification["reason"] == "escalation unless acknowledged"
    assert next_notification["channels"] == ["chief"]
    assert round(next_notification["age_ms"] / 1000) == -900
