"""A service change over a simulated fleet, with a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet.changes import engine
from fleet.changes.base_runner import StepContext
from fleet.changes.service import plan as service_plan
from fleet.changes.service.run import ServiceRunner
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.models.moments import to_moment
from fleet.monitoring.views import InstanceView
from fleet.vocabulary.campaigns import CampaignSettings
from fleet.vocabulary.instances import PollAttempt
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fakes.step_contexts import InMemoryReader, create_step_context
from tests.fleet.changes.conftest import NOW, actor_of

SETTINGS = CampaignSettings(soak_seconds=0, jitter_seconds=0, rate_per_minute=6000)


@dataclass
class ServiceScenario:
    """Plans and runs service changes of one fleet."""

    cluster: Cluster
    user: User
    fleet: CampaignFleet
    now: float = field(default_factory=NOW.timestamp)

    def view(self, name: str) -> InstanceView:
        """Return an instance by name."""
        views = self.fleet.table(self.now).instances.values()
        return next(view for view in views if view.facts.name == name)

    def plan(self, name: str, **options: Any) -> Change:
        """Plan to take an instance out of service."""
        return service_plan.plan_out_of_service(
            self.cluster.pk,
            self.fleet.table(self.now),
            self.view(name),
            SETTINGS,
            actor_of(self.user),
            to_moment(self.now),
            lambda order: None,
            **options,
        )

    def request(self, name: str, *, is_drained: bool) -> Change:
        """Drain an instance, or bring it back, without a campaign."""
        change, _ = service_plan.request_drain(
            self.cluster.pk,
            self.view(name),
            actor_of(self.user),
            "kernel update",
            lambda: to_moment(self.now),
            is_drained=is_drained,
        )
        return change

    def confirm(self, change: Change) -> Change:
        """Confirm a planned change."""
        return engine.confirm(
            change,
            actor_of(self.user),
            reason="kernel update",
            typed_name=self.cluster.pk,
            now=to_moment(self.now),
        )

    def step(self, change: Change, times: int = 1) -> Change:
        """Make steps, a second each; instances respond to polls and agents follow their advisories."""
        for _ in range(times):
            self.now += 1.0
            self.fleet.attempts = (PollAttempt(self.now, ok=True),)
            ServiceRunner().step(change, self.context)
            self.fleet.move()
            change.refresh_from_db()
        return change

    @property
    def context(self) -> StepContext:
        """Return the context of the next step."""
        return create_step_context(
            lambda: self.now,
            reader=InMemoryReader(self.fleet.table),
            writer=self.fleet,
            dialer=self.fleet,
        )


@pytest.fixture
def make_scenario(cluster: Cluster, alice: User) -> Callable[[CampaignFleet], ServiceScenario]:
    """A function that returns a scenario of a fleet, by alice."""
    return lambda fleet: ServiceScenario(cluster, alice, fleet)
