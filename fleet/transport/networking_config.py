"""Conversion of ClusterNetworkingConfig from and to its message. Writing changes only fields that differ: the rest of
the message, unknown fields included, stays byte for byte."""

from __future__ import annotations

from typing import Any

from fleet.protocol import durations
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import (
    FIELDS,
    ORIGIN_LABEL,
    ConfigField,
    FieldKind,
    NetworkingConfig,
    NetworkingResource,
    Origin,
    Strategy,
    with_defaults,
)
from fleet.wire import types_pb2

Message = types_pb2.ClusterNetworkingConfigV2

UNKNOWN_STRATEGY = "unknown"


def read(message: Message) -> NetworkingResource:
    """Return the resource of a message."""
    spec = message.spec
    strategy = spec.tunnel_strategy.WhichOneof("strategy") or ""
    if not strategy and spec.tunnel_strategy.ByteSize():
        strategy = UNKNOWN_STRATEGY  # of a newer Teleport: it must not be read as unset, nor overwritten
    plain: dict[str, Any] = {
        field.name: _from_wire(field, getattr(spec, field.name))
        for field in FIELDS
        if not field.key.startswith("tunnel_strategy.")
    }
    config = NetworkingConfig(
        tunnel_strategy=strategy,
        agent_connection_count=spec.tunnel_strategy.proxy_peering.agent_connection_count,
        **plain,
    )
    metadata = message.metadata
    return NetworkingResource(config, dict(metadata.labels), metadata.revision, metadata.description)


def write(config: NetworkingConfig, message: Message) -> None:
    """Set the fields of a message that differ from a config."""
    before, spec = read(message).config, message.spec
    for field in FIELDS:
        if not field.key.startswith("tunnel_strategy.") and config.value_of(field) != before.value_of(field):
            setattr(spec, field.name, _to_wire(field, config))
    if config.tunnel_strategy != before.tunnel_strategy:
        spec.ClearField("tunnel_strategy")
        if config.tunnel_strategy == Strategy.PROXY_PEERING:
            spec.tunnel_strategy.proxy_peering.SetInParent()
        elif config.tunnel_strategy == Strategy.AGENT_MESH:
            spec.tunnel_strategy.agent_mesh.SetInParent()
    if spec.tunnel_strategy.HasField("proxy_peering"):
        spec.tunnel_strategy.proxy_peering.agent_connection_count = config.agent_connection_count


def write_metadata(resource: NetworkingResource, message: Message) -> None:
    """Set labels and description of a message to those of a resource."""
    metadata = message.metadata
    if dict(metadata.labels) != dict(resource.labels):
        metadata.labels.clear()
        metadata.labels.update(resource.labels)
    if metadata.description != resource.description:
        metadata.description = resource.description


def finalize(message: Message, origin: Origin, revision: str) -> None:
    """Complete a message for storage: fixed fields, defaults, origin and revision."""
    message.kind, message.version = config_yaml.KIND, config_yaml.VERSION
    message.metadata.name = config_yaml.NAME
    message.metadata.labels[ORIGIN_LABEL] = origin
    message.metadata.revision = revision
    write(with_defaults(read(message).config), message)


def default_message(revision: str) -> Message:
    """Return the message of a new cluster's config."""
    message = Message()
    finalize(message, Origin.DEFAULTS, revision)
    return message


def _from_wire(field: ConfigField, wire_value: int | str | bool) -> float | int | str | bool:
    if field.kind is FieldKind.DURATION:
        return durations.from_nanoseconds(int(wire_value))
    if field.kind is FieldKind.CHOICE:
        number = int(wire_value)
        return field.choices[number] if 0 <= number < len(field.choices) else str(number)
    return wire_value


def _to_wire(field: ConfigField, config: NetworkingConfig) -> int | str | bool:
    field_value = config.value_of(field)
    if field.kind is FieldKind.DURATION:
        return durations.to_nanoseconds(float(field_value))
    if field.kind is FieldKind.CHOICE:
        choice = str(field_value)
        return field.choices.index(choice) if choice in field.choices else int(choice)
    assert not isinstance(field_value, float)
    return field_value
