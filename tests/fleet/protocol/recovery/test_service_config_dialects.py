"""Our answer as real protobuf decoders of both dialects read it, and theirs as we do."""

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


def field(name: str, kind: FieldDescriptorProto.Type.ValueType, of: str = "", number: int = 1) -> Any:
    """One field; the list of policies is the only one that repeats."""
    label = (
        FieldDescriptorProto.LABEL_REPEATED
        if name.startswith("load")
        else FieldDescriptorProto.LABEL_OPTIONAL
    )
    made = FieldDescriptorProto(name=name, number=number, type=kind, label=label)
    if of:
        made.type_name = of
    return made


def decoder(dialect: Dialect) -> Any:
    """GetServiceConfigResponse as the RFD's text, or as upstream, has it."""
    package = f"dialect.{dialect.value}"
    message = FieldDescriptorProto.TYPE_MESSAGE
    mode = (
        field("mode", FieldDescriptorProto.TYPE_STRING)
        if dialect is Dialect.RFD
        else field("mode", FieldDescriptorProto.TYPE_ENUM, f".{package}.Mode")
    )
    made = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    values = made.enum_type.add(name="Mode").value
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
        made.message_type.add(name=name).field.extend(fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(made)  # type: ignore[no-untyped-call]
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Answer"))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("dialect", [Dialect.RFD, Dialect.UPSTREAM])
def test_one_answer_is_read_by_a_decoder_of_either_dialect(dialect: Dialect, config: ServiceConfig) -> None:
    """By protobuf itself; also after a decoder of either dialect has passed it on."""
    wanted = str(config.mode) if dialect is Dialect.RFD else NUMBERS[config.mode]
    answer = service_config.encode(config)
    for passed_on in (None, Dialect.RFD, Dialect.UPSTREAM):
        raw = answer if passed_on is None else decoder(passed_on).FromString(answer).SerializeToString()
        read = decoder(dialect).FromString(raw).config
        assert read.load_balancing_config[0].teleport_pick_healthy.mode == wanted
        assert read.HasField("health_check_config") is config.health_check
        assert service_config.decode(raw) == config


def test_measured_bytes() -> None:
    """A policy that carries both: "reconnect" to a string decoder, 2 to an enum decoder."""
    policy = bytes.fromhex("0a097265636f6e6e6563740802")
    raw = b"\x0a" + bytes([len(policy) + 4, 0x0A, len(policy) + 2, 0x0A, len(policy)]) + policy
    modes = [
        decoder(dialect).FromString(raw).config.load_balancing_config[0].teleport_pick_healthy.mode
        for dialect in (Dialect.RFD, Dialect.UPSTREAM)
    ]
    assert modes == ["reconnect", 2]
    assert service_config.encode(ServiceConfig(PickHealthyMode.RECONNECT)) == raw


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("dialect", [Dialect.RFD, Dialect.UPSTREAM])
def test_answers_of_either_dialect_are_read(dialect: Dialect, config: ServiceConfig) -> None:
    """As a server of that dialect alone writes them."""
    answer = decoder(dialect)()
    entry = answer.config.load_balancing_config.add()
    entry.teleport_pick_healthy.mode = str(config.mode) if dialect is Dialect.RFD else NUMBERS[config.mode]
    raw = answer.SerializeToString()
    assert service_config.decode(raw) == ServiceConfig(config.mode)
    assert raw == service_config.encode(ServiceConfig(config.mode), dialect)


@pytest.mark.parametrize(("dialect", "service"), [(Dialect.RFD, ""), (Dialect.UPSTREAM, None)])
def test_empty_health_check(dialect: Dialect, service: str | None) -> None:
    """The RFD's sample (an empty name) leaves no name on the wire, and is on; upstream says the empty name."""
    answer = decoder(dialect)()
    entry = answer.config.load_balancing_config.add()
    entry.teleport_pick_healthy.mode = "reconnect" if dialect is Dialect.RFD else 2
    answer.config.health_check_config.SetInParent()
    assert service_config.decode(answer.SerializeToString()) == ServiceConfig(
        PickHealthyMode.RECONNECT, service
    )
