"""Tunnel messages as bytes, by the field numbers of the protocol alone: nothing of ours, and nothing generated.

Version 0.1 Session: tag 1, accept 2, capabilities 3 {handler 1}, target_id 4, error 5. Version 0.2 RegisterOp: target 1
{op 1, accept 2, target 3, target_type 4, error 5}, session 2 {tag 1, accept 2, target 3, target_type 4, error 5},
subscription 3 {op 1, accept 2, target_type 3, error 4}. Data of both: tag 1, data 2, close 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Value: TypeAlias = int | bool | str | bytes
#: By field number. Numbers are as they stand on the wire, so that a negative int32 is a large one: see `signed`.
Fields: TypeAlias = dict[int, int | bytes]

TARGET, SESSION, SUBSCRIPTION = 1, 2, 3
ADD, REMOVE = 1, 2


class WireError(Exception):
    """Bytes that are no message."""


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; negative numbers take ten bytes."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(fields: Mapping[int, Value]) -> bytes:
    """Write fields in the order of their numbers; what proto3 takes for unset is left out."""
    out = bytearray()
    for number, value in sorted(fields.items()):
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            if value:
                out += varint(number << 3 | 2) + varint(len(value)) + value
        elif value:
            out += varint(number << 3) + varint(int(value))
    return bytes(out)


def op(kind: int, fields: Mapping[int, Value]) -> bytes:
    """A RegisterOp of version 0.2; its one member is there even when it is empty."""
    inner = message(fields)
    return varint(kind << 3 | 2) + varint(len(inner)) + inner


def read(raw: bytes) -> Fields:
    """Read a message's fields, those of a later occurrence winning. Raises WireError."""
    fields: Fields = {}
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            fields[number], at = _varint(raw, at)
        elif kind == 2:
            size, at = _varint(raw, at)
            if at + size > len(raw):
                raise WireError(f"field {number} is longer than its message")
            fields[number] = raw[at : at + size]
            at += size
        else:
            raise WireError(f"field {number} has wire type {kind}, which nothing here has")
    return fields


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(raw) or shift > 63:
            raise WireError("a number that does not end")
        number |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if raw[at - 1] < 0x80:
            return number, at


def signed(fields: Fields, number: int) -> int:
    """An int32."""
    value = fields.get(number, 0)
    if not isinstance(value, int):
        raise WireError(f"field {number} is no number")
    return value - (1 << 64) if value >> 63 else value


def text(fields: Fields, number: int) -> str:
    """A string."""
    return payload(fields, number).decode()


def payload(fields: Fields, number: int) -> bytes:
    """Bytes."""
    value = fields.get(number, b"")
    if not isinstance(value, bytes):
        raise WireError(f"field {number} is no string")
    return value
