"""An incident for the tests of alert pages."""

from __future__ import annotations

import time

import pytest

from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader


@pytest.fixture
def incident(fake_reader: FakeReader) -> Incident:
    """Agents without a common cause, which is what the fake's stranded agents are."""
    now = time.time()
    fake_reader.states[0] = State.STRANDED
    return Incident.objects.create(
        cluster=ensure_default_cluster(), key="agents/none", cause_kind="agents", cause_id="none",
        cause_name="agents without a common cause", generation=1, state="firing", severity=2, opened_at=now - 90,
        fired_at=now - 60, affected_count=3, peak_count=207, agent_names=["agent-2"], summary="207 agents stranded.",
        trend=[[now - 90, 10], [now - 60, 207], [now - 30, 3]], notification_count=1, notified_at=now - 60,
        notified_severity=2, marks={"Agents stranded": [now - 90, 1.0, 2, 2, 207, "207 agents stranded.", True, False]},
    )  # fmt: skip
