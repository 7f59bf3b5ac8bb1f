"""The bytes of every message of both versions, written by hand from the field numbers."""

from __future__ import annotations

import pytest

from fleet.protocol.tunnel.messages import (
    Capabilities,
    Message,
    Op,
    Registration,
    Session,
    Subscription,
    Target,
    TunnelError,
    WireVersion,
)
from fleet.transport.tunnel import codec

#: -1 and -2 as int32.
MINUS_1 = "ffffffffffffffffff01"
MINUS_2 = "feffffffffffffffff01"
R7 = Target("router-7", "SSH")
#: The target's two fields in the messages Target and Session of 0.2.
NAME = "1a08 726f757465722d37"
KIND = "2203 535348"
NO = "2a02 6e6f"

V0_2: dict[str, tuple[str, Message]] = {
    "target added": (f"0a11 0801 {NAME} {KIND}", Registration(Op.ADD, R7)),
    "target without a type added": (f"0a0c 0801 {NAME}", Registration(Op.ADD, Target("router-7"))),
    "target removed": (f"0a11 0802 {NAME} {KIND}", Registration(Op.REMOVE, R7)),
    "target accepted": (f"0a11 1001 {NAME} {KIND}", Registration(Op.UNKNOWN, R7, accept=True)),
    "target refused": (f"0a13 {NAME} {KIND} {NO}", Registration(Op.UNKNOWN, R7, error="no")),
    "server requests a session": (f"1213 0801 1001 {NAME} {KIND}", Session(1, R7, accept=True)),
    "client requests a session": (f"121a 08{MINUS_1} {NAME} {KIND}", Session(-1, R7)),
    "server accepts": (f"121c 08{MINUS_1} 1001 {NAME} {KIND}", Session(-1, R7, accept=True)),
    "server refuses": (f"120f 08{MINUS_2} {NO}", Session(-2, Target(""), error="no")),
    "client refuses": (f"1206 0801 {NO}", Session(1, Target(""), error="no")),
    "tag of two bytes": (f"1214 08ac02 1001 {NAME} {KIND}", Session(300, R7, accept=True)),
    "largest tag": ("1206 08ffffffff07", Session(2**31 - 1)),
    "smallest tag": ("120b 0880808080f8ffffffff01", Session(-(2**31))),
    "subscription to all": ("1a02 0801", Subscription(Op.ADD)),
    "subscription to a type": ("1a07 0801 1a03 535348", Subscription(Op.ADD, "SSH")),
    "subscription accepted": ("1a09 0801 1001 1a03 535348", Subscription(Op.ADD, "SSH", accept=True)),
    "subscription is refused": ("1a0b 0801 1a03 535348 2202 6e6f", Subscription(Op.ADD, "SSH", error="no")),
    "subscription ends": ("1a07 0802 1a03 535348", Subscription(Op.REMOVE, "SSH")),
    "empty message": ("", None),
}
V0_1: dict[str, tuple[str, Message]] = {
    "an end with a handler": ("1a02 0801", Capabilities(handler=True)),
    "an end without a handler": ("1a00", Capabilities(handler=False)),
    "server requests a session": (
        "0801 1001 2208 726f757465722d37",
        Session(1, Target("router-7"), accept=True),
    ),
    "client requests a session": (f"08{MINUS_1} 2208 726f757465722d37", Session(-1, Target("router-7"))),
    "server accepts": (
        f"08{MINUS_1} 1001 2208 726f757465722d37",
        Session(-1, Target("router-7"), accept=True),
    ),
    "server refuses": (f"08{MINUS_1} {NO}", Session(-1, Target(""), error="no")),
    "client refuses": (f"0801 {NO}", Session(1, Target(""), error="no")),
}
REGISTER_MESSAGES = [
    pytest.param(wire, bytes.fromhex(raw), message, id=f"{wire.value} {name}")
    for wire, golden in ((WireVersion.V0_2, V0_2), (WireVersion.V0_1, V0_1))
    for name, (raw, message) in golden.items()
]


