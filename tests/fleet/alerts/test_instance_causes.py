"""Causes of incidents about instances, and instances that fail together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.instance_causes import (
    cause_of_instance,
    group_instances,
    is_joint_failure,
    root_cause_key_of,
)
from fleet.monitoring.views import InstanceView
from fleet.vocabulary.instances import InstanceState
from tests.fakes.reader import FakeReader

NOW = 1000.0


def proxies_in(*regions: str, group: str = "") -> list[InstanceView]:
    """Return one proxy for each of these regions."""
    proxy = FakeReader(as_of=NOW).instances("default", NOW)[2]
    return [
        replace(proxy, facts=replace(proxy.facts, id=f"p{number}", region=region, group=group))
        for number, region in enumerate(regions)
    ]


@pytest.mark.parametrize(
    ("sick_count", "member_count", "expected"), [(1, 1, False), (1, 2, False), (2, 4, True), (2, 5, False)]
)
def test_joint_failures(sick_count: int, member_count: int, expected: bool) -> None:
    """At least two instances, and at least half."""
    assert is_joint_failure(sick_count, member_count) is expected


def test_instances_are_grouped_by_region_and_proxy_group() -> None:
    """A region of all instances says nothing, and a deregistered instance is no member."""
    views = proxies_in("north", "south", "south", group="blue")
    gone_proxy = replace(proxies_in("north")[0], state=InstanceState.GONE)
    assert {cause.key: keys for cause, keys in group_instances([*views, gone_proxy]).items()} == {
        "region/north": ("proxy/p0",),
        "region/south": ("proxy/p1", "proxy/p2"),
        "proxy-group/blue": ("proxy/p0", "proxy/p1", "proxy/p2"),
    }
    assert group_instances(proxies_in("north", "north")) == {}


def test_root_causes() -> None:
    """The auth behind a failing proxy, the backend by its own key, or none."""
    (proxy,) = proxies_in("north")
    assert cause_of_instance(proxy).key == "proxy/p0"
    for cause, key in (("", ""), ("a1", "auth/a1"), ("backend/default", "backend/default")):
        assert root_cause_key_of(replace(proxy, cause=cause)) == key
