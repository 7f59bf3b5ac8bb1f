"""Frames as bytes."""

from __future__ import annotations

import pytest

from fleet.transport.http2 import frames
from fleet.transport.http2.frames import Code, ConnectionBroken, Setting, Type


def test_frame_and_back() -> None:
    """Length, kind, flags and stream survive."""
    written = frames.frame(Type.DATA, frames.END_STREAM, 7, b"x" * 70_000)

    assert frames.header(written, 0) == (70_000, Type.DATA, frames.END_STREAM, 7)
    assert len(written) == frames.HEADER_LENGTH + 70_000


def test_settings_and_back() -> None:
    """Keys and values; cut off they break the connection."""
    written = frames.settings({Setting.INITIAL_WINDOW_SIZE: 5, Setting.MAX_FRAME_SIZE: 20_000})

    assert frames.read_settings(written[frames.HEADER_LENGTH :]) == [(4, 5), (5, 20_000)]
    with pytest.raises(ConnectionBroken):
        frames.read_settings(written[frames.HEADER_LENGTH : -1])


def test_padding_and_priority_come_off() -> None:
    """RFC 9113, sections 6.1 and 6.2."""
    assert frames.unpadded(b"\2ab\0\0", frames.PADDED) == b"ab"
    assert frames.unpadded(b"\0\0\0\0\0ab", frames.PRIORITY, priority=True) == b"ab"
    assert frames.unpadded(b"ab", 0) == b"ab"


@pytest.mark.parametrize(
    ("payload", "flags"), [(b"", frames.PADDED), (b"\5ab", frames.PADDED), (b"ab", frames.PRIORITY)]
)
def test_padding_that_is_none(payload: bytes, flags: int) -> None:
    """More than there is breaks the connection."""
    with pytest.raises(ConnectionBroken):
        frames.unpadded(payload, flags, priority=True)


def test_small_frames() -> None:
    """Each says one number; one that is cut off breaks the connection."""
    assert frames.long(frames.window_update(3, 99)[frames.HEADER_LENGTH :]) == 99
    assert frames.long(frames.rst_stream(3, Code.CANCEL)[frames.HEADER_LENGTH :]) == Code.CANCEL
    assert frames.goaway(5, Code.NO_ERROR, "why").endswith(b"why")
    with pytest.raises(ConnectionBroken):
        frames.long(b"abc")
