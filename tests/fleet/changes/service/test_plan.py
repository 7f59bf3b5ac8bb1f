"""Plans to take instances out of service, and requests to drain them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.changes import ChangeRefusedError, NoEvidenceError
from fleet.changes.service import plan as service_plan
from fleet.models.changes import AuditEntry
from fleet.models.drains import Drain
from fleet.vocabulary.changes import ChangeState
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fleet.changes.service.conftest import ServiceScenario

MakeScenario = Callable[[CampaignFleet], ServiceScenario]


def test_plan_moves_the_agents_of_a_proxy(make_scenario: MakeScenario) -> None:
    """Its agents are the target agents; the loads of all proxies add up."""
    scenario = make_scenario(CampaignFleet.of(60))
    change = scenario.plan("proxy-1")
    assert (change.kind, change.state, change.title) == (
        "service",
        ChangeState.PLANNED,
        "Take proxy-1 out of service",
    )
    assert change.plan["question"] == "Take proxy-1 out of service and move 20 agents?"
    assert (change.before["is_drained"], change.after["is_drained"]) == (False, True)  # type: ignore[index] # documents
    loads = {
        load["name"]: (load["before"], load["after"], load["is_leaving"]) for load in change.plan["loads"]
    }
    assert loads == {
        "proxy-1": (20, 0, True),
        "proxy-0": (20, 30, False),
        "proxy-2": (20, 30, False),
    }
    assert change.campaign_agents.count() == 20
    assert not Drain.objects.exists()


def test_plan_moves_stranded_agents_of_an_auth(make_scenario: MakeScenario) -> None:
    """An agent that its auth strands moves like the others: it is reached through its tunnel."""
    fleet = CampaignFleet.on_auths(6, stranded_agents={"agent-0", "agent-1"}, sick_auths={0})
    change = make_scenario(fleet).plan("auth-0")
    assert (change.plan["connection"], change.plan["reconnect_count"]) == ("auth", 6)


def test_plan_without_an_agent_to_move_only_drains(make_scenario: MakeScenario) -> None:
    """No other proxy is healthy: the agents that would be cut off are counted, and no campaign runs."""
    change = make_scenario(CampaignFleet.of(4, proxies=2, sick_proxies={0})).plan("proxy-1")
    assert not service_plan.has_campaign(change)
    assert change.title == "Drain proxy-1"
    assert "2 agents cannot move" in " ".join(change.plan["notes"])


def test_plan_needs_current_data(make_scenario: MakeScenario) -> None:
    """As for campaigns."""
    with pytest.raises(NoEvidenceError):
        make_scenario(CampaignFleet.of(4, stale=True)).plan("proxy-1")


def test_request_is_a_change_with_an_audit_entry(make_scenario: MakeScenario) -> None:
    """One entry, about the instance, that names the change."""
    scenario = make_scenario(CampaignFleet.of(6))
    change = scenario.request("proxy-0", is_drained=True)
    assert (change.state, change.reason, change.affected_count) == (
        ChangeState.VERIFYING,
        "kernel update",
        2,
    )
    row, entry = Drain.objects.get(), AuditEntry.objects.get()
    assert (row.name, row.is_drained, row.actor_name, row.reason) == (
        "proxy-0",
        True,
        "alice",
        "kernel update",
    )
    assert (entry.action, entry.subject, entry.outcome, entry.change_id) == (
        "instance.drain",
        "proxy-0",
        "succeeded",
        change.pk,
    )
    assert entry.before["is_drained"] is False
    scenario.request("proxy-0", is_drained=False)
    assert not Drain.objects.get().is_drained


def test_deregistered_instance_is_refused(make_scenario: MakeScenario) -> None:
    """With its name."""
    table = make_scenario(CampaignFleet.of(3)).fleet.table(0.0)
    with pytest.raises(ChangeRefusedError, match="proxy-9 is no longer in the fleet"):
        service_plan.require_view(table, "p9", "proxy-9")
    for view in table.instances.values():
        assert service_plan.require_view(table, view.facts.id, view.facts.name) is view


@pytest.mark.parametrize(("kind", "is_first"), [("proxy", True), ("auth", False)])
def test_order_of_drain_and_campaign(kind: str, is_first: bool) -> None:
    """A draining auth would lose its agents at once, so it drains last."""
    assert service_plan.drains_first({"kind": kind}) is is_first


@pytest.mark.parametrize(
    ("agents", "affected_count", "note"),
    [
        (
            {"a": {0, 1}, "b": {0, 2}, "c": {1}},
            0,
            "No agents are left to move: 2 agents that had a tunnel with proxy-0 have already connected elsewhere.",
        ),
        (
            {"a": {0, 1}, "b": {0}, "c": {1}},
            1,
            (
                "Refloat cannot reach the agents of proxy-0 (1 when last known), so it cannot move them. "
                "1 agent that had a tunnel with proxy-0 has already connected elsewhere."
            ),
        ),
        ({"c": {1}}, 0, "Refloat cannot reach the agents of proxy-0, so it cannot move them."),
    ],
)
def test_plan_for_a_silent_proxy_moves_no_agents(
    make_scenario: MakeScenario, agents: dict[str, set[int]], affected_count: int, note: str
) -> None:
    """Its last known tunnels are not live: agents that are connected elsewhere stay there."""
    change = make_scenario(CampaignFleet(agents, silent_proxies={0})).plan("proxy-0")
    assert (change.title, change.affected_count) == ("Drain proxy-0", affected_count)
    assert not service_plan.has_campaign(change)
    assert not change.campaign_agents.exists()
    assert change.plan["notes"] == ["proxy-0 accepts no new connections as soon as it responds.", note]


def test_plan_for_a_silent_auth_moves_its_agents(make_scenario: MakeScenario) -> None:
    """Requests reach them through their tunnels; but not through a proxy that does not respond."""
    fleet = CampaignFleet.on_auths(6, sick_auths={0}, silent_proxies={0})
    change = make_scenario(fleet).plan("auth-0")
    assert (change.plan["connection"], change.plan["reconnect_count"]) == ("auth", 4)
