"""Rows of rollouts and campaigns."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from fleet.models.actions import CampaignAgent, DesiredPolicy, RolloutStep
from fleet.models.changes import Change
from fleet.models.clusters import Cluster

pytestmark = pytest.mark.django_db


def test_rows_are_unique() -> None:
    """Agents of a campaign, instances of a rollout, and desired policies of a target."""
    cluster = Cluster.objects.create(id="default", name="Default")
    change = Change.objects.create(
        cluster=cluster, kind="reconnect", title="x", actor_name="a", actor_kind="person"
    )
    rows = (
        lambda: CampaignAgent.objects.create(change=change, position=0, agent_id="a", name="agent-1"),
        lambda: RolloutStep.objects.create(change=change, position=0, instance_id="i", name="auth-1"),
        lambda: DesiredPolicy.objects.create(cluster=cluster, target="auth", name="N", value="v"),
    )
    for make in rows:
        row = make()
        assert str(row).startswith(("agent-1", "auth-1", "auth: N"))
        with pytest.raises(IntegrityError), transaction.atomic():
            make()
