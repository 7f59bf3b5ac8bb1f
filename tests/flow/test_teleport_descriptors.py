"""Our copies of Teleport's messages and calls, compared with the descriptors in Teleport's own Go module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

from fleet.wire import authservice_pb2, clusterconfig_pb2, presence_pb2, resources_pb2, types_pb2
from tests.fakes import teleport
from tests.fakes.programs import skip_without

pytestmark = pytest.mark.slow

FILES: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR
    for module in (authservice_pb2, clusterconfig_pb2, presence_pb2, resources_pb2, types_pb2)
)
#: RFD 226's fields, which are ours.
OWN_FIELDS = frozenset(
    f"types.ClusterNetworkingConfigSpecV2.{name}"
    for name in (
        "graceful_tunnel_closing",
        "tunnel_closing_wait_min",
        "tunnel_closing_wait_max",
        "tunnel_disconnect_threshold",
    )
)
#: Messages and calls that Teleport got after the newest module that can be had (December 2025).
NEWER = frozenset(
    f"teleport.presence.v1.List{kind}Servers{part}"
    for kind in ("Auth", "Proxy")
    for part in ("Request", "Response")
)
NEWER_CALLS = frozenset(
    f"/teleport.presence.v1.PresenceService/List{kind}Servers" for kind in ("Auth", "Proxy")
)

#: The types of fields by their numbers, in Teleport's descriptors' spelling.
TYPES = {
    teleport_value: name.removeprefix("TYPE_").lower()
    for name, teleport_value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}


@pytest.fixture(scope="module")
def teleport_api() -> dict[str, Any]:
    skip_without(teleport.missing_reason())
    return teleport.read_descriptors()


def messages_of(parents: Iterator[Descriptor]) -> Iterator[Descriptor]:
    """Yield messages and those nested in them, as the entries of maps are."""
    for message in parents:
        yield message
        yield from messages_of(iter(message.nested_types))


def our_messages() -> list[Descriptor]:
    return [message for file in FILES for message in messages_of(iter(file.message_types_by_name.values()))]


def our_enums() -> list[EnumDescriptor]:
    return [enum for file in FILES for enum in file.enum_types_by_name.values()]


def normalized(name: str) -> str:
    """Return a name without its style: Teleport's ProxyIDs is our proxy_ids."""
    return name.replace("_", "").lower()


def differences(field: FieldDescriptor, teleport_field: dict[str, Any]) -> list[str]:
    """Return how a field of ours differs from Teleport's of the same number."""
    oneof = field.containing_oneof.name if field.containing_oneof else ""
    declared_type = field.message_type or field.enum_type
    type_name = declared_type.full_name if declared_type else ""
    compared = [
        ("type", TYPES[field.type], teleport_field["type"]),
        ("type name", normalized(type_name), normalized(teleport_field["type_name"])),
        ("label", "repeated" if field.is_repeated else "optional", teleport_field["label"]),
        ("oneof", normalized(oneof), normalized(teleport_field["oneof"])),
    ]
    problems = [
        f"{aspect} {own_value!r}, Teleport's {teleport_value!r}"
        for aspect, own_value, teleport_value in compared
        if own_value != teleport_value
    ]
    if field.name != teleport_field["json_key"] and normalized(field.name) != normalized(
        teleport_field["name"]
    ):
        problems.append(f"name, Teleport's {teleport_field['name']!r} (JSON {teleport_field['json_key']!r})")
    return problems


def find_map_entry(messages: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return a message by name; the name of a map's entry is built from its field's, whose style differs."""
    normalized_name = normalized(name)
    return next(
        (fields for message_name, fields in messages.items() if normalized(message_name) == normalized_name),
        None,
    )


def test_messages_and_fields_are_teleports(teleport_api: dict[str, Any]) -> None:
    """Every message of ours exists at Teleport, and every field has its number, name, type, label and oneof."""
    wrong: list[str] = []
    compared = 0
    for message in our_messages():
        if message.full_name in NEWER:
            continue
        teleport_fields = teleport_api["messages"].get(message.full_name) or find_map_entry(
            teleport_api["messages"], message.full_name
        )
        if teleport_fields is None:
            wrong.append(f"{message.full_name}: Teleport has no such message")
            continue
        for field in message.fields:
            if field.full_name in OWN_FIELDS:
                assert str(field.number) not in teleport_fields, (
                    f"{field.full_name} has a number of Teleport's"
                )
                continue
            teleport_field = teleport_fields.get(str(field.number))
            problems = (
                ["Teleport has no field of this number"]
                if teleport_field is None
                else differences(field, teleport_field)
            )
            wrong += [f"{field.full_name} = {field.number}: {difference}" for difference in problems]
            compared += 1
    assert wrong == []
    assert compared > 150


def test_enums_are_teleports(teleport_api: dict[str, Any]) -> None:
    wrong = [
        f"{enum.full_name}.{value.name} = {value.number}"
        for enum in our_enums()
        for value in enum.values
        if teleport_api["enums"].get(enum.full_name, {}).get(str(value.number)) != value.name
    ]
    assert wrong == []


def test_calls_are_teleports(teleport_api: dict[str, Any]) -> None:
    """Every call exists with its request, response and kind of stream."""
    wrong = []
    for file in FILES:
        for service in file.services_by_name.values():
            for method in service.methods:
                name = f"/{service.full_name}/{method.name}"
                if name in NEWER_CALLS:
                    continue
                own_value = {
                    "request": method.input_type.full_name,
                    "response": method.output_type.full_name,
                    "streams": method.server_streaming,
                }
                if teleport_api["methods"].get(name) != own_value:
                    wrong.append(f"{name}: {own_value}, Teleport's {teleport_api['methods'].get(name)}")
    assert wrong == []


def test_newer_messages_are_not_there_yet(teleport_api: dict[str, Any]) -> None:
    """When the module is replaced by a newer one, these are compared, too."""
    assert NEWER.isdisjoint(teleport_api["messages"])
    assert NEWER_CALLS.isdisjoint(teleport_api["methods"])


def test_another_number_or_type_is_found(teleport_api: dict[str, Any]) -> None:
    """The comparison itself: a field beside a neighbour's number has another name and type."""
    teleport_fields = teleport_api["messages"]["types.ServerSpecV2"]
    field = types_pb2.ServerSpecV2.DESCRIPTOR.fields_by_name["use_tunnel"]
    assert differences(field, teleport_fields["6"]) == []
    assert differences(field, teleport_fields["12"]) == [
        "type 'bool', Teleport's 'string'",
        "label 'optional', Teleport's 'repeated'",
        "name, Teleport's 'ProxyIDs' (JSON 'proxy_ids')",
    ]
