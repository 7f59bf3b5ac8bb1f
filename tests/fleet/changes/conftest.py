"""A cluster, people, and a moment."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from django.contrib.auth.models import User

from fleet.audit import RequestActor
from fleet.changes import engine
from fleet.changes.base_runner import StepContext
from fleet.changes.campaigns import campaigns
from fleet.changes.campaigns.campaigns import CampaignTargets
from fleet.changes.campaigns.run import CampaignRunner
from fleet.changes.engine import ChangeDraft
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.campaigns import CampaignSettings, ConnectionKind
from fleet.vocabulary.changes import Actor, ActorKind, ChangeKind, ChangeState
from tests.fakes.movers import Movers
from tests.fakes.steps import SightOfMoment, context_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def by(user: User, key: str = "") -> RequestActor:
    """A person asking."""
    return RequestActor(Actor(ActorKind.PERSON, user.get_username(), user.pk), "req-1", key)


def draft(agents: int = 3, wanted: str = "b") -> ChangeDraft:
    """A change of nothing in particular."""
    return ChangeDraft(
        ChangeKind.NETWORKING_CONFIG,
        "a to b",
        {"v": "a"},
        {"v": wanted},
        {"closes": agents},
        agent_count=agents,
    )


class Campaign:
    """One campaign over a fleet, with a clock of its own."""

    def __init__(
        self,
        cluster: Cluster,
        user: User,
        movers: Movers,
        leave: tuple[str, ...] = (),
        connection: ConnectionKind = ConnectionKind.TUNNEL,
        **pace: int,
    ) -> None:
        self.movers, self.user, self.now = movers, user, NOW.timestamp()
        #: Where it is kept who is working.
        self.marks: Movers | Writer = movers
        chosen = CampaignTargets(np.arange(len(movers.agents)), "all", leave, connection)
        self.change: Change = campaigns.plan_campaign(
            cluster.pk, movers.table(NOW.timestamp()), chosen,
            CampaignSettings(**{"hold": 0, "jitter": 0, **pace}), by(user), NOW, lambda order: None,
        )  # fmt: skip

    def confirm(self) -> None:
        self.change = engine.confirm(
            self.change, by(self.user), reason="to try", typed_name=self.change.cluster_id, now=NOW
        )

    def step(self, times: int = 1, seconds: float = 1.0) -> Change:
        for _ in range(times):
            self.now += seconds
            CampaignRunner().step(self.change, self.context)
            self.movers.move()
        self.change.refresh_from_db()
        return self.change

    def until_over(self, most: int = 500) -> Change:
        for _ in range(most):
            if self.step().state not in (ChangeState.CONFIRMED, ChangeState.RUNNING):
                return self.change
        raise AssertionError(f"it did not end: {campaigns.counts_of(self.change)}")

    @property
    def context(self) -> StepContext:
        return context_of(
            lambda: self.now,
            reader=SightOfMoment(self.movers.table),
            writer=self.marks,
            dialer=self.movers,
        )

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)


@pytest.fixture
def cluster(db: None) -> Cluster:
    """A cluster that asks for nothing special."""
    return Cluster.objects.create(id="default", name="Default")


@pytest.fixture
def alice(db: None) -> User:
    """Who makes changes."""
    return User.objects.create_user("alice")


@pytest.fixture
def bob(db: None) -> User:
    """Who agrees to them."""
    return User.objects.create_user("bob")
