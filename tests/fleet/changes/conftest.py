"""A cluster, users, a fixed time and a campaign."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from django.contrib.auth.models import User

from fleet.audit import RequestActor
from fleet.changes import engine
from fleet.changes.base_runner import StepContext
from fleet.changes.campaigns import campaigns
from fleet.changes.campaigns.forecast import TargetAgents
from fleet.changes.campaigns.run import CampaignRunner
from fleet.changes.engine import ChangeDraft
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.campaigns import CampaignSettings, ConnectionKind
from fleet.vocabulary.changes import Actor, ActorKind, ChangeKind, ChangeState
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fakes.step_contexts import InMemoryReader, create_step_context

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def actor_of(user: User, key: str = "") -> RequestActor:
    """Return the user as the actor of a request."""
    return RequestActor(Actor(ActorKind.PERSON, user.get_username(), user.pk), "req-1", key)


def make_draft(agents: int = 3, desired_value: str = "b") -> ChangeDraft:
    """Return a draft of a networking change."""
    return ChangeDraft(
        ChangeKind.NETWORKING_CONFIG,
        "a to b",
        {"v": "a"},
        {"v": desired_value},
        {"closes": agents},
        affected_count=agents,
    )


class CampaignScenario:
    """A campaign over a simulated fleet, with a simulated clock."""

    def __init__(
        self,
        cluster: Cluster,
        user: User,
        fleet: CampaignFleet,
        leave: tuple[str, ...] = (),
        connection: ConnectionKind = ConnectionKind.TUNNEL,
        **settings: int,
    ) -> None:
        self.fleet, self.user, self.now = fleet, user, NOW.timestamp()
        #: Where agents are marked as reconnecting.
        self.marks_store: CampaignFleet | Writer = fleet
        targets = TargetAgents(np.arange(len(fleet.agents)), "all", leave, connection)
        self.change: Change = campaigns.plan_campaign(
            cluster.pk,
            fleet.table(NOW.timestamp()),
            targets,
            CampaignSettings(**{"soak_seconds": 0, "jitter_seconds": 0, **settings}),
            actor_of(user),
            NOW,
            lambda order: None,
        )

    def confirm(self) -> None:
        self.change = engine.confirm(
            self.change, actor_of(self.user), reason="to try", typed_name=self.change.cluster_id, now=NOW
        )

    def step(self, times: int = 1, seconds: float = 1.0) -> Change:
        for _ in range(times):
            self.now += seconds
            CampaignRunner().step(self.change, self.context)
            self.fleet.move()
        self.change.refresh_from_db()
        return self.change

    def run_until_ended(self, max_steps: int = 500) -> Change:
        for _ in range(max_steps):
            if self.step().state not in (ChangeState.CONFIRMED, ChangeState.RUNNING):
                return self.change
        raise AssertionError(f"the campaign did not end: {campaigns.counts_of(self.change)}")

    @property
    def context(self) -> StepContext:
        return create_step_context(
            lambda: self.now,
            reader=InMemoryReader(self.fleet.table),
            writer=self.marks_store,
            dialer=self.fleet,
        )

    @property
    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)


@pytest.fixture
def cluster(db: None) -> Cluster:
    """A cluster with default settings."""
    return Cluster.objects.create(id="default", name="Default")


@pytest.fixture
def alice(db: None) -> User:
    """The author of changes."""
    return User.objects.create_user("alice")


@pytest.fixture
def bob(db: None) -> User:
    """The approver of changes."""
    return User.objects.create_user("bob")
