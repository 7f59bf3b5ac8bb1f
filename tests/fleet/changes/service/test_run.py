"""Steps of service changes over a simulated fleet."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.models import User

from fleet.changes import engine
from fleet.changes.engine import ChangeDraft
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.models.drains import Drain
from fleet.vocabulary.changes import ChangeKind, ChangeState
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fleet.changes.conftest import NOW, actor_of
from tests.fleet.changes.service.conftest import ServiceScenario

MakeScenario = Callable[[CampaignFleet], ServiceScenario]


def test_proxy_drains_before_its_agents_move(make_scenario: MakeScenario) -> None:
    """The request is stored once, in the name of the author; every agent moves."""
    scenario = make_scenario(CampaignFleet.of(9))
    change = scenario.step(scenario.confirm(scenario.plan("proxy-1")))
    assert change.state == ChangeState.RUNNING
    assert Drain.objects.get().is_drained
    change = scenario.step(change, times=10)
    assert (change.state, change.detail) == (ChangeState.VERIFIED, "3 of 3 agents succeeded")
    assert all(1 not in proxies for proxies in scenario.fleet.agents.values())
    entry = AuditEntry.objects.get(action="instance.drain")
    assert (entry.actor_name, entry.subject, entry.change_id) == ("alice", "proxy-1", change.pk)


def test_auth_drains_after_its_agents_have_moved(make_scenario: MakeScenario) -> None:
    """Until then its agents leave at the rate of the campaign."""
    scenario = make_scenario(CampaignFleet.on_auths(4))
    change = scenario.step(scenario.confirm(scenario.plan("auth-0")))
    assert change.state == ChangeState.RUNNING
    assert not Drain.objects.exists()
    change = scenario.step(change, times=10)
    assert change.state == ChangeState.VERIFIED
    assert Drain.objects.get().name == "auth-0"


def test_failed_campaign_does_not_drain_the_auth(make_scenario: MakeScenario) -> None:
    """Its agents stay where they are."""
    fleet = CampaignFleet.on_auths(4, stubborn_agents={f"agent-{n}" for n in range(4)})
    scenario = make_scenario(fleet)
    change = scenario.step(scenario.confirm(scenario.plan("auth-0")), times=70)
    assert change.state in (ChangeState.PAUSED, ChangeState.FAILED)
    assert not Drain.objects.exists()


def test_drain_does_not_wait_for_another_change(
    make_scenario: MakeScenario, cluster: Cluster, alice: User
) -> None:
    """Only the campaign does; the request is not repeated."""
    draft = ChangeDraft(ChangeKind.POLICY, "a rollout", {}, {}, {})
    blocker = engine.create_change("default", draft, actor_of(alice), NOW)
    Change.objects.filter(pk=blocker.pk).update(state=ChangeState.RUNNING.value)
    scenario = make_scenario(CampaignFleet.of(6))
    change = scenario.step(scenario.confirm(scenario.plan("proxy-0")), times=3)
    assert change.state == ChangeState.CONFIRMED
    assert "a rollout" in change.detail
    assert AuditEntry.objects.filter(action="instance.drain").count() == 1


def test_drain_ends_when_the_instance_reports_it(make_scenario: MakeScenario) -> None:
    """Not before, and not from a poll before the request."""
    scenario = make_scenario(CampaignFleet.of(6))
    change = scenario.step(scenario.request("proxy-0", is_drained=True))
    assert (change.state, change.detail) == (ChangeState.VERIFYING, "waiting for proxy-0 to respond")
    scenario.fleet.drained_proxies = {0}
    assert scenario.step(change).state == ChangeState.VERIFIED
    change = scenario.request("proxy-0", is_drained=False)
    assert scenario.step(change).state == ChangeState.VERIFYING
    scenario.fleet.drained_proxies = set()
    assert scenario.step(change).detail == "proxy-0 accepts new connections"


def test_error_of_the_instance_is_shown(make_scenario: MakeScenario) -> None:
    """A worker repeats the request."""
    scenario = make_scenario(CampaignFleet.of(6))
    change = scenario.request("proxy-0", is_drained=True)
    Drain.objects.update(error="proxy-0 does not support it")
    assert scenario.step(change).detail == "proxy-0 does not support it"


def test_opposite_request_ends_the_earlier_change(make_scenario: MakeScenario) -> None:
    """It can never be verified."""
    scenario = make_scenario(CampaignFleet.of(6))
    change = scenario.request("proxy-0", is_drained=True)
    scenario.request("proxy-0", is_drained=False)
    change = scenario.step(change)
    assert (change.state, "replaced by a later request" in change.detail) == (ChangeState.FAILED, True)


def test_change_of_an_instance_that_is_gone_fails(make_scenario: MakeScenario) -> None:
    """It was deregistered before it accepted the request."""
    scenario = make_scenario(CampaignFleet.of(6))
    change = scenario.request("proxy-2", is_drained=True)
    scenario.fleet.proxies = 2
    assert "was deregistered" in scenario.step(change).detail
