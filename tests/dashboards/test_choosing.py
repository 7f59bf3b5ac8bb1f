"""Whom a campaign is about."""

from __future__ import annotations

import pytest

from dashboards.choosing import chosen
from fleet.control import Refused
from tests.fakes.movers import Movers

TABLE = Movers({"agent-1": {0}, "agent-2": {1}, "web-1": {0, 1}}).table(1.0)


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
    made = chosen(TABLE, given)
    assert [TABLE.ids[index] for index in made.indices] == found
    assert made.leave == leave
    assert made.words


@pytest.mark.parametrize(
    ("given", "field"),
    [({}, "q"), ({"q": "a:b"}, "q"), ({"proxy": "x"}, "proxy"), ({"agents": "x y"}, "agents")],
)
def test_what_cannot_be_understood_is_named(given: dict[str, str], field: str) -> None:
    """By its field."""
    with pytest.raises(Refused) as caught:
        chosen(TABLE, given)
    assert field in caught.value.problems
