"""ClusterNetworkingConfig as protobuf: Teleport's field numbers, and no unknown field is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import (
    NetworkingConfig,
    NetworkingResource,
    Origin,
    Strategy,
    with_defaults,
)
from fleet.transport import networking_config
from fleet.transport.networking_config import Message


def field(number: int, body: bytes | int) -> bytes:
    """Return an encoded field: a varint, or bytes with their length."""

    def varint(value: int) -> bytes:
        encoded = bytearray()
        while value > 0x7F:
            encoded.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*encoded, value])

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
#: A field that a newer Teleport might add to the resource, its metadata, its spec or its strategy.
UNKNOWN_FIELD = field(99, b"?")


def bytes_of(spec: bytes, metadata: bytes = METADATA, rest: bytes = b"") -> bytes:
    return HEAD + field(4, metadata) + field(5, spec) + rest


def test_golden_bytes_are_read() -> None:
    """Bytes written by hand from Teleport's numbers give the value, and the value gives those bytes."""
    message = Message.FromString(bytes_of(SPEC))
    resource = networking_config.read(message)
    assert resource == NetworkingResource(CONFIG, {"teleport.dev/origin": "dynamic"}, "r1")
    written_message = Message()
    networking_config.finalize(written_message, Origin.DYNAMIC, "r1")
    networking_config.write(CONFIG, written_message)
    assert written_message.SerializeToString(deterministic=True) == bytes_of(SPEC)


def test_golden_bytes_of_our_fields() -> None:
    """Our fields have numbers from 22600."""
    own_fields = field(22600, 1) + field(22601, 5 * SECOND) + field(22602, 10 * SECOND) + field(22603, SECOND)
    config = networking_config.read(Message.FromString(bytes_of(SPEC + own_fields))).config
    assert config == replace(
        CONFIG,
        graceful_tunnel_closing=True,
        tunnel_closing_wait_min=5.0,
        tunnel_closing_wait_max=10.0,
        tunnel_disconnect_threshold=1.0,
    )
    written_message = Message.FromString(bytes_of(SPEC))
    networking_config.write(config, written_message)
    assert written_message.SerializeToString(deterministic=True) == bytes_of(SPEC + own_fields)


def test_unknown_fields_survive() -> None:
    """Reading, changing a field and finalizing keeps unknown fields at every level, byte for byte."""
    spec = SPEC.replace(
        field(9, field(2, field(1, 2))), field(9, field(2, field(1, 2) + UNKNOWN_FIELD) + UNKNOWN_FIELD)
    )
    message = Message.FromString(bytes_of(spec + UNKNOWN_FIELD, METADATA + UNKNOWN_FIELD, UNKNOWN_FIELD))
    networking_config.write(replace(networking_config.read(message).config, keep_alive_count_max=5), message)
    networking_config.finalize(message, Origin.DYNAMIC, "r1")
    changed_spec = spec.replace(field(3, 3), field(3, 5), 1)
    assert changed_spec != spec
    # A serializer writes unknown fields after the known ones; these fields are already there.
    assert message.SerializeToString(deterministic=True) == bytes_of(
        changed_spec + UNKNOWN_FIELD, METADATA + UNKNOWN_FIELD, UNKNOWN_FIELD
    )


def test_durations_beyond_a_float_survive() -> None:
    """A duration that a float cannot represent stays exact unless it is changed."""
    long_duration = field(1, 2**62 + 1)
    message = Message.FromString(bytes_of(long_duration))
    networking_config.write(replace(networking_config.read(message).config, keep_alive_count_max=5), message)
    assert message.spec.client_idle_timeout == 2**62 + 1


def test_unknown_choices_survive() -> None:
    """The number of a newer Teleport is shown as such, and written back unchanged."""
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
def test_strategy_replaces_the_earlier_one(strategy: str) -> None:
    message = Message.FromString(bytes_of(SPEC))
    expected = replace(CONFIG, tunnel_strategy=strategy, agent_connection_count=0)
    if strategy == Strategy.PROXY_PEERING:
        expected = replace(expected, agent_connection_count=7)
    networking_config.write(expected, message)
    assert networking_config.read(message).config == expected


def test_metadata_is_replaced() -> None:
    """Labels that are not listed are removed."""
    message = Message.FromString(bytes_of(SPEC))
    networking_config.write_metadata(NetworkingResource(CONFIG, {"a": "b"}, "r1", "why"), message)
    assert (dict(message.metadata.labels), message.metadata.description) == ({"a": "b"}, "why")


def test_defaults() -> None:
    """The config of a new cluster has the origin "defaults" and Teleport's values."""
    resource = networking_config.read(networking_config.default_message("r"))
    assert (resource.origin, resource.revision) == ("defaults", "r")
    assert resource.config.tunnel_strategy == "agent_mesh"
    assert resource.config.keep_alive_interval == 300.0


@pytest.mark.parametrize("duration", [2**63 - 1, -(2**63), -5 * SECOND, 1, 2540400 * 3600 * SECOND + 1])
@pytest.mark.parametrize("count", [2**63 - 1, -(2**63), -3])
def test_message_with_values_out_of_range_survives_its_document(duration: int, count: int) -> None:
    """Teleport stores any number: a document of the config can be read, and writing it changes nothing."""
    message = networking_config.default_message("r1")
    message.spec.client_idle_timeout = message.spec.keep_alive_interval = duration
    message.spec.keep_alive_count_max = message.spec.tunnel_strategy.proxy_peering.agent_connection_count = (
        count
    )
    message.spec.proxy_listener_mode = 7
    before = message.SerializeToString()
    document = config_yaml.to_document(networking_config.read(message))
    networking_config.write(with_defaults(config_yaml.from_document(document, strict=False).config), message)
    assert message.SerializeToString() == before
