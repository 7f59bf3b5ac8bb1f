from __future__ import annotations

from dataclasses import replace
from datetime import time
from typing import Any

import pytest

from fleet.alerts.setup.routes import (
    RouteValues,
    descendant_rows_of,
    find_route_problems,
    is_below,
    name_route,
)
from fleet.models.alerting import Route

_VALUES = RouteValues(
    cluster="", matchers="kind=proxy", channels=["ops"], escalate_after=900.0, escalate_to=["pager"],
    quiet_from=time(22), quiet_until=time(6), quiet_zone="Europe/Berlin", channel_clusters=[""],
    escalation_clusters=[""], parent_cluster=None,
)  # fmt: skip


def test_valid_route_has_no_problems() -> None:
    """Also a route of a cluster with channels of both scopes."""
    assert find_route_problems(_VALUES) == {}
    assert find_route_problems(replace(_VALUES, cluster="eu", channel_clusters=["", "eu"])) == {}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"matchers": "colour=red"}, "matchers"),
        ({"matchers": "agent=web-1"}, "matchers"),
        ({"quiet_until": None}, "quiet_until"),
        ({"quiet_zone": "Mars/Base"}, "quiet_zone"),
        ({"escalate_to": []}, "escalate_to"),
        ({"escalate_to": ["ops"]}, "escalate_to"),
        ({"escalate_after": None}, "escalate_after"),
        ({"escalate_after": 59.0}, "escalate_after"),
        ({"escalate_after": 1e9}, "escalate_after"),
        ({"channel_clusters": ["eu"]}, "channels"),
        ({"escalation_clusters": ["eu"]}, "escalate_to"),
        ({"parent_cluster": "eu"}, "parent"),
    ],
)
def test_problem_is_of_one_field(wrong: dict[str, Any], field: str) -> None:
    """With a sentence."""
    problems = find_route_problems(replace(_VALUES, **wrong))
    assert list(problems) == [field]
    assert problems[field].endswith(".")


def test_name_is_that_of_the_incidents() -> None:
    """It fits the column."""
    assert name_route("kind=proxy", 2) == "Critical incidents caused by a proxy"
    assert len(name_route(f"cause={'x' * 300}", 2)) == 100


@pytest.mark.django_db
def test_tree_is_walked_up_and_down() -> None:
    """A route is below itself and each of its ancestors."""
    root = Route.objects.get()
    child = Route.objects.create(name="child", parent=root)
    grandchild = Route.objects.create(name="grandchild", parent=child)
    assert descendant_rows_of(root) == [child, grandchild]
    assert is_below(grandchild, root)
    assert is_below(root, root)
    assert not is_below(root, child)
    assert not is_below(None, root)
