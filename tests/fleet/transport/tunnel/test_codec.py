"""Messages to bytes and back, and what is no message."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from fleet.protocol.tunnel.messages import (
    LAST_TAG,
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
from fleet.wire import tunnel_pb2, tunnel_v01_pb2

texts = st.text(max_size=20)
tags = st.integers(-LAST_TAG - 1, LAST_TAG)
ops = st.sampled_from(Op)
targets = st.builds(Target, texts, texts)
sessions = st.builds(Session, tags, targets, st.booleans(), texts)


@given(
    st.one_of(
        st.none(),
        sessions,
        st.builds(Registration, ops, targets, st.booleans(), texts),
        st.builds(Subscription, ops, texts, st.booleans(), texts),
    )
)
def test_law_what_is_written_is_read_0_2(message: Message) -> None:
    """Every message of today's version survives."""
    assert codec.decode(WireVersion.V0_2, codec.encode(WireVersion.V0_2, message)) == message


@given(
    st.one_of(
        st.builds(Session, tags, st.builds(Target, texts), st.booleans(), texts),
        st.builds(Capabilities, st.booleans()),
    )
)
def test_law_what_is_written_is_read_0_1(message: Message) -> None:
    """Every message of the first version survives."""
    assert codec.decode(WireVersion.V0_1, codec.encode(WireVersion.V0_1, message)) == message


def test_versions_cannot_be_told_apart() -> None:
    """The same four bytes are 0.1's capabilities and 0.2's subscription to all: so nobody sniffs."""
    raw = bytes.fromhex("1a020801")

    assert codec.decode(WireVersion.V0_1, raw) == Capabilities(True)
    assert codec.decode(WireVersion.V0_2, raw) == Subscription(Op.ADD)
    assert codec.encode(WireVersion.V0_1, Capabilities(True)) == raw
    assert codec.encode(WireVersion.V0_2, Subscription(Op.ADD)) == raw


def test_unknown_operations_are_none() -> None:
    """A number of a version to come means nothing yet, and breaks nothing."""
    target = tunnel_pb2.RegisterOp.FromString(bytes.fromhex("0a05 0807 1a01 61"))

    assert codec.decode(WireVersion.V0_2, target.SerializeToString()) == Registration(Op.UNKNOWN, Target("a"))
    assert codec.decode(WireVersion.V0_2, b"\x2a\x00") is None  # an unknown field


@pytest.mark.parametrize("wire", WireVersion)
@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x05a", b"\x1a\xff\xff\xff\xff\x0f", b"garbage!"])
def test_garbage_on_register(wire: WireVersion, raw: bytes) -> None:
    """It is told as what it is."""
    with pytest.raises(TunnelError, match=f"cannot be decoded as version {wire.value}"):
        codec.decode(wire, raw)


def test_text_that_is_no_utf8_is_garbage() -> None:
    """Names are text."""
    with pytest.raises(TunnelError, match="cannot be decoded as version"):
        codec.decode(WireVersion.V0_2, bytes.fromhex("0a03 1a01 ff"))


@given(st.binary(max_size=200))
def test_law_any_bytes_are_a_message_or_an_error(raw: bytes) -> None:
    """Nothing a stranger sends raises anything else."""
    for wire in WireVersion:
        try:
            codec.decode(wire, raw)
        except TunnelError:
            continue


# -- Data ------------------------------------------------------------------------------------------


@given(tags.filter(bool))
def test_first_message_is_the_tag_alone(tag: int) -> None:
    """Of either sign."""
    assert codec.tag_of(codec.first_message(tag)) == tag
    assert tunnel_pb2.Data.FromString(codec.first_message(tag)) == tunnel_pb2.Data(tag=tag)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "tag 0 is not a session's tag"),
        (tunnel_pb2.Data(tag=3, data=b"x").SerializeToString(), "must contain only its tag"),
        (tunnel_pb2.Data(tag=3, close=True).SerializeToString(), "must contain only its tag"),
        (tunnel_pb2.Data(data=b"x").SerializeToString(), "must contain only its tag"),
        (b"\xff\xff", "the first message of a Tunnel stream cannot be decoded as Data"),
    ],
)
def test_first_message_that_is_something_else(raw: bytes, why: str) -> None:
    """Each is told what is wrong with it."""
    with pytest.raises(TunnelError, match=why):
        codec.tag_of(raw)


