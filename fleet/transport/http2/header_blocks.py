"""Header blocks in pieces: HEADERS and the CONTINUATION frames after it, RFC 9113 section 4.3."""

from __future__ import annotations

from typing import NamedTuple

from fleet.transport.http2 import frames
from fleet.transport.http2.fields import MAX_LIST
from fleet.transport.http2.frames import Code, ConnectionBrokenError, Type

#: A header block in pieces may be so much longer than a header list; after that somebody floods us (CVE-2024-27316).
_LONGER = 2
#: The shortest piece on average, bytes: pieces of nothing are a flood as well.
_SHORTEST = 64


class Block(NamedTuple):
    """A whole one."""

    number: int
    block: bytes
    #: Its stream ends with it, as the flags of HEADERS said.
    end: bool
    #: The stream it depends on, as the priority in HEADERS said; 0: none.
    dependency: int = 0


class HeaderBlocks:
    """Of one connection: at most one is under way, and nothing may come between its pieces."""

    def __init__(self, longest_list: int = MAX_LIST) -> None:
        """Take blocks of header lists of at most so many bytes."""
        self._longest = _LONGER * longest_list
        self._number = 0
        self._end = False
        self._dependency = 0
        #: Pieces of the block that is under way.
        self.pieces: list[bytes] = []
        self._size = 0

    def check_order(self, kind: int, number: int) -> None:
        """Refuse a frame that may not come now. Raises ConnectionBroken."""
        if self.pieces and (kind != Type.CONTINUATION or number != self._number):
            raise ConnectionBrokenError(Code.PROTOCOL_ERROR, "a header block is interrupted")

    def add_headers(self, number: int, flags: int, payload: bytes) -> Block | None:
        """Take a HEADERS frame; None: there is more to come. Raises ConnectionBroken."""
        block = frames.strip_padding(payload, flags, priority=True)
        dependency = frames.dependency(payload, flags) if flags & frames.PRIORITY else 0
        end = bool(flags & frames.END_STREAM)
        if flags & frames.END_HEADERS:
            return Block(number, block, end, dependency)
        self._number, self._end, self._dependency = number, end, dependency
        self.pieces, self._size = [block], len(block)
        return None

    def add_continuation(self, flags: int, payload: bytes) -> Block | None:
        """Take a CONTINUATION frame; None: there is more to come. Raises ConnectionBroken."""
        if not self.pieces:
            raise ConnectionBrokenError(Code.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self.pieces.append(payload)
        self._size += len(payload)
        if self._size > self._longest or len(self.pieces) > self._longest // _SHORTEST:
            raise ConnectionBrokenError(Code.ENHANCE_YOUR_CALM, "a header block is too long")
        if not flags & frames.END_HEADERS:
            return None
        whole, self.pieces = b"".join(self.pieces), []
        return Block(self._number, whole, self._end, self._dependency)


def encode_frames(number: int, block: bytes, longest: int, *, end: bool) -> bytes:
    """Write a list of fields, in pieces if it is too long for a frame of the peer."""
    flags = frames.END_STREAM if end else 0
    if len(block) <= longest:
        return frames.frame(Type.HEADERS, flags | frames.END_HEADERS, number, block)
    pieces = [block[at : at + longest] for at in range(0, len(block), longest)]
    out = [frames.frame(Type.HEADERS, flags, number, pieces[0])]
    out += [frames.frame(Type.CONTINUATION, 0, number, piece) for piece in pieces[1:-1]]
    out.append(frames.frame(Type.CONTINUATION, frames.END_HEADERS, number, pieces[-1]))
    return b"".join(out)
