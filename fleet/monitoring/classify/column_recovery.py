"""The predictions of `recovery`, one for one, over a subset of the columns."""

from __future__ import annotations

import numpy as np

from fleet.monitoring.classify.column_rows import Array, Index, Subset, Times
from fleet.monitoring.classify.dependencies import HEARTBEAT_SHARE
from fleet.monitoring.classify.recovery import REDIAL, SWITCH
from fleet.monitoring.classify.tables import HOLDS
from fleet.monitoring.evidence import Mode
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import Recovery

#: `Recovery` and when at the latest, 0 for never; one for all, or one each.
Outlooks = tuple[int | Array, float | Array]

UNCLEAR: Outlooks = (Recovery.UNCLEAR, 0.0)
ONLY_IF_CAUSE_RECOVERS: Outlooks = (Recovery.ONLY_IF_CAUSE_RECOVERS, 0.0)


def from_auth(s: Subset, auth: Index) -> Outlooks:
    """Predict when agents get away from their sick auths."""
    if s.frame.backend_down or s.frame.ok_auths == 0:
        return ONLY_IF_CAUSE_RECOVERS
    since = s.frame.tables.since[auth]
    next_heartbeat = np.where(s.listed, HEARTBEAT_SHARE * s.ttl, 0.0)
    holds = (s.flags[auth] & HOLDS) != 0
    moves = (s.mode == Mode.RECONNECT) & s.health_check
    delay = np.where(holds, SWITCH, s.frame.timing.keepalive)
    recovery, at = _by_itself(since + delay + next_heartbeat, s.frame.now)
    stays = np.where(s.mode == Mode.UNKNOWN, Recovery.UNCLEAR, Recovery.ONLY_IF_CAUSE_RECOVERS)
    leaves = ~holds | moves
    return np.where(leaves, recovery, stays), np.where(leaves, at, 0.0)


def from_via_proxy(s: Subset, proxy: Index) -> Outlooks:
    """Predict when agents get away from sick proxies that carry their auth connections."""
    if s.frame.ok_proxies == 0:
        return ONLY_IF_CAUSE_RECOVERS
    holds = (s.flags[proxy] & HOLDS) != 0
    due = s.frame.tables.since[proxy] + s.frame.timing.keepalive + HEARTBEAT_SHARE * s.ttl
    recovery, at = _by_itself(due, s.frame.now)
    return np.where(holds, Recovery.UNCLEAR, recovery), np.where(holds, 0.0, at)


def from_proxy(s: Subset, proxy: Index, *, silent_since: Times | None) -> Outlooks:
    """Predict when agents have dialled past sick proxies; `silent_since` as in `recovery.from_proxy`."""
    tables = s.frame.tables
    told = s.listed & (s.ttl_seen != 0)
    tracker_expiry = np.where(told, s.ttl_seen, s.frame.timing.default_proxy_expiry)
    expires_at = tables.expires_at[proxy]
    kept = np.minimum(tracker_expiry, s.frame.timing.default_proxy_expiry)
    due = np.where(expires_at > 0, expires_at + kept + REDIAL, -1.0)
    if silent_since is not None:
        unheard = (s.flags[proxy] & HOLDS) == 0
        due = np.where(unheard, silent_since + tracker_expiry + REDIAL, due)
    gone = tables.states[proxy] == InstanceState.GONE
    due = np.where(gone, tables.since[proxy] + REDIAL, due)
    recovery, at = _by_itself(due, s.frame.now)
    nowhere = (
        s.frame.ok_proxies <= s.sound if silent_since is None else np.full(s.size, s.frame.ok_proxies == 0)
    )
    recovery, at = np.where(nowhere, Recovery.ONLY_IF_CAUSE_RECOVERS, recovery), np.where(nowhere, 0.0, at)
    moves_at = tables.moves_at[proxy]
    moves = moves_at >= s.frame.now
    return np.where(moves, Recovery.BY_ITSELF, recovery), np.where(moves, moves_at, at)


def _by_itself(at: Times, now: float) -> tuple[Array, Array]:
    kept = at >= now
    return np.where(kept, Recovery.BY_ITSELF, Recovery.UNCLEAR), np.where(kept, at, 0.0)
