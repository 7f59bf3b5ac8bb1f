"""Every message of both versions as the very bytes other peers send, written by hand from the field numbers."""

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
#: Its two fields, as 0.2 has them in Target and Session.
NAME = "1a08 726f757465722d37"
KIND = "2203 535348"
NO = "2a02 6e6f"

V0_2: dict[str, tuple[str, Message]] = {
    "target comes": (f"0a11 0801 {NAME} {KIND}", Registration(Op.ADD, R7)),
    "target without a type comes": (f"0a0c 0801 {NAME}", Registration(Op.ADD, Target("router-7"))),
    "target goes": (f"0a11 0802 {NAME} {KIND}", Registration(Op.REMOVE, R7)),
    "target is taken": (f"0a11 1001 {NAME} {KIND}", Registration(Op.UNKNOWN, R7, accept=True)),
    "target is refused": (f"0a13 {NAME} {KIND} {NO}", Registration(Op.UNKNOWN, R7, error="no")),
    "server asks for a session": (f"1213 0801 1001 {NAME} {KIND}", Session(1, R7, accept=True)),
    "client asks for a session": (f"121a 08{MINUS_1} {NAME} {KIND}", Session(-1, R7)),
    "server accepts": (f"121c 08{MINUS_1} 1001 {NAME} {KIND}", Session(-1, R7, accept=True)),
    "server refuses": (f"120f 08{MINUS_2} {NO}", Session(-2, Target(""), error="no")),
    "client refuses": (f"1206 0801 {NO}", Session(1, Target(""), error="no")),
    "tag of two bytes": (f"1214 08ac02 1001 {NAME} {KIND}", Session(300, R7, accept=True)),
    "largest tag": ("1206 08ffffffff07", Session(2**31 - 1)),
    "smallest tag": ("120b 0880808080f8ffffffff01", Session(-(2**31))),
    "subscription to all": ("1a02 0801", Subscription(Op.ADD)),
    "subscription to a type": ("1a07 0801 1a03 535348", Subscription(Op.ADD, "SSH")),
    "subscription stands": ("1a09 0801 1001 1a03 535348", Subscription(Op.ADD, "SSH", accept=True)),
    "subscription is refused": ("1a0b 0801 1a03 535348 2202 6e6f", Subscription(Op.ADD, "SSH", error="no")),
    "subscription ends": ("1a07 0802 1a03 535348", Subscription(Op.REMOVE, "SSH")),
    "nothing": ("", None),
}
V0_1: dict[str, tuple[str, Message]] = {
    "an end with a handler": ("1a02 0801", Capabilities(handler=True)),
    "an end without a handler": ("1a00", Capabilities(handler=False)),
    "server asks for a session": (
        "0801 1001 2208 726f757465722d37",
        Session(1, Target("router-7"), accept=True),
    ),
    "client asks for a session": (f"08{MINUS_1} 2208 726f757465722d37", Session(-1, Target("router-7"))),
    "server accepts": (
        f"08{MINUS_1} 1001 2208 726f757465722d37",
        Session(-1, Target("router-7"), accept=True),
    ),
    "server refuses": (f"08{MINUS_1} {NO}", Session(-1, Target(""), error="no")),
    "client refuses": (f"0801 {NO}", Session(1, Target(""), error="no")),
}
BOTH = [
    pytest.param(wire, bytes.fromhex(raw), said, id=f"{wire.value} {name}")
    for wire, golden in ((WireVersion.V0_2, V0_2), (WireVersion.V0_1, V0_1))
    for name, (raw, said) in golden.items()
]


@pytest.mark.parametrize(("wire", "raw", "said"), BOTH)
def test_register_message_is_these_bytes(wire: WireVersion, raw: bytes, said: Message) -> None:
    """Written so, and read so."""
    assert codec.encode(wire, said) == raw
    assert codec.decode(wire, raw) == said


def test_fields_nobody_knows_are_passed_over() -> None:
    """A later version's: field 15 of a session, and of the message around it."""
    raw = bytes.fromhex(f"1215 0801 1001 {NAME} {KIND} 7801 7a0161")
    assert codec.decode(WireVersion.V0_2, raw) == Session(1, R7, accept=True)


@pytest.mark.parametrize("wire", WireVersion)
@pytest.mark.parametrize("raw", ["0a", "0aff", "08", "0b", "ffffffffffffffffffffff", "1a05 0801"])
def test_garbage_is_no_register_message(wire: WireVersion, raw: str) -> None:
    """It breaks off, or names a wire type that is gone: an error with a sentence."""
    with pytest.raises(TunnelError, match="cannot be decoded as version"):
        codec.decode(wire, bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("tag", "raw"), [(1, "0801"), (-1, f"08{MINUS_1}"), (300, "08ac02"), (2**31 - 1, "08ffffffff07")]
)
def test_first_data_is_its_tag_alone(tag: int, raw: str) -> None:
    """Written so, and read so."""
    assert codec.first_message(tag) == bytes.fromhex(raw)
    assert codec.tag_of(bytes.fromhex(raw)) == tag


@pytest.mark.parametrize("raw", ["0801 1202 6869", "1202 6869", "0801 1801", "", "0800", "0b", "1205 68"])
def test_first_data_with_anything_else_is_refused(raw: str) -> None:
    """A payload with it or without, a close with it, no tag, tag 0, garbage."""
    with pytest.raises(TunnelError):
        codec.tag_of(bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (1, "1201"),
        (127, "127f"),
        (128, "128001"),
        (16_384, "12808001"),
        (32_768, "12808002"),
        (262_144, "12808010"),
    ],
)
def test_data_is_its_length_and_its_bytes(size: int, head: str) -> None:
    """At each size where the length takes one byte more."""
    sent = bytes(range(256)) * (size // 256 + 1)
    raw = bytes.fromhex(head) + sent[:size]
    assert codec.data_message(sent[:size]) == raw
    assert codec.header(size) == bytes.fromhex(head)
    payload, closes = codec.read_data(raw)
    assert (bytes(payload), closes) == (sent[:size], False)


@pytest.mark.parametrize(
    ("raw", "payload", "closes"),
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
def test_data_of_others_is_read_whatever_they_put_into_it(raw: str, payload: bytes, closes: bool) -> None:
    """A tag later on, a close with a payload, nothing at all, fields in any order, a length with a spare byte."""
    read, closed = codec.read_data(bytes.fromhex(raw))
    assert (bytes(read), closed) == (payload, closes)


@pytest.mark.parametrize("raw", ["12", "1205 6869", "12ffffffff0f 68", "0b", "12ffffffffffffffffffff 68"])
def test_garbage_is_no_data(raw: str) -> None:
    """It breaks off: an error with a sentence."""
    with pytest.raises(TunnelError, match="cannot be decoded as Data"):
        codec.read_data(bytes.fromhex(raw))


def test_close_stands_alone() -> None:
    """Two bytes."""
    assert bytes.fromhex("1801") == codec.CLOSE
