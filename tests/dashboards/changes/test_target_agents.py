"""Whom a campaign is about."""

from __future__ import annotations

import pytest

from dashboards.changes.target_agents import select_campaign_targets
from fleet.changes import ChangeRefusedError
from tests.fakes.movers import Movers

TABLE = Movers(
    {"agent-1": {0}, "agent-2": {1}, "web-1": {0, 1}}, auths=2, auth_of={"agent-1": 0, "web-1": 1}
).table(1.0)


@pytest.mark.parametrize(
    ("given", "found", "leave"),
    [
        ({"q": "web"}, ["web-1"], ()),
        ({"proxy": "proxy-0"}, ["agent-1", "web-1"], ("proxy-0",)),
        ({"agents": "agent-2, web-1"}, ["agent-2", "web-1"], ()),
        ({"q": "agent", "proxy": "proxy-1"}, ["agent-2"], ("proxy-1",)),
    ],
)
def test_all_that_is_said_holds(given: dict[str, str], found: list[str], leave: tuple[str, ...]) -> None:
    """Filter, proxy and list together."""
    made = select_campaign_targets(TABLE, given)
    assert [TABLE.ids[index] for index in made.indices] == found
    assert made.instances_to_leave == leave
    assert made.description


@pytest.mark.parametrize(
    ("given", "connection", "found"),
    [
        ({"auth": "auth-0"}, "auth", ["agent-1"]),
        ({"auth": "auth-1", "connection": "auth", "q": "web"}, "auth", ["web-1"]),
        ({"q": "web", "connection": "auth"}, "auth", ["web-1"]),
        ({"q": "web", "connection": "tunnel"}, "tunnel", ["web-1"]),
        ({"q": "web"}, "tunnel", ["web-1"]),
    ],
)
def test_what_moves(given: dict[str, str], connection: str, found: list[str]) -> None:
    """Tunnels, unless an auth is to be left or auth connections are asked for."""
    made = select_campaign_targets(TABLE, given)
    assert made.connection == connection
    assert [TABLE.ids[index] for index in made.indices] == found
    assert made.instances_to_leave == ((given["auth"],) if "auth" in given else ())


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "q"),
        ({"q": "a:b"}, "q"),
        ({"proxy": "x"}, "proxy"),
        ({"auth": "proxy-0"}, "auth"),
        ({"agents": "x y"}, "agents"),
        ({"q": "web", "connection": "both"}, "connection"),
        ({"auth": "auth-0", "connection": "tunnel"}, "auth"),
        ({"proxy": "proxy-0", "connection": "auth"}, "proxy"),
    ],
)
def test_what_cannot_be_understood_is_named(given: dict[str, str], field: str) -> None:
    """By its field."""
    with pytest.raises(ChangeRefusedError) as caught:
        select_campaign_targets(TABLE, given)
    assert field in caught.value.problems
