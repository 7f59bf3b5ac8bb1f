"""ClusterNetworkingConfig on the wire: Teleport's numbers, and nothing lost that is not known here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.protocol.networking.config import NetworkingConfig, NetworkingResource, Origin, Strategy
from fleet.transport import networking_config
from fleet.transport.networking_config import Message


def field(number: int, body: bytes | int) -> bytes:
    """A field by hand: a varint, or bytes with their length."""

    def varint(value: int) -> bytes:
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*out, value])

    if isinstance(body, int):
        return varint(number << 3) + varint(body)
    return varint(number << 3 | 2) + varint(len(body)) + body


SECOND = 1_000_000_000
SPEC = (
    field(1, 3600 * SECOND)
    + field(2, 300 * SECOND)
    + field(3, 3)
    + field(4, SECOND)
    + field(5, b"bye")
    + field(6, 2 * SECOND)
    + field(7, 1)
    + field(8, 1)
    + field(9, field(2, field(1, 2)))
    + field(10, 3 * SECOND)
    + field(11, 4)
    + field(12, 1)
    + field(13, 30 * SECOND)
)
METADATA = (
    field(1, b"cluster-networking-config")
    + field(5, field(1, b"teleport.dev/origin") + field(2, b"dynamic"))
    + field(8, b"r1")
)
HEAD = field(1, b"cluster_networking_config") + field(3, b"v2")
CONFIG = NetworkingConfig(
    client_idle_timeout=3600.0,
    keep_alive_interval=300.0,
    keep_alive_count_max=3,
    session_control_timeout=1.0,
    idle_timeout_message="bye",
    web_idle_timeout=2.0,
    proxy_listener_mode="multiplex",
    routing_strategy="most_recent",
    tunnel_strategy="proxy_peering",
    agent_connection_count=2,
    proxy_ping_interval=3.0,
    assist_command_execution_workers=4,
    case_insensitive_routing=True,
    ssh_dial_timeout=30.0,
)
#: What a newer Teleport might add, at every level: the resource, its metadata, the spec, the strategy inside.
STRANGE = field(99, b"?")


def bytes_of(spec: bytes, metadata: bytes = METADATA, rest: bytes = b"") -> bytes:
    return HEAD + field(4, metadata) + field(5, spec) + rest


def test_golden_bytes_are_read() -> None:
    """Bytes made by hand from Teleport's numbers become the value, and the value those bytes."""
    message = Message.FromString(bytes_of(SPEC))
    resource = networking_config.read(message)
    assert resource == NetworkingResource(CONFIG, {"teleport.dev/origin": "dynamic"}, "r1")
    made = Message()
    networking_config.finalize(made, Origin.DYNAMIC, "r1")
    networking_config.write(CONFIG, made)
    assert made.SerializeToString(deterministic=True) == bytes_of(SPEC)


def test_golden_bytes_of_our_fields() -> None:
    """Ours lie at 22600 and above."""
    ours = field(22600, 1) + field(22601, 5 * SECOND) + field(22602, 10 * SECOND) + field(22603, SECOND)
    config = networking_config.read(Message.FromString(bytes_of(SPEC + ours))).config
    assert config == replace(
        CONFIG,
        graceful_tunnel_closing=True,
        tunnel_closing_wait_min=5.0,
        tunnel_closing_wait_max=10.0,
        tunnel_disconnect_threshold=1.0,
    )
    made = Message.FromString(bytes_of(SPEC))
    networking_config.write(config, made)
    assert made.SerializeToString(deterministic=True) == bytes_of(SPEC + ours)


def test_unknown_fields_survive() -> None:
    """Reading, changing one field and stamping keeps what is not known, at every level, byte for byte."""
    spec = SPEC.replace(field(9, field(2, field(1, 2))), field(9, field(2, field(1, 2) + STRANGE) + STRANGE))
    message = Message.FromString(bytes_of(spec + STRANGE, METADATA + STRANGE, STRANGE))
    networking_config.write(replace(networking_config.read(message).config, keep_alive_count_max=5), message)
    networking_config.finalize(message, Origin.DYNAMIC, "r1")
    changed = spec.replace(field(3, 3), field(3, 5), 1)
    assert changed != spec
    # A serializer writes unknown fields after the known ones of their message: that is where ours stand already.
    assert message.SerializeToString(deterministic=True) == bytes_of(
        changed + STRANGE, METADATA + STRANGE, STRANGE
    )


def test_durations_beyond_a_float_survive() -> None:
    """A duration that seconds in a float cannot hold stays exact unless it is changed."""
    odd = field(1, 2**62 + 1)
    message = Message.FromString(bytes_of(odd))
    networking_config.write(replace(networking_config.read(message).config, keep_alive_count_max=5), message)
    assert message.spec.client_idle_timeout == 2**62 + 1


def test_choices_nobody_knows() -> None:
    """A number of a newer Teleport is shown as a number and written back as it was."""
    message = Message.FromString(bytes_of(field(7, 5) + field(9, field(3, b"x"))))
    config = networking_config.read(message).config
    assert (config.proxy_listener_mode, config.tunnel_strategy) == ("5", "unknown")
    networking_config.write(config, message)
    networking_config.finalize(message, Origin.DYNAMIC, "r1")
    assert message.spec.proxy_listener_mode == 5
    assert message.spec.tunnel_strategy.SerializeToString() == field(3, b"x")
    networking_config.write(replace(config, proxy_listener_mode="6"), message)
    assert message.spec.proxy_listener_mode == 6


@pytest.mark.parametrize("strategy", [*Strategy, ""])
def test_strategies(strategy: str) -> None:
    """One strategy follows another, and none stays of the one before."""
    message = Message.FromString(bytes_of(SPEC))
    wanted = replace(CONFIG, tunnel_strategy=strategy, agent_connection_count=0)
    if strategy == Strategy.PROXY_PEERING:
        wanted = replace(wanted, agent_connection_count=7)
    networking_config.write(wanted, message)
    assert networking_config.read(message).config == wanted


def test_metadata() -> None:
    """Labels and description are replaced; what they did not name is gone."""
    message = Message.FromString(bytes_of(SPEC))
    networking_config.write_metadata(NetworkingResource(CONFIG, {"a": "b"}, "r1", "why"), message)
    assert (dict(message.metadata.labels), message.metadata.description) == ({"a": "b"}, "why")


def test_defaults() -> None:
    """What a cluster begins with says so, and is upstream's."""
    resource = networking_config.read(networking_config.defaults("r"))
    assert (resource.origin, resource.revision) == ("defaults", "r")
    assert resource.config.tunnel_strategy == "agent_mesh"
    assert resource.config.keep_alive_interval == 300.0
