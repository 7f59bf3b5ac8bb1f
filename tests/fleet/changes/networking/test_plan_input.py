from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleet.changes.networking.plan_input import fleet_snapshot_of, tunnel_counts_of
from fleet.monitoring.agent_report import AgentReport, AgentReportResponse, ReportedTunnel
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader

NOW = 1_700_000_000.0


def _table(**fields: object) -> FleetTable:
    reader = FakeReader(as_of=NOW - 1, **fields)  # type: ignore[arg-type] # fields by name
    table = reader.table("default", NOW)
    # Agent 0 has a second tunnel.
    return replace(
        table,
        tunnel_agents=np.append(table.tunnel_agents, 0).astype(np.uint32),
        tunnel_proxies=np.append(table.tunnel_proxies, 3).astype(np.uint16),
    )


def test_fleet_snapshot_contains_agents_proxies_and_reports() -> None:
    """Tunnels by agent, with sessions and versions of agents that responded, and tunnel counts by proxy."""
    tunnel = ReportedTunnel(proxy_id="proxy-id-1", open_for_ms=5000, sessions=2)
    report = AgentReport(agent_id="id-0", version="0.0.9", tunnels=(tunnel,))
    fleet = fleet_snapshot_of(_table(), {0: AgentReportResponse(NOW - 3, 2, report)}, NOW)
    first = fleet.agents[0]
    assert (first.id, first.can_close, fleet.agents[1].can_close) == ("id-0", False, None)
    assert [(t.proxy_id, t.session_count) for t in first.tunnels] == [("proxy-id-1", 2), ("proxy-id-2", None)]
    assert first.tunnels[0].opened_at == NOW - 8
    assert (fleet.agent_count, fleet.age_seconds, fleet.tunnel_counts_by_proxy["proxy-id-2"]) == (4, 1.0, 3)
    assert [proxy.name for proxy in fleet.proxies] == ["proxy-1", "proxy-2"]


def test_data_of_the_future_is_not_younger_than_new() -> None:
    """The clock of the worker may be ahead."""
    assert fleet_snapshot_of(_table(), {}, NOW - 60).age_seconds == 0.0


@pytest.mark.parametrize(
    ("state", "is_tracked", "is_uncertain"),
    [
        (InstanceState.OK, True, False),
        (InstanceState.SILENT, True, True),
        (InstanceState.EXPIRED, False, False),
    ],
)
def test_proxy_state_determines_how_agents_see_the_proxy(
    state: InstanceState, is_tracked: bool, is_uncertain: bool
) -> None:
    """Expired proxies are not tracked; sick proxies are uncertain."""
    proxy = fleet_snapshot_of(_table(proxy_state=state), {}, NOW).proxies[0]
    assert (proxy.is_tracked, proxy.is_uncertain) == (is_tracked, is_uncertain)


def test_retired_agents_are_left_out() -> None:
    fleet = fleet_snapshot_of(_table(states=[State.HEALTHY, State.RETIRED]), {}, NOW)
    assert ([agent.id for agent in fleet.agents], fleet.agent_count) == (["id-0"], 1)


def test_tunnel_counts_of_given_agents() -> None:
    """Missing agents are left out."""
    assert tunnel_counts_of(_table(), {"id-0": 5, "id-9": 1}) == {"id-0": 2}
