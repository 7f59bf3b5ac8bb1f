from __future__ import annotations

import numpy as np

from fleet.monitoring.agent_report import AgentReportResponse, parse_agent_report
from fleet.monitoring.columns import HEALTH_CHECK, HEARTBEAT, LIST_PARITY, MEMORY
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.state.agent_reports import (
    overlay_reports,
    pack_agent_response,
    pack_report_row,
    report_rows_of,
    unpack_agent_response,
)
from fleet.monitoring.state.codec import blank_rows

REPORT = parse_agent_report(
    b'{"agent_id": "a", "policy": {"mode": "reconnect", "health_check": true, "read_age_ms": 5000}, "tracker":'
    b' {"desired_count": 300, "claimed_proxies": ["p"], "ttl_seen_ms": 2500,'
    b' "proxies": [{"proxy_id": "p"}, {"proxy_id": "q"}]}}'
)


def test_response_round_trip() -> None:
    """With a report, and without one."""
    for response in (
        AgentReportResponse(10.5, 3, REPORT),
        AgentReportResponse(10.5, 3, None, "unavailable: the agent went away"),
    ):
        assert unpack_agent_response(pack_agent_response(response).encode()) == response


def test_overlay_applies_newer_reports() -> None:
    """Reports after the heartbeat count; older reports and errors do not."""
    heartbeats, memory = blank_rows(HEARTBEAT, 3), blank_rows(MEMORY, 3)
    # Written at 100.
    heartbeats["expires_at"], heartbeats["ttl"] = 120.0, 20.0
    heartbeats["desired_count"], heartbeats["mode"] = 1, ReconnectMode.PICK_FIRST
    heartbeats["flags"] = LIST_PARITY
    responses = {
        b"0": AgentReportResponse(101.0, 7, REPORT),
        b"1": AgentReportResponse(99.0, 7, REPORT),
        b"2": AgentReportResponse(101.0, 7, None, "no"),
    }
    report_rows = report_rows_of(
        {agent: pack_report_row(response) for agent, response in responses.items()}, 3
    )
    after, updated_memory = overlay_reports(heartbeats, memory, report_rows)
    assert after["desired_count"].tolist() == [255, 1, 1]
    assert after["claimed_count"].tolist() == [1, 0, 0]
    assert after["mode"].tolist() == [
        ReconnectMode.RECONNECT,
        ReconnectMode.PICK_FIRST,
        ReconnectMode.PICK_FIRST,
    ]
    assert after["flags"].tolist() == [LIST_PARITY | HEALTH_CHECK, LIST_PARITY, LIST_PARITY]
    assert (after["policy_read_at"][0], after["ttl_seen"][0]) == (96.0, 2.5)
    assert updated_memory["tracked_count"].tolist() == [2, 0, 0]
    assert heartbeats["desired_count"].tolist() == [1, 1, 1]


def test_overlay_without_reports_copies_nothing() -> None:
    """Without reports the columns are returned as they are."""
    heartbeats, memory = blank_rows(HEARTBEAT, 2), blank_rows(MEMORY, 2)
    after = overlay_reports(heartbeats, memory, report_rows_of({}, 2))
    assert after[0] is heartbeats
    assert after[1] is memory


def test_reports_of_unknown_agents_are_left_out() -> None:
    """Agents beyond the end of the columns are left out."""
    packed_rows = {
        b"0": pack_report_row(AgentReportResponse(1.0, 7, REPORT)),
        b"5": pack_report_row(AgentReportResponse(1.0, 7, REPORT)),
    }
    report_rows = report_rows_of(packed_rows, 3)
    assert report_rows.agents.tolist() == [0]
    assert np.count_nonzero(report_rows.rows["at"]) == 1
