"""A wrong value for every field of the networking config, and for every policy, as people and programs write it."""

from __future__ import annotations

from fleet.protocol.networking.config import FIELDS, FieldKind
from fleet.protocol.policies.env_policies import BY_NAME

#: Key, what a person writes in a form or a terminal, what stands in a document, and words of the sentence.
NETWORKING: tuple[tuple[str, str, object, str], ...] = (
    ("client_idle_timeout", "721h", "721h", "out of range"),
    ("idle_timeout_message", "a\x07b", "a\x07b", "control characters"),
    ("web_idle_timeout", "-1s", "-1s", "out of range"),
    ("keep_alive_interval", "2h", 30, "out of range|duration"),
    ("keep_alive_count_max", "101", "three", "out of range|whole number"),
    ("session_control_timeout", "25h", True, "out of range|duration"),
    ("proxy_listener_mode", "triplex", "triplex", "not a valid choice|not one of"),
    ("routing_strategy", "any", 1, "not a valid choice|not one of|word"),
    ("tunnel_strategy.type", "star", "star", "not a valid choice|not one of"),
    ("tunnel_strategy.agent_connection_count", "-1", 0.5, "out of range|whole number"),
    ("proxy_ping_interval", "1ms", "1ms", "out of range"),
    ("assist_command_execution_workers", "1001", 1001, "out of range"),
    ("case_insensitive_routing", "perhaps", "perhaps", "true (n)?or false"),
    ("ssh_dial_timeout", "11m", "soon", "out of range|soon"),
    ("graceful_tunnel_closing", "5m", "5m", "true (n)?or false"),
    ("tunnel_closing_wait_min", "25h", "25h", "out of range"),
    ("tunnel_closing_wait_max", "10m", "10m", "shorter than the shortest wait"),
    ("tunnel_disconnect_threshold", "x", "x", "x"),
)
#: The switches have no wrong value in a form: a box is ticked or not.
IN_FORMS = tuple(
    row
    for row in NETWORKING
    for field in FIELDS
    if field.key == row[0] and field.kind is not FieldKind.SWITCH
)

assert [row[0] for row in NETWORKING] == [field.key for field in FIELDS], "a field without a wrong value"

#: Of every policy what is none of its kind, what it never means, and what would be a line of its own.
POLICIES: tuple[tuple[str, str], ...] = tuple(
    (name, text) for name in BY_NAME for text in ("nonsense", "-1s", "true\nPATH=/x", "1" * 20_000)
)


def document_of(key: str, value: object) -> dict[str, object]:
    """A whole spec with one field wrong; peering, so that a number of tunnels means something."""
    strategy: dict[str, object] = {"type": "proxy_peering", "agent_connection_count": 1}
    room, _, name = key.rpartition(".")
    return (
        {"tunnel_strategy": strategy | {name: value}} if room else {"tunnel_strategy": strategy, name: value}
    )
