"""Predictions of recovery: automatic or not, and when at the latest.

docs/reference/verdicts.md, "Recovery predictions"; RFD 226.

They use the policy that the agent reports: the agent reads it when it connects, and keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.monitoring.classify.dependencies import HEARTBEAT_INTERVAL_SHARE
from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.instance_conditions import InstanceCondition
from fleet.monitoring.evidence import Heartbeat, ReconnectMode
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import Recovery

#: Seconds until `teleport_pick_healthy` opens a backup connection: 2 s plus up to half of that.
SWITCH_SECONDS = 3.0
#: Seconds until an agent pool dials again: it requests a lease every second and waits at most 8 s between dials.
REDIAL_SECONDS = 9.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """A prediction; `recovers_at` is the latest time of an automatic recovery."""

    recovery: Recovery
    recovers_at: float | None = None


NOT_NEEDED = Outlook(Recovery.NOT_NEEDED)
UNCLEAR = Outlook(Recovery.UNCLEAR)
ONLY_IF_CAUSE_RECOVERS = Outlook(Recovery.ONLY_IF_CAUSE_RECOVERS)


def automatic_recovery(recovers_at: float, now: float) -> Outlook:
    """Return automatic recovery by `recovers_at`; no prediction when `recovers_at` has passed."""
    return Outlook(Recovery.BY_ITSELF, recovers_at) if recovers_at >= now else UNCLEAR


def from_auth(frame: FleetFrame, auth: InstanceCondition, heartbeat: Heartbeat | None) -> Outlook:
    """Return when an agent moves away from a failing auth (RFD 226, "Auth Reconnects")."""
    if frame.backend_down or frame.ok_auth_count == 0:
        return ONLY_IF_CAUSE_RECOVERS
    heartbeat_delay = 0.0 if heartbeat is None else HEARTBEAT_INTERVAL_SHARE * heartbeat.ttl
    if not auth.keeps_connections:
        # The connection is broken or will be found broken: then pick_first moves too.
        return automatic_recovery(auth.since + frame.timing.keepalive_timeout + heartbeat_delay, frame.now)
    if heartbeat is None or heartbeat.mode is ReconnectMode.UNKNOWN:
        return UNCLEAR
    if heartbeat.mode is ReconnectMode.RECONNECT and heartbeat.health_check:
        return automatic_recovery(auth.since + SWITCH_SECONDS + heartbeat_delay, frame.now)
    return ONLY_IF_CAUSE_RECOVERS


def from_via_proxy(frame: FleetFrame, proxy: InstanceCondition, heartbeat: Heartbeat) -> Outlook:
    """Return when an agent moves away from a failing proxy that carries its auth connection."""
    if frame.ok_proxy_count == 0:
        return ONLY_IF_CAUSE_RECOVERS
    if proxy.keeps_connections:
        return UNCLEAR
    recovers_at = proxy.since + frame.timing.keepalive_timeout + HEARTBEAT_INTERVAL_SHARE * heartbeat.ttl
    return automatic_recovery(recovers_at, frame.now)


def from_proxy(
    frame: FleetFrame,
    proxy: InstanceCondition,
    heartbeat: Heartbeat | None,
    *,
    silent_since: float | None,
    healthy_tunnel_count: int = 0,
) -> Outlook:
    """Return when an agent has replaced its tunnel to a failing proxy (RFD 226, "Proxy Reconnects").

    `silent_since`: since when no proxy of the agent sends it anything; None while one still does.
    `healthy_tunnel_count`: number of healthy proxies that the agent has a tunnel to already.
    """
    dependency = frame.dependencies.get(proxy.facts.index)
    if dependency is not None and (dependency.moves_at or 0.0) >= frame.now:
        # The proxy recovers before the agent has left it.
        return Outlook(Recovery.BY_ITSELF, dependency.moves_at)
    if frame.ok_proxy_count <= healthy_tunnel_count:
        return ONLY_IF_CAUSE_RECOVERS
    if not frame.has_heartbeats:
        # RFD 226 is not what agents of this product do.
        return UNCLEAR
    if proxy.state is InstanceState.GONE:
        return automatic_recovery(proxy.since + REDIAL_SECONDS, frame.now)
    ttl = 0.0 if heartbeat is None else heartbeat.ttl_seen
    tracker_ttl = ttl or frame.timing.default_proxy_expiry
    if silent_since is not None and not proxy.keeps_connections:
        # No proxy sends discovery requests to the agent any more: its whole tracker expires.
        return automatic_recovery(silent_since + tracker_ttl + REDIAL_SECONDS, frame.now)
    if proxy.facts.expires_at is None:
        return UNCLEAR
    # Other proxies name the proxy until its resource expires. Without a TTL the agent keeps the proxy for the default
    # expiry after that; with one, no longer than what remained at its last heartbeat.
    retention_seconds = min(tracker_ttl, frame.timing.default_proxy_expiry)
    return automatic_recovery(proxy.facts.expires_at + retention_seconds + REDIAL_SECONDS, frame.now)
