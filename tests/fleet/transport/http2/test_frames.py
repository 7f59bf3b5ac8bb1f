"""Encoding of HTTP/2 frames."""

from __future__ import annotations

import pytest

from fleet.transport.http2 import frames
from fleet.transport.http2.frames import ErrorCode, FrameType, Http2ConnectionError, SettingId


def test_frame_header_round_trip() -> None:
    encoded = frames.frame(FrameType.DATA, frames.END_STREAM, 7, b"x" * 70_000)

    assert frames.read_header(encoded, 0) == (70_000, FrameType.DATA, frames.END_STREAM, 7)
    assert len(encoded) == frames.HEADER_LENGTH + 70_000


def test_settings_round_trip() -> None:
    """Truncated settings end the connection."""
    encoded = frames.settings({SettingId.INITIAL_WINDOW_SIZE: 5, SettingId.MAX_FRAME_SIZE: 20_000})

    assert frames.read_settings(encoded[frames.HEADER_LENGTH :]) == [(4, 5), (5, 20_000)]
    with pytest.raises(Http2ConnectionError):
        frames.read_settings(encoded[frames.HEADER_LENGTH : -1])


def test_padding_and_priority_are_stripped() -> None:
    """RFC 9113, sections 6.1 and 6.2."""
    assert frames.strip_padding(b"\2ab\0\0", frames.PADDED) == b"ab"
    assert frames.strip_padding(b"\0\0\0\0\0ab", frames.PRIORITY, priority=True) == b"ab"
    assert frames.strip_padding(b"ab", 0) == b"ab"


@pytest.mark.parametrize(
    ("payload", "flags"), [(b"", frames.PADDED), (b"\5ab", frames.PADDED), (b"ab", frames.PRIORITY)]
)
def test_invalid_padding_ends_the_connection(payload: bytes, flags: int) -> None:
    with pytest.raises(Http2ConnectionError):
        frames.strip_padding(payload, flags, priority=True)


def test_frames_with_one_number() -> None:
    """A truncated one ends the connection."""
    assert frames.read_uint32(frames.window_update(3, 99)[frames.HEADER_LENGTH :]) == 99
    assert (
        frames.read_uint32(frames.rst_stream(3, ErrorCode.CANCEL)[frames.HEADER_LENGTH :]) == ErrorCode.CANCEL
    )
    assert frames.goaway(5, ErrorCode.NO_ERROR, "why").endswith(b"why")
    with pytest.raises(Http2ConnectionError):
        frames.read_uint32(b"abc")


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({SettingId.ENABLE_PUSH: 2}, ErrorCode.PROTOCOL_ERROR),
        ({SettingId.INITIAL_WINDOW_SIZE: 1 << 31}, ErrorCode.FLOW_CONTROL_ERROR),
        ({SettingId.MAX_FRAME_SIZE: 16_383}, ErrorCode.PROTOCOL_ERROR),
        ({SettingId.MAX_FRAME_SIZE: 1 << 24}, ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_invalid_settings_end_the_connection(values: dict[SettingId, int], code: ErrorCode) -> None:
    """RFC 9113, section 6.5.2."""
    with pytest.raises(Http2ConnectionError) as caught:
        frames.read_settings(frames.settings(values)[frames.HEADER_LENGTH :])

    assert caught.value.code is code


@pytest.mark.parametrize(
    ("kind", "flags", "number", "length", "code"),
    [
        (FrameType.SETTINGS, 0, 1, 6, ErrorCode.PROTOCOL_ERROR),
        (FrameType.PING, 0, 1, 8, ErrorCode.PROTOCOL_ERROR),
        (FrameType.GOAWAY, 0, 1, 8, ErrorCode.PROTOCOL_ERROR),
        (FrameType.SETTINGS, frames.ACK, 0, 6, ErrorCode.FRAME_SIZE_ERROR),
        (FrameType.PING, 0, 0, 7, ErrorCode.FRAME_SIZE_ERROR),
        (FrameType.RST_STREAM, 0, 1, 5, ErrorCode.FRAME_SIZE_ERROR),
        (FrameType.WINDOW_UPDATE, 0, 0, 3, ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_misplaced_control_frames_end_the_connection(
    kind: FrameType, flags: int, number: int, length: int, code: ErrorCode
) -> None:
    """On a stream or on the connection wrongly, or with a wrong length."""
    with pytest.raises(Http2ConnectionError) as caught:
        frames.check_control_frame(kind, flags, number, length)

    assert caught.value.code is code


def test_valid_control_frames_are_accepted() -> None:
    """Unknown frames may have any stream and length."""
    for kind, number, length in (
        (FrameType.SETTINGS, 0, 12),
        (FrameType.PING, 0, 8),
        (FrameType.GOAWAY, 0, 30),
        (FrameType.RST_STREAM, 3, 4),
        (FrameType.WINDOW_UPDATE, 3, 4),
        (0x77, 9, 9),
    ):
        frames.check_control_frame(kind, 0, number, length)
    frames.check_control_frame(FrameType.SETTINGS, frames.ACK, 0, 0)


def test_dependency_of_headers() -> None:
    """With and without padding; the exclusive bit is ignored."""
    assert frames.read_dependency(b"\x80\0\0\x05\x0fab", frames.PRIORITY) == 5
    assert frames.read_dependency(b"\2\0\0\0\x05\x0fab\0\0", frames.PRIORITY | frames.PADDED) == 5


def test_unknown_error_codes_are_internal_errors() -> None:
    assert [frames.code_of(number) for number in (0, 8, 14, 1 << 31)] == [
        ErrorCode.NO_ERROR,
        ErrorCode.CANCEL,
        ErrorCode.INTERNAL_ERROR,
        ErrorCode.INTERNAL_ERROR,
    ]