@pytest.mark.parametrize(("wire", "raw", "message"), REGISTER_MESSAGES)
def test_register_message_has_these_bytes(wire: WireVersion, raw: bytes, message: Message) -> None:
    assert codec.encode(wire, message) == raw
    assert codec.decode(wire, raw) == message


def test_unknown_fields_are_ignored() -> None:
    """Field 15 of a session and of the message around it."""
    raw = bytes.fromhex(f"1215 0801 1001 {NAME} {KIND} 7801 7a0161")
    assert codec.decode(WireVersion.V0_2, raw) == Session(1, R7, accept=True)


@pytest.mark.parametrize("wire", WireVersion)
@pytest.mark.parametrize("raw", ["0a", "0aff", "08", "0b", "ffffffffffffffffffffff", "1a05 0801"])
def test_invalid_register_bytes_are_refused(wire: WireVersion, raw: str) -> None:
    """Truncated messages and obsolete wire types."""
    with pytest.raises(TunnelError, match="cannot be decoded as version"):
        codec.decode(wire, bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("tag", "raw"), [(1, "0801"), (-1, f"08{MINUS_1}"), (300, "08ac02"), (2**31 - 1, "08ffffffff07")]
)
def test_first_data_message_has_these_bytes(tag: int, raw: str) -> None:
    assert codec.first_message(tag) == bytes.fromhex(raw)
    assert codec.tag_of(bytes.fromhex(raw)) == tag


@pytest.mark.parametrize("raw", ["0801 1202 6869", "1202 6869", "0801 1801", "", "0800", "0b", "1205 68"])
def test_first_data_with_anything_else_is_refused(raw: str) -> None:
    """With a payload, a close, no tag, tag 0, or invalid bytes."""
    with pytest.raises(TunnelError):
        codec.tag_of(bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (1, "1201"),
        (127, "127f"),
        (128, "128001"),
        (16_384, "12808001"),
        (32_768, "12808002"),
        (262_144, "12808010"),
    ],
)
def test_data_message_has_these_bytes(size: int, header: str) -> None:
    """At each size whose length takes one byte more."""
    content = bytes(range(256)) * (size // 256 + 1)
    raw = bytes.fromhex(header) + content[:size]
    assert codec.data_message(content[:size]) == raw
    assert codec.data_header(size) == bytes.fromhex(header)
    payload, is_closing = codec.read_data(raw)
    assert (bytes(payload), is_closing) == (content[:size], False)


@pytest.mark.parametrize(
    ("raw", "payload", "is_closing"),
    [
        ("1801", b"", True),
        ("", b"", False),
        ("1200", b"", False),
        ("0801", b"", False),
        ("0801 1202 6869", b"hi", False),
        ("1202 6869 1801", b"hi", True),
        ("1202 6869 0801", b"hi", False),
        ("1800 1202 6869", b"hi", False),
        ("1202 6161 1202 6869", b"hi", False),
        ("128200 6869", b"hi", False),
    ],
)
def test_data_of_other_implementations_is_read(raw: str, payload: bytes, is_closing: bool) -> None:
    """Late tags, a close with a payload, empty messages, fields in any order, lengths with a spare byte."""
    payload_read, is_closing_read = codec.read_data(bytes.fromhex(raw))
    assert (bytes(payload_read), is_closing_read) == (payload, is_closing)


@pytest.mark.parametrize("raw", ["12", "1205 6869", "12ffffffff0f 68", "0b", "12ffffffffffffffffffff 68"])
def test_invalid_data_bytes_are_refused(raw: str) -> None:
    with pytest.raises(TunnelError, match="cannot be decoded as Data"):
        codec.read_data(bytes.fromhex(raw))


def test_close_message_has_these_bytes() -> None:
    assert bytes.fromhex("1801") == codec.CLOSE_MESSAGE
