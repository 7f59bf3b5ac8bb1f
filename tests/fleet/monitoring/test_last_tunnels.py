"""Agents of a proxy that does not respond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fleet.monitoring.last_tunnels import describe_unreachable_agents, find_proxy_agents, is_responding
from fleet.vocabulary.instances import InstanceState, PollAttempt
from tests.fakes.campaign_fleet import CampaignFleet

_TUNNELS = {"only": {0}, "left": {0, 1}, "on-silent": {0, 2}, "other": {1}}


@pytest.mark.parametrize(
    ("fields", "remaining_ids", "moved_ids"),
    [
        ({}, ["only", "left", "on-silent"], []),
        ({"sick_proxies": {0}}, ["only", "left", "on-silent"], []),
        ({"silent_proxies": {0}}, ["only"], ["left", "on-silent"]),
        ({"silent_proxies": {0, 2}}, ["only", "on-silent"], ["left"]),
        ({"silent_proxies": {0}, "sick_proxies": {2}}, ["only"], ["left"]),
        ({"silent_proxies": {0, 1, 2}}, ["only", "left", "on-silent"], []),
        ({"silent_proxies": {1}}, ["only", "left", "on-silent"], []),
    ],
)
def test_agents_that_have_left_a_proxy(
    fields: Mapping[str, set[int]], remaining_ids: list[str], moved_ids: list[str]
) -> None:
    """Only of a proxy that does not respond; another one that fails is no place to be."""
    table = CampaignFleet(_TUNNELS, proxies=3, **fields).table(1.0)  # type: ignore[arg-type] # fields by name
    agents = find_proxy_agents(table, table.instances[0])
    assert [table.ids[index] for index in agents.remaining_agents.tolist()] == remaining_ids
    assert [table.ids[index] for index in agents.moved_agents.tolist()] == moved_ids


@pytest.mark.parametrize(
    ("state", "attempts", "expected"),
    [
        (InstanceState.OK, "", True),
        (InstanceState.UNHEALTHY, "ok", True),
        (InstanceState.EXPIRED, "ok failed", True),
        (InstanceState.EXPIRED, "failed failed", False),
        (InstanceState.SILENT, "failed failed", False),
        (InstanceState.GONE, "ok", False),
        (InstanceState.UNKNOWN, "", False),
    ],
)
def test_instance_responds(state: InstanceState, attempts: str, expected: bool) -> None:
    """An instance that expired long ago is no longer polled: its last attempt decides."""
    view = CampaignFleet.of(1).table(1.0).instances[0]
    poll_attempts = tuple(PollAttempt(1.0, ok=attempt == "ok") for attempt in attempts.split())
    view = replace(view, state=state, facts=replace(view.facts, attempts=poll_attempts))
    assert is_responding(view) is expected


@pytest.mark.parametrize(
    ("remaining_count", "moved_count", "expected"),
    [
        (0, 0, "Refloat cannot reach the agents of proxy-3, so it cannot move them."),
        (
            0,
            66,
            "No agents are left to move: 66 agents that had a tunnel with proxy-3 have already connected elsewhere.",
        ),
        (
            0,
            1,
            "No agents are left to move: 1 agent that had a tunnel with proxy-3 has already connected elsewhere.",
        ),
        (
            4,
            0,
            "Refloat cannot reach the agents of proxy-3 (4 when last known), so it cannot move them.",
        ),
        (
            4,
            62,
            (
                "Refloat cannot reach the agents of proxy-3 (4 when last known), so it cannot move them. "
                "62 agents that had a tunnel with proxy-3 have already connected elsewhere."
            ),
        ),
    ],
)
def test_why_no_agent_can_move(remaining_count: int, moved_count: int, expected: str) -> None:
    assert describe_unreachable_agents("proxy-3", remaining_count, moved_count) == expected
