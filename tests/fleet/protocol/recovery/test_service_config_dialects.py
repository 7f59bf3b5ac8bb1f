"""Service configs between this project and protobuf decoders of both dialects."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import Dialect, PickHealthyMode, ServiceConfig

CONFIGS = [
    ServiceConfig(),
    ServiceConfig(PickHealthyMode.RECONNECT, ""),
    ServiceConfig(PickHealthyMode.RECONNECT, None),
]
NUMBERS = {PickHealthyMode.PICK_FIRST: 1, PickHealthyMode.RECONNECT: 2}


def field(name: str, kind: FieldDescriptorProto.Type.ValueType, type_name: str = "", number: int = 1) -> Any:
    """Return one field; the list of policies is the only repeated one."""
    label = (
        FieldDescriptorProto.LABEL_REPEATED
        if name.startswith("load")
        else FieldDescriptorProto.LABEL_OPTIONAL
    )
    descriptor = FieldDescriptorProto(name=name, number=number, type=kind, label=label)
    if type_name:
        descriptor.type_name = type_name
    return descriptor


def message_class(dialect: Dialect) -> Any:
    """Return GetServiceConfigResponse of the RFD's text or of Teleport."""
    package = f"dialect.{dialect.value}"
    message = FieldDescriptorProto.TYPE_MESSAGE
    mode = (
        field("mode", FieldDescriptorProto.TYPE_STRING)
        if dialect is Dialect.RFD
        else field("mode", FieldDescriptorProto.TYPE_ENUM, f".{package}.Mode")
    )
    file_descriptor = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    values = file_descriptor.enum_type.add(name="Mode").value
    for number, name in enumerate(("MODE_UNSPECIFIED", "MODE_PICK_FIRST", "MODE_RECONNECT")):
        values.add(name=name, number=number)
    for name, fields in {
        "Policy": [mode],
        "Entry": [field("teleport_pick_healthy", message, f".{package}.Policy")],
        "Check": [field("service_name", FieldDescriptorProto.TYPE_STRING)],
        "Config": [
            field("load_balancing_config", message, f".{package}.Entry"),
            field("health_check_config", message, f".{package}.Check", number=2),
        ],
        "Answer": [field("config", message, f".{package}.Config")],
    }.items():
        file_descriptor.message_type.add(name=name).field.extend(fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_descriptor)  # type: ignore[no-untyped-call]
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Answer"))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("dialect", [Dialect.RFD, Dialect.UPSTREAM])
def test_encoded_config_is_read_by_both_dialects(dialect: Dialect, config: ServiceConfig) -> None:
    """Decoded by protobuf itself, also after a decoder of either dialect forwarded it."""
    expected_mode = str(config.mode) if dialect is Dialect.RFD else NUMBERS[config.mode]
    response = service_config.encode(config)
    for forwarding_dialect in (None, Dialect.RFD, Dialect.UPSTREAM):
        raw = (
            response
            if forwarding_dialect is None
            else message_class(forwarding_dialect).FromString(response).SerializeToString()
        )
        decoded_config = message_class(dialect).FromString(raw).config
        assert decoded_config.load_balancing_config[0].teleport_pick_healthy.mode == expected_mode
        assert decoded_config.HasField("health_check_config") is config.health_check
        assert service_config.decode(raw) == config


def test_bytes_of_both_dialects() -> None:
    """A policy with both: "reconnect" for a string decoder, 2 for an enum decoder."""
    policy = bytes.fromhex("0a097265636f6e6e6563740802")
    raw = b"\x0a" + bytes([len(policy) + 4, 0x0A, len(policy) + 2, 0x0A, len(policy)]) + policy
    modes = [
        message_class(dialect).FromString(raw).config.load_balancing_config[0].teleport_pick_healthy.mode
        for dialect in (Dialect.RFD, Dialect.UPSTREAM)
    ]
    assert modes == ["reconnect", 2]
    assert service_config.encode(ServiceConfig(PickHealthyMode.RECONNECT)) == raw


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("dialect", [Dialect.RFD, Dialect.UPSTREAM])
def test_responses_of_either_dialect_are_read(dialect: Dialect, config: ServiceConfig) -> None:
    """A server with only that dialect writes them."""
    response = message_class(dialect)()
    entry = response.config.load_balancing_config.add()
    entry.teleport_pick_healthy.mode = str(config.mode) if dialect is Dialect.RFD else NUMBERS[config.mode]
    raw = response.SerializeToString()
    assert service_config.decode(raw) == ServiceConfig(config.mode)
    assert raw == service_config.encode(ServiceConfig(config.mode), dialect)


@pytest.mark.parametrize(("dialect", "service"), [(Dialect.RFD, ""), (Dialect.UPSTREAM, None)])
def test_empty_health_check(dialect: Dialect, service: str | None) -> None:
    """The RFD's sample with an empty name has none in its bytes, and enables the check; Teleport writes the
    empty name.
    """
    response = message_class(dialect)()
    entry = response.config.load_balancing_config.add()
    entry.teleport_pick_healthy.mode = "reconnect" if dialect is Dialect.RFD else 2
    response.config.health_check_config.SetInParent()
    assert service_config.decode(response.SerializeToString()) == ServiceConfig(
        PickHealthyMode.RECONNECT, service
    )
