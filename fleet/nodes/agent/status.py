"""The status document that an agent serves through its tunnel: tracker, policy, tunnels and services.

One JSON object. Ages and durations are in milliseconds, because clocks differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fleet.nodes.agent.auth_connection import Identity
from fleet.nodes.agent.tunnel import Tunnel
from fleet.protocol.recovery import pick_healthy
from fleet.protocol.recovery.tracker import Tracker
from fleet.transport.pick_healthy.events import ChannelPolicy


def document(
    identity: Identity,
    tracker: Tracker,
    policy: ChannelPolicy | None,
    tunnels: Iterable[Tunnel],
    services: Sequence[str],
    now: float,
    balancer_settings: pick_healthy.BalancerSettings = pick_healthy.DEFAULTS,
) -> dict[str, Any]:
    """Return the status document at `now`, a time of the monotonic clock."""
    return {
        "agent_id": identity.id,
        "name": identity.name,
        "version": identity.version,
        "labels": dict(identity.labels),
        "tracker": _tracker_document(tracker, now),
        "policy": None if policy is None else _policy_document(policy, now),
        "auth_reconnect": {
            "first_wait_ms": _ms_or_none(balancer_settings.first_wait),
            "drain_timeout_ms": _ms_or_none(balancer_settings.drain_timeout),
            "every_ms": _ms_or_none(balancer_settings.reconnect_every),
        },
        "tunnels": [
            {
                "proxy_id": tunnel.proxy_id,
                "open_for_ms": _ms(now - tunnel.opened_at),
                "sessions": tunnel.session_count,
                "rtt_ms": None if tunnel.rtt is None else round(tunnel.rtt * 1000, 3),
                "is_advised": tunnel.advised_at is not None,
                "is_retired": tunnel.is_retired,
                "retire_reason": tunnel.retire_reason,
            }
            for tunnel in tunnels
        ],
        "services": list(services),
    }


def _tracker_document(tracker: Tracker, now: float) -> dict[str, Any]:
    snapshot = tracker.snapshot(now)
    desired_proxies = set(snapshot.desired_proxies)
    changed_at = snapshot.topology_changed_at
    return {
        "desired_count": snapshot.connection_count,
        "claimed_proxies": list(snapshot.claimed_proxies),
        "leaving_proxies": list(snapshot.leaving_proxies),
        "departing_proxies": list(snapshot.departing_proxies),
        "inflight": snapshot.inflight_count,
        "ttl_seen_ms": _ms(snapshot.last_announce_ttl),
        "topology_age_ms": None if changed_at is None else _ms(now - changed_at),
        "proxies": [
            {
                "proxy_id": name,
                "group": proxy.group,
                "generation": proxy.generation,
                "expires_in_ms": _ms(proxy.expires_at - now),
                "is_desired": name in desired_proxies,
                "is_draining": proxy.is_draining,
            }
            for name, proxy in sorted(tracker.tracked_proxies(now).items())
        ],
    }


def _policy_document(policy: ChannelPolicy, now: float) -> dict[str, Any]:
    return {
        "mode": str(policy.mode),
        "health_check": policy.health_check,
        "auth_id": policy.auth_id,
        "read_age_ms": _ms(now - policy.received_at),
        "problem": policy.problem,
    }


def _ms_or_none(seconds: float | None) -> int | None:
    return None if seconds is None else _ms(seconds)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
