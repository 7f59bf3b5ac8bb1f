from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fleet.alerts.runbooks.new_versions import are_updated, find_distinctive_version, find_member_ids
from fleet.monitoring import columns
from fleet.monitoring.agent_attributes import AttributeTable
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import Cause, CauseKind
from tests.fakes.headline_fleets import table_with


@pytest.mark.parametrize(
    ("cause", "changes", "members"),
    [
        (Cause(CauseKind.PROXY, "uuid-proxy-1", "proxy-1"), {}, {"uuid-proxy-1"}),
        (Cause(CauseKind.BACKEND, "default", "backend"), {}, {"uuid-auth-1", "uuid-auth-2"}),
        (
            Cause(CauseKind.GROUP, "blue", "proxy group blue"),
            {"proxy_1": {"group": "blue"}, "proxy_2": {"group": "blue"}},
            {"uuid-proxy-1", "uuid-proxy-2"},
        ),
        (
            Cause(CauseKind.REGION, "eu", "region eu"),
            {"auth_1": {"region": "eu"}, "proxy_1": {"region": "eu"}},
            {"uuid-auth-1", "uuid-proxy-1"},
        ),
        (Cause(CauseKind.AGENTS, "none", "agents"), {}, set()),
    ],
)
def test_cause_has_its_instances(cause: Cause, changes: dict[str, Any], members: set[str]) -> None:
    """Without a table, only those that the cause names."""
    assert find_member_ids(cause, table_with(**changes)) == members
    assert find_member_ids(cause, None) == (members if cause.kind is CauseKind.PROXY else set())


@pytest.mark.parametrize(
    ("members", "updated_ids", "expected"),
    [("ab", "a", True), ("abc", "a", False), ("a", "", False), ("", "a", False), ("ab", "xy", False)],
)
def test_half_of_the_instances_are_enough(members: str, updated_ids: str, expected: bool) -> None:
    assert are_updated(frozenset(members), frozenset(updated_ids)) is expected


def _with_versions(versions: str) -> FleetTable:
    """Return a fleet of one agent for each letter; `-` is an agent without a version."""
    names = sorted({*versions} - {"-"})
    rows = np.zeros(len(versions), columns.ATTRIBUTE)
    rows["version"] = [0 if letter == "-" else 1 + names.index(letter) for letter in versions]
    table = table_with(healthy_count=len(versions))
    return replace(table, attributes=AttributeTable(rows, ("", *names), ({},)))


@pytest.mark.parametrize(
    ("versions", "affected_count", "expected"),
    [
        ("nnnnnnoooooooooo", 6, "n"),
        ("nnnnoooooooooo", 4, ""),  # too few
        ("nnnnnn", 6, ""),  # no other version
        ("nnnnnnnnnnnnnnno", 6, ""),  # most agents with the version are fine
        ("nnnnooooooo", 6, ""),  # two versions
        ("------oooooo", 6, ""),  # no version reported
        ("nnnnnnnnnno", 11, ""),  # all others are affected, too
    ],
)
def test_version_sets_the_affected_agents_apart(versions: str, affected_count: int, expected: str) -> None:
    """Only if most of them have it, most agents with it are affected, and few others are."""
    assert find_distinctive_version(_with_versions(versions), np.arange(affected_count)) == expected
