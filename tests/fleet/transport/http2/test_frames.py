"""Frames as bytes."""

from __future__ import annotations

import pytest

from fleet.transport.http2 import frames
from fleet.transport.http2.frames import Code, ConnectionBrokenError, Setting, Type


def test_frame_and_back() -> None:
    """Length, kind, flags and stream survive."""
    written = frames.frame(Type.DATA, frames.END_STREAM, 7, b"x" * 70_000)

    assert frames.header(written, 0) == (70_000, Type.DATA, frames.END_STREAM, 7)
    assert len(written) == frames.HEADER_LENGTH + 70_000


def test_settings_and_back() -> None:
    """Keys and values; cut off they break the connection."""
    written = frames.settings({Setting.INITIAL_WINDOW_SIZE: 5, Setting.MAX_FRAME_SIZE: 20_000})

    assert frames.read_settings(written[frames.HEADER_LENGTH :]) == [(4, 5), (5, 20_000)]
    with pytest.raises(ConnectionBrokenError):
        frames.read_settings(written[frames.HEADER_LENGTH : -1])


def test_padding_and_priority_come_off() -> None:
    """RFC 9113, sections 6.1 and 6.2."""
    assert frames.strip_padding(b"\2ab\0\0", frames.PADDED) == b"ab"
    assert frames.strip_padding(b"\0\0\0\0\0ab", frames.PRIORITY, priority=True) == b"ab"
    assert frames.strip_padding(b"ab", 0) == b"ab"


@pytest.mark.parametrize(
    ("payload", "flags"), [(b"", frames.PADDED), (b"\5ab", frames.PADDED), (b"ab", frames.PRIORITY)]
)
def test_padding_that_is_none(payload: bytes, flags: int) -> None:
    """More than there is breaks the connection."""
    with pytest.raises(ConnectionBrokenError):
        frames.strip_padding(payload, flags, priority=True)


def test_small_frames() -> None:
    """Each says one number; one that is cut off breaks the connection."""
    assert frames.read_uint32(frames.window_update(3, 99)[frames.HEADER_LENGTH :]) == 99
    assert frames.read_uint32(frames.rst_stream(3, Code.CANCEL)[frames.HEADER_LENGTH :]) == Code.CANCEL
    assert frames.goaway(5, Code.NO_ERROR, "why").endswith(b"why")
    with pytest.raises(ConnectionBrokenError):
        frames.read_uint32(b"abc")


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({Setting.ENABLE_PUSH: 2}, Code.PROTOCOL_ERROR),
        ({Setting.INITIAL_WINDOW_SIZE: 1 << 31}, Code.FLOW_CONTROL_ERROR),
        ({Setting.MAX_FRAME_SIZE: 16_383}, Code.PROTOCOL_ERROR),
        ({Setting.MAX_FRAME_SIZE: 1 << 24}, Code.PROTOCOL_ERROR),
    ],
)
def test_values_that_settings_cannot_have(values: dict[Setting, int], code: Code) -> None:
    """RFC 9113, section 6.5.2."""
    with pytest.raises(ConnectionBrokenError) as caught:
        frames.read_settings(frames.settings(values)[frames.HEADER_LENGTH :])

    assert caught.value.code is code


@pytest.mark.parametrize(
    ("kind", "flags", "number", "length", "code"),
    [
        (Type.SETTINGS, 0, 1, 6, Code.PROTOCOL_ERROR),
        (Type.PING, 0, 1, 8, Code.PROTOCOL_ERROR),
        (Type.GOAWAY, 0, 1, 8, Code.PROTOCOL_ERROR),
        (Type.SETTINGS, frames.ACK, 0, 6, Code.FRAME_SIZE_ERROR),
        (Type.PING, 0, 0, 7, Code.FRAME_SIZE_ERROR),
        (Type.RST_STREAM, 0, 1, 5, Code.FRAME_SIZE_ERROR),
        (Type.WINDOW_UPDATE, 0, 0, 3, Code.FRAME_SIZE_ERROR),
    ],
)
def test_control_frames_in_the_wrong_place(
    kind: Type, flags: int, number: int, length: int, code: Code
) -> None:
    """Of the connection on a stream, or of another length than theirs."""
    with pytest.raises(ConnectionBrokenError) as caught:
        frames.check(kind, flags, number, length)

    assert caught.value.code is code


def test_control_frames_in_the_right_place() -> None:
    """Unknown frames may have any stream and length."""
    for kind, number, length in (
        (Type.SETTINGS, 0, 12),
        (Type.PING, 0, 8),
        (Type.GOAWAY, 0, 30),
        (Type.RST_STREAM, 3, 4),
        (Type.WINDOW_UPDATE, 3, 4),
        (0x77, 9, 9),
    ):
        frames.check(kind, 0, number, length)
    frames.check(Type.SETTINGS, frames.ACK, 0, 0)


def test_stream_that_another_depends_on() -> None:
    """Of HEADERS, with and without padding; the bit for exclusive dependency does not count."""
    assert frames.dependency(b"\x80\0\0\x05\x0fab", frames.PRIORITY) == 5
    assert frames.dependency(b"\2\0\0\0\x05\x0fab\0\0", frames.PRIORITY | frames.PADDED) == 5


def test_codes_without_a_name() -> None:
    """They are an INTERNAL_ERROR."""
    assert [frames.code_of(number) for number in (0, 8, 14, 1 << 31)] == [
        Code.NO_ERROR,
        Code.CANCEL,
        Code.INTERNAL_ERROR,
        Code.INTERNAL_ERROR,
    ]
