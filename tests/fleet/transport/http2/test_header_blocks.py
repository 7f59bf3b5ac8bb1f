"""Header blocks, whole and in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.transport.http2 import frames, header_blocks
from fleet.transport.http2.frames import Code, ConnectionBrokenError, Type
from fleet.transport.http2.header_blocks import Block, HeaderBlocks


def read(data: bytes) -> list[Block]:
    """What a connection makes of frames."""
    blocks, found, at = HeaderBlocks(), [], 0
    while at < len(data):
        length, kind, flags, number = frames.header(data, at)
        at += frames.HEADER_LENGTH
        payload, at = data[at : at + length], at + length
        blocks.check_order(kind, number)
        take = blocks.add_continuation(flags, payload) if kind == Type.CONTINUATION else None
        whole = take if kind == Type.CONTINUATION else blocks.add_headers(number, flags, payload)
        found += [] if whole is None else [whole]
    return found


@given(st.lists(st.tuples(st.binary(max_size=200), st.booleans()), max_size=4), st.integers(1, 60))
def test_blocks_read_as_they_were_written(sent: list[tuple[bytes, bool]], longest: int) -> None:
    """Whatever their length and that of frames: in order, each with its stream and whether that ends."""
    written = [
        header_blocks.encode_frames(2 * at + 1, block, longest, end=end)
        for at, (block, end) in enumerate(sent)
    ]
    assert read(b"".join(written)) == [Block(2 * at + 1, *one) for at, one in enumerate(sent)]


def test_nothing_comes_between_the_pieces() -> None:
    """No other frame, and no piece of another stream; nor a piece of nothing."""
    blocks = HeaderBlocks()
    with pytest.raises(ConnectionBrokenError, match="CONTINUATION without a header block"):
        blocks.add_continuation(0, b"x")
    assert blocks.add_headers(1, 0, b"a") is None
    blocks.check_order(Type.CONTINUATION, 1)
    for kind, number in ((Type.DATA, 1), (Type.CONTINUATION, 3), (Type.PING, 0)):
        with pytest.raises(ConnectionBrokenError, match="is interrupted"):
            blocks.check_order(kind, number)


@pytest.mark.parametrize("piece", [b"", bytes(16_000)])
def test_block_without_an_end(piece: bytes) -> None:
    """Many pieces of nothing, and few large ones: both are a flood."""
    blocks = HeaderBlocks()
    blocks.add_headers(1, 0, b"a")

    def without_end() -> None:
        for _ in range(100_000):
            blocks.add_continuation(0, piece)

    with pytest.raises(ConnectionBrokenError) as caught:
        without_end()
    assert caught.value.code is Code.ENHANCE_YOUR_CALM


def test_dependency_of_a_stream() -> None:
    """It stands in HEADERS, and is known when the block is whole."""
    blocks, payload = HeaderBlocks(), b"\0\0\0\x05\x0fab"
    flags = frames.PRIORITY | frames.END_HEADERS

    assert blocks.add_headers(7, flags, payload) == Block(7, b"ab", False, 5)
    assert blocks.add_headers(7, frames.PRIORITY, payload) is None
    assert blocks.add_continuation(frames.END_HEADERS, b"c") == Block(7, b"abc", False, 5)