@pytest.mark.parametrize(
    "size", [1, 127, 128, 16383, 16384, 2**18, 2**21 - 1, 2**21, 2**23, 2**28 - 1, 2**28, 2**31 - 1]
)
def test_header_is_protobufs(size: int) -> None:
    """At every length that takes a byte more; and there is room for it."""
    header = codec.header(size)

    assert len(header) <= codec.HEADER_ROOM
    if size <= 2**23:
        payload = bytes(size)
        expected = tunnel_pb2.Data(data=payload).SerializeToString()
        assert codec.data_message(payload) == header + payload == expected


@given(st.binary(min_size=1, max_size=300))
def test_law_payload_arrives(payload: bytes) -> None:
    """As it was, and without a close."""
    read, closes = codec.read_data(codec.data_message(memoryview(payload)))
    assert (bytes(read), closes) == (payload, False)


def test_close_is_close_alone() -> None:
    """Data that comes with it would be dropped by others."""
    assert tunnel_pb2.Data(close=True).SerializeToString() == codec.CLOSE
    assert codec.read_data(codec.CLOSE) == (b"", True)


@given(st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(lambda raw: b"\x12" + raw)))
@example(b"\x12\x80\x80")
@example(b"\x12\x80\x80\x80\x80\x80")
@example(b"\x12\x80\x00")
@example(b"\x12\x81\x00x")
@example(b"\x12\x01x\x12\x01y")
@example(b"\x12\x01x\x18\x01")
@example(b"\x08\x05\x12\x01x")
def test_law_reading_by_hand_is_protobufs_reading(raw: bytes) -> None:
    """Whatever the bytes: tags later on, several fields, lengths in more bytes than they need, garbage."""
    try:
        expected = tunnel_pb2.Data.FromString(raw)
    except DecodeError:
        with pytest.raises(TunnelError, match="a message on a Tunnel stream cannot be decoded as Data"):
            codec.read_data(raw)
    else:
        payload, closes = codec.read_data(raw)
        assert (bytes(payload), closes) == (expected.data, expected.close)


@pytest.mark.parametrize("sent", [0, 3, -2_000])
def test_data_with_its_own_tag_or_none(sent: int) -> None:
    """Some peers repeat the tag in every message; others leave it out after the first."""
    raw = tunnel_pb2.Data(tag=sent, data=b"x", close=True).SerializeToString()
    assert codec.read_data(raw, sent or 7) == (b"x", True)


@pytest.mark.parametrize("sent", [1, -3, 2**31 - 1])
def test_data_with_the_tag_of_another_session(sent: int) -> None:
    """It is not carried: which session it is for nobody knows."""
    raw = tunnel_pb2.Data(tag=sent, data=b"x").SerializeToString()
    with pytest.raises(TunnelError, match=f"data with tag {sent} arrived on the stream of tag 3"):
        codec.read_data(raw, 3)


@pytest.mark.parametrize(
    "more", [{"tag": 5}, {"tag": 5, "target_id": "r"}, {"accept": True}, {"error": "no"}, {"target_id": "r"}]
)
def test_session_of_0_1_that_carries_capabilities(more: dict[str, Any]) -> None:
    """It is neither of both: whoever sent it is to be told, under its tag."""
    raw = tunnel_v01_pb2.Session(
        capabilities=tunnel_v01_pb2.Capabilities(handler=True), **more
    ).SerializeToString()
    found = codec.decode(WireVersion.V0_1, raw)
    assert isinstance(found, Session)
    assert (found.tag, found.target.name) == (more.get("tag", 0), more.get("target_id", ""))
    assert "must not contain capabilities" in found.malformed_reason


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (WireVersion.V0_1, Session(-1, Target("n" * 1_025))),
        (WireVersion.V0_2, Session(-1, Target("n" * 1_025))),
        (WireVersion.V0_2, Registration(Op.ADD, Target("n", "t" * 1_025))),
        (WireVersion.V0_2, Subscription(Op.ADD, "t" * 1_025)),
    ],
)
def test_target_whose_name_is_too_long(wire: WireVersion, message: Message) -> None:
    """Answers would repeat it, and subscribers hear it: whoever sends one of megabytes is not listened to."""
    with pytest.raises(TunnelError, match="longer than 1024 characters"):
        codec.decode(wire, codec.encode(wire, message))


@pytest.mark.parametrize("wire", list(WireVersion))
def test_message_that_is_too_long(wire: WireVersion) -> None:
    """A sentence of megabytes costs as much again for each copy of it: whoever sends one is not listened to."""
    assert codec.decode(wire, codec.encode(wire, Session(-1, Target("n"), error="x" * 65_000)))
    with pytest.raises(TunnelError, match="longer than 65536 bytes"):
        codec.decode(wire, codec.encode(wire, Session(-1, Target("n"), error="x" * 65_536)))
