"""Campaigns as far as they dial nobody; steps are in `test_campaigns_run.py`."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError, engine
from fleet.changes.campaigns import campaigns
from fleet.changes.campaigns.campaigns import CampaignTargets
from fleet.changes.campaigns.kind import ReconnectKind
from fleet.models.actions import CampaignAgent
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.campaigns import CampaignSettings
from fleet.vocabulary.changes import ChangeState
from tests.fakes.movers import Movers
from tests.fleet.changes.conftest import NOW, by


def _plan(cluster: Cluster, user: User, movers: Movers, later: timedelta = timedelta()) -> Change:
    chosen = CampaignTargets(np.arange(len(movers.agents)), "all of them")
    table = movers.table(NOW.timestamp())
    return campaigns.plan_campaign(
        cluster.pk, table, chosen, CampaignSettings(), by(user), NOW + later, lambda order: order.reverse()
    )


def test_plan_freezes_its_agents(cluster: Cluster, alice: User) -> None:
    """The list is what was seen; who cannot move is counted with the reason; the order is drawn."""
    movers = Movers({"a": {0}, "b": {1}, "c": set()}, proxies=2)
    change = _plan(cluster, alice, movers)
    assert (change.plan["asked"], change.agents) == (2, 3)
    assert change.plan["leaving"] == {"proxy-0": 1, "proxy-1": 1}
    assert list(change.plan["skipped"].values()) == [1]
    assert [row.agent_id for row in change.campaign_agents.all()] == ["c", "b", "a"]
    assert AuditEntry.objects.filter(action="reconnect.plan", outcome="done").count() == 1


def test_nobody_chosen_is_refused(cluster: Cluster, alice: User) -> None:
    """With the field."""
    with pytest.raises(ChangeRefusedError) as caught:
        _plan(cluster, alice, Movers({}))
    assert "chosen" in caught.value.problems


def test_plans_nobody_agreed_to_are_forgotten(cluster: Cluster, alice: User) -> None:
    """Their lists, after an hour."""
    first = _plan(cluster, alice, Movers.of(3))
    _plan(cluster, alice, Movers.of(3), timedelta(hours=2))
    assert not first.campaign_agents.exists()
    assert CampaignAgent.objects.count() == 3
    with pytest.raises(ChangeRefusedError, match="older than 60 min"):
        engine.confirm(first, by(alice), reason="late", typed_name="", now=NOW + timedelta(hours=2))


def test_called_off_before_it_began(cluster: Cluster, alice: User) -> None:
    """Its totals add up, too; the list of what was only looked at is not kept."""
    change = _plan(cluster, alice, Movers.of(3))
    engine.confirm(change, by(alice), reason="to try", typed_name="", now=NOW)
    ReconnectKind().cancel(change, by(alice), NOW)
    assert change.state == ChangeState.CANCELLED
    assert (campaigns.counts_of(change).skipped, change.outcome["skipped"]) == (3, 3)
    looked_at = ReconnectKind().cancel(_plan(cluster, alice, Movers.of(3)), by(alice), NOW)
    assert not looked_at.campaign_agents.exists()


def test_question_has_the_number(cluster: Cluster, alice: User) -> None:
    """Of those that are asked, and of those that are not."""
    change = _plan(cluster, alice, Movers({"a": {0}, "b": {1}, "c": set()}, proxies=2))
    assert change.plan["question"] == "Reconnect 2 agents to another proxy (1 more will be skipped)?"
