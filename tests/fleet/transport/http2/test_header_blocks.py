"""Header blocks, whole and in parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.transport.http2 import frames, header_blocks
from fleet.transport.http2.frames import ErrorCode, FrameType, Http2ConnectionError
from fleet.transport.http2.header_blocks import HeaderBlock, HeaderBlockAssembler


def read_blocks(data: bytes) -> list[HeaderBlock]:
    """Return the header blocks of encoded frames."""
    blocks, complete_blocks, at = HeaderBlockAssembler(), [], 0
    while at < len(data):
        length, kind, flags, number = frames.read_header(data, at)
        at += frames.HEADER_LENGTH
        payload, at = data[at : at + length], at + length
        blocks.check_order(kind, number)
        continuation_block = (
            blocks.add_continuation(flags, payload) if kind == FrameType.CONTINUATION else None
        )
        block = (
            continuation_block
            if kind == FrameType.CONTINUATION
            else blocks.add_headers(number, flags, payload)
        )
        complete_blocks += [] if block is None else [block]
    return complete_blocks


@given(st.lists(st.tuples(st.binary(max_size=200), st.booleans()), max_size=4), st.integers(1, 60))
def test_blocks_round_trip(header_lists: list[tuple[bytes, bool]], frame_size: int) -> None:
    """Blocks of any length in frames of any size keep their order, stream and end flag."""
    encoded = [
        header_blocks.encode_frames(2 * index + 1, block, frame_size, end=end)
        for index, (block, end) in enumerate(header_lists)
    ]
    assert read_blocks(b"".join(encoded)) == [
        HeaderBlock(2 * index + 1, *header_list) for index, header_list in enumerate(header_lists)
    ]


def test_other_frames_between_the_parts_are_refused() -> None:
    """Neither another frame, nor a CONTINUATION of another stream or without a block."""
    blocks = HeaderBlockAssembler()
    with pytest.raises(Http2ConnectionError, match="CONTINUATION without a header block"):
        blocks.add_continuation(0, b"x")
    assert blocks.add_headers(1, 0, b"a") is None
    blocks.check_order(FrameType.CONTINUATION, 1)
    for kind, number in ((FrameType.DATA, 1), (FrameType.CONTINUATION, 3), (FrameType.PING, 0)):
        with pytest.raises(Http2ConnectionError, match="is interrupted"):
            blocks.check_order(kind, number)


@pytest.mark.parametrize("part", [b"", bytes(16_000)])
def test_block_without_an_end_is_a_flood(part: bytes) -> None:
    """With many empty parts or with few large ones."""
    blocks = HeaderBlockAssembler()
    blocks.add_headers(1, 0, b"a")

    def add_continuations() -> None:
        for _ in range(100_000):
            blocks.add_continuation(0, part)

    with pytest.raises(Http2ConnectionError) as caught:
        add_continuations()
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_dependency_of_a_block() -> None:
    """It is in HEADERS, and known once the block is complete."""
    blocks, payload = HeaderBlockAssembler(), b"\0\0\0\x05\x0fab"
    flags = frames.PRIORITY | frames.END_HEADERS

    assert blocks.add_headers(7, flags, payload) == HeaderBlock(7, b"ab", False, 5)
    assert blocks.add_headers(7, frames.PRIORITY, payload) is None
    assert blocks.add_continuation(frames.END_HEADERS, b"c") == HeaderBlock(7, b"abc", False, 5)
