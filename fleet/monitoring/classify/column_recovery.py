"""The predictions of `recovery`, vectorised over a subset of the columns."""

from __future__ import annotations

import numpy as np

from fleet.monitoring.classify.column_rows import AgentSubset, Array, Index, Times
from fleet.monitoring.classify.dependencies import HEARTBEAT_INTERVAL_SHARE
from fleet.monitoring.classify.recovery import REDIAL_SECONDS, SWITCH_SECONDS
from fleet.monitoring.classify.tables import KEEPS_CONNECTIONS
from fleet.monitoring.evidence import ReconnectMode
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import Recovery

#: `Recovery` and its latest time, 0: none; one value for all agents, or one each.
Outlooks = tuple[int | Array, float | Array]

UNCLEAR: Outlooks = (Recovery.UNCLEAR, 0.0)
ONLY_IF_CAUSE_RECOVERS: Outlooks = (Recovery.ONLY_IF_CAUSE_RECOVERS, 0.0)


def from_auth(s: AgentSubset, auth: Index) -> Outlooks:
    """Return when agents move away from their failing auths."""
    if s.frame.backend_down or s.frame.ok_auth_count == 0:
        return ONLY_IF_CAUSE_RECOVERS
    since = s.frame.tables.since[auth]
    heartbeat_delay = np.where(s.is_listed, HEARTBEAT_INTERVAL_SHARE * s.ttl, 0.0)
    keeps_connections = (s.instance_flags[auth] & KEEPS_CONNECTIONS) != 0
    can_move = (s.mode == ReconnectMode.RECONNECT) & s.health_check
    delay = np.where(keeps_connections, SWITCH_SECONDS, s.frame.timing.keepalive_timeout)
    recovery, at = _automatic_recovery(since + delay + heartbeat_delay, s.frame.now)
    stuck_recovery = np.where(
        s.mode == ReconnectMode.UNKNOWN, Recovery.UNCLEAR, Recovery.ONLY_IF_CAUSE_RECOVERS
    )
    can_recover = ~keeps_connections | can_move
    return np.where(can_recover, recovery, stuck_recovery), np.where(can_recover, at, 0.0)


def from_via_proxy(s: AgentSubset, proxy: Index) -> Outlooks:
    """Return when agents move away from failing proxies that carry their auth connections."""
    if s.frame.ok_proxy_count == 0:
        return ONLY_IF_CAUSE_RECOVERS
    keeps_connections = (s.instance_flags[proxy] & KEEPS_CONNECTIONS) != 0
    due = s.frame.tables.since[proxy] + s.frame.timing.keepalive_timeout + HEARTBEAT_INTERVAL_SHARE * s.ttl
    recovery, at = _automatic_recovery(due, s.frame.now)
    return np.where(keeps_connections, Recovery.UNCLEAR, recovery), np.where(keeps_connections, 0.0, at)


def from_proxy(s: AgentSubset, proxy: Index, *, silent_since: Times | None) -> Outlooks:
    """Return when agents have replaced tunnels to failing proxies; `silent_since` as in `recovery.from_proxy`."""
    tables = s.frame.tables
    has_ttl = s.is_listed & (s.ttl_seen != 0)
    tracker_ttl = np.where(has_ttl, s.ttl_seen, s.frame.timing.default_proxy_expiry)
    expires_at = tables.expires_at[proxy]
    retention_seconds = np.minimum(tracker_ttl, s.frame.timing.default_proxy_expiry)
    due = np.where(expires_at > 0, expires_at + retention_seconds + REDIAL_SECONDS, -1.0)
    if silent_since is not None:
        loses_connections = (s.instance_flags[proxy] & KEEPS_CONNECTIONS) == 0
        due = np.where(loses_connections, silent_since + tracker_ttl + REDIAL_SECONDS, due)
    is_deregistered = tables.states[proxy] == InstanceState.GONE
    due = np.where(is_deregistered, tables.since[proxy] + REDIAL_SECONDS, due)
    if not s.frame.has_heartbeats:
        due = np.full(s.size, -1.0)
    recovery, at = _automatic_recovery(due, s.frame.now)
    has_no_other_proxy = (
        s.frame.ok_proxy_count <= s.healthy_counts
        if silent_since is None
        else np.full(s.size, s.frame.ok_proxy_count == 0)
    )
    recovery, at = (
        np.where(has_no_other_proxy, Recovery.ONLY_IF_CAUSE_RECOVERS, recovery),
        np.where(has_no_other_proxy, 0.0, at),
    )
    moves_at = tables.moves_at[proxy]
    will_move = moves_at >= s.frame.now
    return np.where(will_move, Recovery.BY_ITSELF, recovery), np.where(will_move, moves_at, at)


def _automatic_recovery(at: Times, now: float) -> tuple[Array, Array]:
    is_future = at >= now
    return np.where(is_future, Recovery.BY_ITSELF, Recovery.UNCLEAR), np.where(is_future, at, 0.0)
