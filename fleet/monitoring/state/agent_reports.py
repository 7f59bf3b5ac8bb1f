"""Agents' reports through their tunnels: how they are stored, and how they override values of heartbeats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleet.monitoring.agent_report import AgentReport, AgentReportResponse
from fleet.monitoring.columns import AGENT_REPORT, HAS_REPORT, HEALTH_CHECK
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.state.codec import Rows


@dataclass(frozen=True, slots=True)
class ReportRows:
    """Recently asked agents: parallel arrays of agent index and AGENT_REPORT row."""

    agents: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    rows: Rows = field(default_factory=lambda: np.zeros(0, AGENT_REPORT))


def report_rows_of(blobs: Mapping[bytes, bytes], agent_count: int) -> ReportRows:
    """Return the AGENT_REPORT rows of the record's hash, without agents beyond `agent_count`."""
    agents = np.fromiter(map(int, blobs), np.uint32, len(blobs))
    rows: Rows = np.frombuffer(b"".join(blobs.values()), AGENT_REPORT)
    is_known = agents < agent_count
    return ReportRows(agents[is_known], rows[is_known])


def overlay_reports(heartbeats: Rows, memory: Rows, reports: ReportRows) -> tuple[Rows, Rows]:
    """Return both columns, with values that agents reported after their last heartbeat."""
    written_at = heartbeats["expires_at"][reports.agents] - heartbeats["ttl"][reports.agents]
    is_newer = ((reports.rows["flags"] & HAS_REPORT) != 0) & (reports.rows["at"] > written_at)
    if not is_newer.any():
        return heartbeats, memory
    agents, rows = reports.agents[is_newer], reports.rows[is_newer]
    heartbeats, memory = heartbeats.copy(), memory.copy()
    for name in ("policy_read_at", "ttl_seen", "mode", "desired_count", "claimed_count"):
        heartbeats[name][agents] = rows[name]
    other_flags = heartbeats["flags"][agents] & ~np.uint8(HEALTH_CHECK)
    heartbeats["flags"][agents] = other_flags | (rows["flags"] & HEALTH_CHECK)
    memory["tracked_count"][agents] = rows["tracked_count"]
    return heartbeats, memory


def pack_report_row(response: AgentReportResponse) -> bytes:
    """Return the AGENT_REPORT row of a response."""
    row = np.zeros(1, AGENT_REPORT)
    row["at"] = response.requested_at
    report = response.report
    if report is not None:
        policy, tracker = report.policy, report.tracker
        row["flags"] = HAS_REPORT
        if policy is not None:
            row["flags"] |= HEALTH_CHECK * policy.health_check
            row["mode"] = ReconnectMode.from_slug(policy.mode)
            row["policy_read_at"] = response.requested_at - policy.read_age_ms / 1000
        row["ttl_seen"] = tracker.ttl_seen_ms / 1000
        row["desired_count"] = min(tracker.desired_count, 0xFF)
        row["claimed_count"] = min(len(tracker.claimed_proxies), 0xFF)
        row["tracked_count"] = min(len(tracker.proxies), 0xFF)
    return row.tobytes()


def pack_agent_response(response: AgentReportResponse) -> str:
    """Return a response as JSON."""
    fields = {"at": response.requested_at, "proxy": response.proxy, "error": response.error}
    # Two texts put together: a report with hundreds of proxies as Python objects takes three times as long.
    report = "null" if response.report is None else response.report.model_dump_json(exclude_defaults=True)
    return f'{json.dumps(fields, separators=(",", ":"))[:-1]},"report":{report}}}'


def unpack_agent_response(text: bytes) -> AgentReportResponse:
    """Return a response from JSON."""
    fields = json.loads(text)
    report = None if fields["report"] is None else AgentReport.model_validate(fields["report"])
    return AgentReportResponse(fields["at"], fields["proxy"], report, fields["error"])
