"""What a product can tell Refloat, and let Refloat change: docs/reference/sources.md. No I/O."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Capability(StrEnum):
    """A capability of a source, with its label, and what Refloat does not show or do without it."""

    _value_: str
    label: str
    #: A sentence.
    effect: str

    def __new__(cls, slug: str, label: str = "", effect: str = "") -> Self:
        """Return a member that equals its slug."""
        member = str.__new__(cls, slug)
        member._value_, member.label, member.effect = slug, label, effect
        return member

    INSTANCES = (
        *("instances", "List of instances"),
        "Refloat shows only the instances whose addresses it has, and no expiry of an instance.",
    )
    AGENTS = "agents", "List of agents", "Refloat shows no agents."
    TUNNELS_BY_AGENT = (
        *("tunnels-by-agent", "Tunnels by agent"),
        "An agent is reachable until its resource expires, and its state does not depend on its tunnels.",
    )
    TUNNEL_COUNTS = "tunnel-counts", "Tunnel counts", "Refloat shows no number of tunnels of an instance."
    LAST_SEEN = (
        *("last-seen", "Last seen and expiry"),
        "An agent is reachable while it has a tunnel: Refloat does not know when it was last seen.",
    )
    AGENT_TO_AUTH = (
        *("agent-to-auth", "Auth of each agent"),
        "Refloat does not know which agents depend on an auth.",
    )
    HEALTH = (
        *("health", "Health of instances"),
        "Refloat does not know whether an instance is healthy.",
    )
    NETWORKING_READ = (
        *("networking-config-read", "Networking config"),
        "The page Networking config is empty.",
    )
    NETWORKING_WRITE = (
        *("networking-config-write", "Changes of the networking config"),
        "Refloat cannot change the networking config.",
    )
    POLICIES = (
        *("policies", "Policies"),
        "Refloat shows no policies of the instances, and cannot change them.",
    )
    RECONNECT_ADVICE = (
        *("reconnect-advice", "Reconnect advice"),
        "Refloat cannot ask agents to reconnect.",
    )
    WATCH = (
        *("watch", "Changes since the last round"),
        "Each round reads the complete list of agents.",
    )


#: Capabilities that evidence sources deliver; the others are for changes.
EVIDENCE_CAPABILITIES = frozenset(Capability) - {
    Capability.NETWORKING_READ,
    Capability.NETWORKING_WRITE,
    Capability.RECONNECT_ADVICE,
}
