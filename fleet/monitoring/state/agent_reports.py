"""What agents said of themselves through their tunnels, as it is kept, and laid over what their heartbeats said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleet.monitoring.agent_report import AgentReport, Answer
from fleet.monitoring.columns import ANSWERED, HEALTH_CHECK, TOLD
from fleet.monitoring.evidence import Mode
from fleet.monitoring.state.codec import Rows


@dataclass(frozen=True, slots=True)
class Told:
    """Agents that were asked lately: parallel arrays of agent index and TOLD row."""

    agents: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    rows: Rows = field(default_factory=lambda: np.zeros(0, TOLD))


def told_of(kept: Mapping[bytes, bytes], count: int) -> Told:
    """From the record's hash; agents beyond `count` are left out."""
    agents = np.fromiter(map(int, kept), np.uint32, len(kept))
    rows: Rows = np.frombuffer(b"".join(kept.values()), TOLD)
    known = agents < count
    return Told(agents[known], rows[known])


def overlay(heartbeats: Rows, memory: Rows, told: Told) -> tuple[Rows, Rows]:
    """Both columns, with what agents told since their last heartbeat laid over them."""
    written_at = heartbeats["expires_at"][told.agents] - heartbeats["ttl"][told.agents]
    newer = ((told.rows["flags"] & ANSWERED) != 0) & (told.rows["at"] > written_at)
    if not newer.any():
        return heartbeats, memory
    agents, rows = told.agents[newer], told.rows[newer]
    heartbeats, memory = heartbeats.copy(), memory.copy()
    for name in ("policy_read_at", "ttl_seen", "mode", "desired", "claimed"):
        heartbeats[name][agents] = rows[name]
    checked = heartbeats["flags"][agents] & ~np.uint8(HEALTH_CHECK)
    heartbeats["flags"][agents] = checked | (rows["flags"] & HEALTH_CHECK)
    memory["tracked"][agents] = rows["tracked"]
    return heartbeats, memory


def pack_told(answer: Answer) -> bytes:
    """The TOLD row of an answer."""
    row = np.zeros(1, TOLD)
    row["at"] = answer.at
    report = answer.report
    if report is not None:
        policy, tracker = report.policy, report.tracker
        row["flags"] = ANSWERED
        if policy is not None:
            row["flags"] |= HEALTH_CHECK * policy.health_check
            row["mode"] = Mode.read(policy.mode)
            row["policy_read_at"] = answer.at - policy.read_age_ms / 1000
        row["ttl_seen"] = tracker.ttl_seen_ms / 1000
        row["desired"] = min(tracker.desired_count, 0xFF)
        row["claimed"] = min(len(tracker.claimed), 0xFF)
        row["tracked"] = min(len(tracker.proxies), 0xFF)
    return row.tobytes()


def pack_answer(answer: Answer) -> str:
    """Its JSON."""
    report = None if answer.report is None else answer.report.model_dump(mode="json", exclude_defaults=True)
    fields = {"at": answer.at, "proxy": answer.proxy, "report": report, "error": answer.error}
    return json.dumps(fields, separators=(",", ":"))


def unpack_answer(text: bytes) -> Answer:
    """From its JSON."""
    fields = json.loads(text)
    report = None if fields["report"] is None else AgentReport.model_validate(fields["report"])
    return Answer(fields["at"], fields["proxy"], report, fields["error"])
