"""What agents lose if an instance fails: the vectorised forecast equals one agent at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet.monitoring.columns import HEALTH_CHECK
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.failure_impact import (
    CONNECTED_STATES,
    has_other_ok_instance,
    mask_only_tunnels,
    predict_auth_failure,
)
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import State
from tests.fakes.campaign_fleet import CampaignFleet

_PROXIES = 4
_numbers = st.sets(st.integers(0, _PROXIES - 1))


def _only_tunnels_of(fleet: CampaignFleet, proxy: int) -> set[str]:
    """Return the agents with a tunnel to a proxy and none to another one that responds, one agent at a time."""
    return {
        agent
        for agent, proxies in fleet.agents.items()
        if proxy in proxies
        and not (proxies - fleet.silent_proxies - {proxy})
        and agent not in fleet.retired_agents
    }


@given(
    st.lists(_numbers, max_size=12),
    _numbers,
    _numbers,
    st.sets(st.integers(0, 11)),
    st.sets(st.integers(0, _PROXIES - 1), min_size=1),
)
def test_only_tunnels_equal_one_agent_at_a_time(
    tunnels: list[set[int]], silent: set[int], sick: set[int], retired_numbers: set[int], targets: set[int]
) -> None:
    """For any fleet and any set of proxies: an agent is in if the failure of one of them takes its last tunnel."""
    fleet = CampaignFleet(
        {f"agent-{number}": proxies for number, proxies in enumerate(tunnels)},
        _PROXIES,
        silent_proxies=silent,
        sick_proxies=sick,
        retired_agents={f"agent-{number}" for number in retired_numbers},
    )
    table = fleet.table(1.0)
    expected = set().union(*(_only_tunnels_of(fleet, proxy) for proxy in targets))
    assert {table.ids[index] for index in np.flatnonzero(mask_only_tunnels(table, targets))} == expected


def test_two_tunnels_with_one_proxy_are_one() -> None:
    """An agent whose two tunnels are with the same proxy loses both."""
    table = CampaignFleet({"twice": {0}, "other": {0, 1}}).table(1.0)
    doubled = replace(
        table,
        tunnel_agents=np.append(table.tunnel_agents, table.tunnel_agents[:1]),
        tunnel_proxies=np.append(table.tunnel_proxies, table.tunnel_proxies[:1]),
    )
    assert mask_only_tunnels(doubled, [0]).tolist() == [True, False]
    assert not mask_only_tunnels(doubled, []).any()


@given(
    st.lists(
        st.tuples(st.sampled_from(State), st.integers(0, 1), st.sampled_from(ReconnectMode), st.booleans()),
        max_size=12,
    ),
    st.sets(st.integers(0, 1)),
)
def test_auth_failure_equals_one_agent_at_a_time(
    agents: list[tuple[State, int, ReconnectMode, bool]], drained_auths: set[int]
) -> None:
    """Connected agents of the auth, by the mode that each reports."""
    fleet = CampaignFleet.of(len(agents), auths=2, drained_auths=drained_auths)
    fleet.auth_of = {f"agent-{number}": auth for number, (_, auth, _, _) in enumerate(agents)}
    table = _with_modes(fleet.table(1.0), agents)
    auth = next(view for view in table.instances.values() if view.facts.name == "auth-0")
    impact = predict_auth_failure(table, auth)
    own = [
        (mode, checks) for state, number, mode, checks in agents if number == 0 and state in CONNECTED_STATES
    ]
    automatic = [1 for mode, checks in own if mode is ReconnectMode.RECONNECT and checks]
    unreported = [1 for mode, _ in own if mode is ReconnectMode.UNKNOWN]
    assert (impact.agent_count, impact.automatic_count) == (len(own), len(automatic))
    assert impact.unreported_count == len(unreported)
    assert impact.waiting_count == len(own) - len(automatic) - len(unreported)
    assert impact.has_other_auth is (1 not in drained_auths) is has_other_ok_instance(table, auth)


def _with_modes(table: FleetTable, agents: list[tuple[State, int, ReconnectMode, bool]]) -> FleetTable:
    verdicts, heartbeats = table.verdicts.copy(), table.heartbeats.copy()
    verdicts["state"] = [state for state, _, _, _ in agents]
    heartbeats["mode"] = [mode for _, _, mode, _ in agents]
    heartbeats["flags"] = [HEALTH_CHECK if checks else 0 for _, _, _, checks in agents]
    return replace(table, verdicts=verdicts, heartbeats=heartbeats)
