"""The target agents of a campaign."""

from __future__ import annotations

import pytest

from dashboards.changes.target_agents import select_campaign_targets
from fleet.changes import ChangeRefusedError
from tests.fakes.campaign_fleet import CampaignFleet

TABLE = CampaignFleet(
    {"agent-1": {0}, "agent-2": {1}, "web-1": {0, 1}}, auths=2, auth_of={"agent-1": 0, "web-1": 1}
).table(1.0)


@pytest.mark.parametrize(
    ("filters", "agent_ids", "leave"),
    [
        ({"q": "web"}, ["web-1"], ()),
        ({"proxy": "proxy-0"}, ["agent-1", "web-1"], ("proxy-0",)),
        ({"agents": "agent-2, web-1"}, ["agent-2", "web-1"], ()),
        ({"q": "agent", "proxy": "proxy-1"}, ["agent-2"], ("proxy-1",)),
    ],
)
def test_agents_match_every_filter(
    filters: dict[str, str], agent_ids: list[str], leave: tuple[str, ...]
) -> None:
    """Filter, proxy and list together."""
    selection = select_campaign_targets(TABLE, filters)
    assert [TABLE.ids[index] for index in selection.indices] == agent_ids
    assert selection.instances_to_leave == leave
    assert selection.description


@pytest.mark.parametrize(
    ("filters", "connection", "agent_ids"),
    [
        ({"auth": "auth-0"}, "auth", ["agent-1"]),
        ({"auth": "auth-1", "connection": "auth", "q": "web"}, "auth", ["web-1"]),
        ({"q": "web", "connection": "auth"}, "auth", ["web-1"]),
        ({"q": "web", "connection": "tunnel"}, "tunnel", ["web-1"]),
        ({"q": "web"}, "tunnel", ["web-1"]),
    ],
)
def test_filters_select_agents_and_connection(
    filters: dict[str, str], connection: str, agent_ids: list[str]
) -> None:
    """Tunnels move, unless an auth or auth connections are selected."""
    selection = select_campaign_targets(TABLE, filters)
    assert selection.connection == connection
    assert [TABLE.ids[index] for index in selection.indices] == agent_ids
    assert selection.instances_to_leave == ((filters["auth"],) if "auth" in filters else ())


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({}, "q"),
        ({"q": "a:b"}, "q"),
        ({"proxy": "x"}, "proxy"),
        ({"auth": "proxy-0"}, "auth"),
        ({"agents": "x y"}, "agents"),
        ({"q": "web", "connection": "both"}, "connection"),
        ({"auth": "auth-0", "connection": "tunnel"}, "auth"),
        ({"proxy": "proxy-0", "connection": "auth"}, "proxy"),
        ({"proxy": "proxy-0", "auth": "auth-0"}, "auth"),
    ],
)
def test_invalid_filter_is_named(filters: dict[str, str], field: str) -> None:
    """The error names the field."""
    with pytest.raises(ChangeRefusedError) as caught:
        select_campaign_targets(TABLE, filters)
    assert field in caught.value.problems


@pytest.mark.parametrize("filters", [{}, {"q": "a:b"}, {"q": "state:x"}, {"q": "'"}])
def test_problem_of_the_filter_has_no_full_stop(filters: dict[str, str]) -> None:
    """The page and the API add one."""
    with pytest.raises(ChangeRefusedError) as caught:
        select_campaign_targets(TABLE, filters)
    assert not caught.value.problems["q"].endswith(".")


@pytest.mark.parametrize("connection", ["", "auth", "tunnel"])
def test_proxy_and_auth_together_have_one_error(connection: str) -> None:
    """With every connection, so that the error does not ask for another connection."""
    with pytest.raises(ChangeRefusedError, match="cannot be selected together"):
        select_campaign_targets(TABLE, {"proxy": "proxy-0", "auth": "auth-0", "connection": connection})
