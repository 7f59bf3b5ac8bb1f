"""Header blocks in several frames: HEADERS and its CONTINUATION frames, RFC 9113 section 4.3."""

from __future__ import annotations

from typing import NamedTuple

from fleet.transport.http2 import frames
from fleet.transport.http2.fields import LONGEST_HEADER_LIST
from fleet.transport.http2.frames import ErrorCode, FrameType, Http2ConnectionError

#: Reading an attribute of an enum is a lookup by name.
_HEADERS = int(FrameType.HEADERS)
#: Maximum length of a header block, as a multiple of that of a header list; a longer one is a flood (CVE-2024-27316).
_BLOCK_PER_LIST_LENGTH = 2
#: Minimum average bytes of a block's frames: empty frames are a flood, too.
_SHORTEST_AVERAGE_FRAME = 64


class HeaderBlock(NamedTuple):
    """A complete header block."""

    stream_number: int
    block: bytes
    #: END_STREAM was set: the stream ends with this block.
    end: bool
    #: Stream in the priority of HEADERS that this one depends on; 0: none.
    dependency: int = 0


class HeaderBlockAssembler:
    """Assembles the header blocks of one connection: one at a time, with no other frame in between."""

    def __init__(self, longest_list: int = LONGEST_HEADER_LIST) -> None:
        """Accept blocks of header lists of at most `longest_list` bytes."""
        self._longest_block = _BLOCK_PER_LIST_LENGTH * longest_list
        self._number = 0
        self._end = False
        self._dependency = 0
        #: Frame payloads of the incomplete block.
        self.pieces: list[bytes] = []
        self._size = 0

    def check_order(self, kind: int, number: int) -> None:
        """Raise Http2ConnectionError for a frame that must not come between the frames of a block."""
        if self.pieces and (kind != FrameType.CONTINUATION or number != self._number):
            raise Http2ConnectionError(
                ErrorCode.PROTOCOL_ERROR, "a header block is interrupted by another frame"
            )

    def add_headers(self, number: int, flags: int, payload: bytes) -> HeaderBlock | None:
        """Process a HEADERS frame; return the block, or None while it is incomplete. Raises Http2ConnectionError."""
        block = frames.strip_padding(payload, flags, priority=True)
        dependency = frames.read_dependency(payload, flags) if flags & frames.PRIORITY else 0
        end = bool(flags & frames.END_STREAM)
        if flags & frames.END_HEADERS:
            return HeaderBlock(number, block, end, dependency)
        self._number, self._end, self._dependency = number, end, dependency
        self.pieces, self._size = [block], len(block)
        return None

    def add_continuation(self, flags: int, payload: bytes) -> HeaderBlock | None:
        """Process a CONTINUATION frame; return the block, or None while it is incomplete.

        Raises Http2ConnectionError.
        """
        if not self.pieces:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without a header block")
        self.pieces.append(payload)
        self._size += len(payload)
        if (
            self._size > self._longest_block
            or len(self.pieces) > self._longest_block // _SHORTEST_AVERAGE_FRAME
        ):
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long")
        if not flags & frames.END_HEADERS:
            return None
        whole, self.pieces = b"".join(self.pieces), []
        return HeaderBlock(self._number, whole, self._end, self._dependency)


def encode_frames(number: int, block: bytes, max_frame_size: int, *, end: bool) -> bytes:
    """Return the frames of a header block, several if it is longer than the peer's maximum frame size."""
    flags = frames.END_STREAM if end else 0
    if len(block) <= max_frame_size:
        return frames.frame(_HEADERS, flags | frames.END_HEADERS, number, block)
    pieces = [block[at : at + max_frame_size] for at in range(0, len(block), max_frame_size)]
    out = [frames.frame(FrameType.HEADERS, flags, number, pieces[0])]
    out += [frames.frame(FrameType.CONTINUATION, 0, number, piece) for piece in pieces[1:-1]]
    out.append(frames.frame(FrameType.CONTINUATION, frames.END_HEADERS, number, pieces[-1]))
    return b"".join(out)
