"""Where a campaign can start from."""

from __future__ import annotations

from dataclasses import replace

from dashboards.changes.campaign_starts import find_campaign_starts
from fleet.monitoring.views import FleetTable
from tests.fakes.campaign_fleet import CampaignFleet


def _with_cause(table: FleetTable, agent_count: int, cause: int) -> FleetTable:
    """Return the table where an instance is the cause of the first agents."""
    verdicts = table.verdicts.copy()
    verdicts["cause"][:agent_count] = cause
    return replace(table, verdicts=verdicts)


def test_causes_come_first_then_auths_and_proxies() -> None:
    """Each with its number; instances without agents are left out."""
    fleet = CampaignFleet(
        {"a": {0}, "b": {0, 1}, "c": {1}},
        proxies=11,
        auths=2,
        auth_of={"a": 0, "b": 0, "c": 0},
        stranded_agents={"a", "b"},
    )
    starts = find_campaign_starts(_with_cause(fleet.table(1.0), 2, 100))
    assert [(start.label, start.count_text) for start in starts] == [
        ("Affected by auth-0", "2 agents"),
        ("Leave auth-0", "3 agents"),
        ("Leave proxy-0", "2 tunnels"),
        ("Leave proxy-1", "2 tunnels"),
    ]
    assert [start.query for start in starts][:3] == [
        "q=cause%3Aauth-0&connection=auth",
        "auth=auth-0",
        "proxy=proxy-0",
    ]


def test_healthy_agents_make_no_cause() -> None:
    """A cause of the past is not one."""
    fleet = CampaignFleet.of(3)
    starts = find_campaign_starts(_with_cause(fleet.table(1.0), 3, 1))
    assert all(start.label.startswith("Leave ") for start in starts)
