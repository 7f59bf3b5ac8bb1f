"""Encoding of tunnel messages, and invalid bytes."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from fleet.protocol.tunnel.messages import (
    HIGHEST_TAG,
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
tags = st.integers(-HIGHEST_TAG - 1, HIGHEST_TAG)
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
def test_law_messages_round_trip_0_2(message: Message) -> None:
    assert codec.decode(WireVersion.V0_2, codec.encode(WireVersion.V0_2, message)) == message


@given(
    st.one_of(
        st.builds(Session, tags, st.builds(Target, texts), st.booleans(), texts),
        st.builds(Capabilities, st.booleans()),
    )
)
def test_law_messages_round_trip_0_1(message: Message) -> None:
    assert codec.decode(WireVersion.V0_1, codec.encode(WireVersion.V0_1, message)) == message


def test_versions_cannot_be_distinguished() -> None:
    """The same bytes are 0.1's capabilities and 0.2's subscription to all types."""
    raw = bytes.fromhex("1a020801")

    assert codec.decode(WireVersion.V0_1, raw) == Capabilities(True)
    assert codec.decode(WireVersion.V0_2, raw) == Subscription(Op.ADD)
    assert codec.encode(WireVersion.V0_1, Capabilities(True)) == raw
    assert codec.encode(WireVersion.V0_2, Subscription(Op.ADD)) == raw


def test_unknown_operations_and_fields_are_ignored() -> None:
    """A later version may use them."""
    target = tunnel_pb2.RegisterOp.FromString(bytes.fromhex("0a05 0807 1a01 61"))

    assert codec.decode(WireVersion.V0_2, target.SerializeToString()) == Registration(Op.UNKNOWN, Target("a"))
    assert codec.decode(WireVersion.V0_2, b"\x2a\x00") is None  # an unknown field


@pytest.mark.parametrize("wire", WireVersion)
@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x05a", b"\x1a\xff\xff\xff\xff\x0f", b"garbage!"])
def test_invalid_bytes_on_register_are_refused(wire: WireVersion, raw: bytes) -> None:
    with pytest.raises(TunnelError, match=f"cannot be decoded as version {wire.value}"):
        codec.decode(wire, raw)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(TunnelError, match="cannot be decoded as version"):
        codec.decode(WireVersion.V0_2, bytes.fromhex("0a03 1a01 ff"))


@given(st.binary(max_size=200))
def test_law_any_bytes_are_a_message_or_an_error(raw: bytes) -> None:
    """No bytes raise another exception than TunnelError."""
    for wire in WireVersion:
        try:
            codec.decode(wire, raw)
        except TunnelError:
            continue


# -- Data ------------------------------------------------------------------------------------------


@given(tags.filter(bool))
def test_first_message_has_only_the_tag(tag: int) -> None:
    """Tags of either sign."""
    assert codec.tag_of(codec.first_message(tag)) == tag
    assert tunnel_pb2.Data.FromString(codec.first_message(tag)) == tunnel_pb2.Data(tag=tag)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", "tag 0 is not a session's tag"),
        (tunnel_pb2.Data(tag=3, data=b"x").SerializeToString(), "must contain only its tag"),
        (tunnel_pb2.Data(tag=3, close=True).SerializeToString(), "must contain only its tag"),
        (tunnel_pb2.Data(data=b"x").SerializeToString(), "must contain only its tag"),
        (b"\xff\xff", "the first message of a Tunnel stream cannot be decoded as Data"),
    ],
)
def test_other_first_message_is_refused(raw: bytes, error: str) -> None:
    with pytest.raises(TunnelError, match=error):
        codec.tag_of(raw)


@pytest.mark.parametrize(
    "size", [1, 127, 128, 16383, 16384, 2**18, 2**21 - 1, 2**21, 2**23, 2**28 - 1, 2**28, 2**31 - 1]
)
def test_header_matches_protobuf(size: int) -> None:
    """At every length whose size takes one byte more."""
    header = codec.data_header(size)

    assert len(header) <= codec.HEADER_ROOM
    if size <= 2**23:
        payload = bytes(size)
        expected = tunnel_pb2.Data(data=payload).SerializeToString()
        assert codec.data_message(payload) == header + payload == expected


@given(st.binary(min_size=1, max_size=300))
def test_law_payload_round_trips(payload: bytes) -> None:
    payload_read, is_closing = codec.read_data(codec.data_message(memoryview(payload)))
    assert (bytes(payload_read), is_closing) == (payload, False)


def test_close_has_no_data() -> None:
    """Other implementations would drop data in it."""
    assert tunnel_pb2.Data(close=True).SerializeToString() == codec.CLOSE_MESSAGE
    assert codec.read_data(codec.CLOSE_MESSAGE) == (b"", True)


@given(st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(lambda raw: b"\x12" + raw)))
@example(b"\x12\x80\x80")
@example(b"\x12\x80\x80\x80\x80\x80")
@example(b"\x12\x80\x00")
@example(b"\x12\x81\x00x")
@example(b"\x12\x01x\x12\x01y")
@example(b"\x12\x01x\x18\x01")
@example(b"\x08\x05\x12\x01x")
def test_law_manual_decoding_matches_protobuf(raw: bytes) -> None:
    """For any bytes: late tags, repeated fields, long lengths, invalid bytes."""
    try:
        expected = tunnel_pb2.Data.FromString(raw)
    except DecodeError:
        with pytest.raises(TunnelError, match="a message on a Tunnel stream cannot be decoded as Data"):
            codec.read_data(raw)
    else:
        payload, is_closing = codec.read_data(raw)
        assert (bytes(payload), is_closing) == (expected.data, expected.close)


@pytest.mark.parametrize("tag", [0, 3, -2_000])
def test_data_with_its_own_tag_or_none_is_accepted(tag: int) -> None:
    """Some peers repeat the tag in every message, others leave it out."""
    raw = tunnel_pb2.Data(tag=tag, data=b"x", close=True).SerializeToString()
    assert codec.read_data(raw, tag or 7) == (b"x", True)


@pytest.mark.parametrize("tag", [1, -3, 2**31 - 1])
def test_data_with_the_tag_of_another_session_is_refused(tag: int) -> None:
    """It is unclear which session it belongs to."""
    raw = tunnel_pb2.Data(tag=tag, data=b"x").SerializeToString()
    with pytest.raises(TunnelError, match=f"data with tag {tag} arrived on the stream of tag 3"):
        codec.read_data(raw, 3)


@pytest.mark.parametrize(
    "fields",
    [{"tag": 5}, {"tag": 5, "target_id": "r"}, {"accept": True}, {"error": "no"}, {"target_id": "r"}],
)
def test_session_of_0_1_with_capabilities_is_malformed(fields: dict[str, Any]) -> None:
    """The sender gets an error under its tag."""
    raw = tunnel_v01_pb2.Session(
        capabilities=tunnel_v01_pb2.Capabilities(handler=True), **fields
    ).SerializeToString()
    message = codec.decode(WireVersion.V0_1, raw)
    assert isinstance(message, Session)
    assert (message.tag, message.target.name) == (fields.get("tag", 0), fields.get("target_id", ""))
    assert "must not contain capabilities" in message.malformed_reason


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (WireVersion.V0_1, Session(-1, Target("n" * 1_025))),
        (WireVersion.V0_2, Session(-1, Target("n" * 1_025))),
        (WireVersion.V0_2, Registration(Op.ADD, Target("n", "t" * 1_025))),
        (WireVersion.V0_2, Subscription(Op.ADD, "t" * 1_025)),
    ],
)
def test_long_target_name_is_refused(wire: WireVersion, message: Message) -> None:
    """Responses and notifications would repeat it."""
    with pytest.raises(TunnelError, match="longer than 1024 characters"):
        codec.decode(wire, codec.encode(wire, message))


@pytest.mark.parametrize("wire", list(WireVersion))
def test_long_message_is_refused(wire: WireVersion) -> None:
    """Each copy of it takes memory."""
    assert codec.decode(wire, codec.encode(wire, Session(-1, Target("n"), error="x" * 65_000)))
    with pytest.raises(TunnelError, match="longer than 65536 bytes"):
        codec.decode(wire, codec.encode(wire, Session(-1, Target("n"), error="x" * 65_536)))
