"""Header fields on the wire, RFC 7541, without dynamic tables.

We ask peers for a table of size 0 and use none ourselves. A block then means the same every time, so that what was once
decoded, or made of it, is looked up: calls of one client to one method have the same block again and again. It costs
some two hundred bytes a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import hpack
from hpack.struct import HeaderTuple, NeverIndexedHeaderTuple

from fleet.transport.http2.frames import Code, ConnectionBroken

#: A name, a value, and whether nobody on the way may keep it in a table (RFC 7541 section 7.1.3).
Field = tuple[bytes, bytes, bool]
Fields = tuple[Field, ...]

#: A whole list may be so long, bytes as RFC 9113 section 6.5.2 counts them.
MAX_LIST = 64 * 1024
#: Blocks in memory, and the longest that is kept there.
_KEPT, _KEPT_LENGTH = 1024, 2048

_STATIC = {
    (b":method", b"POST"): 3,
    (b":scheme", b"http"): 6,
    (b":scheme", b"https"): 7,
    (b":status", b"200"): 8,
}

_T = TypeVar("_T")


def encode(fields: Iterable[Field]) -> bytes:
    """Write a block."""
    return b"".join(_written(*field) for field in fields)


def plain(*pairs: tuple[bytes, bytes]) -> Fields:
    """Fields of which nothing is secret."""
    return tuple((name, value, False) for name, value in pairs)


def _written(name: bytes, value: bytes, secret: bool) -> bytes:
    index = _STATIC.get((name, value))
    if index is not None:
        return bytes([0x80 | index])
    prefix = b"\x10" if secret else b"\x00"
    return b"".join((prefix, _length(len(name)), name, _length(len(value)), value))


def _length(number: int) -> bytes:
    """Write an integer with a prefix of seven bits and no Huffman coding, RFC 7541 section 5.1."""
    if number < 127:
        return bytes([number])
    written = bytearray([127])
    number -= 127
    while number >= 128:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


class Known(Generic[_T]):
    """What was made of blocks; forgotten altogether when it is too much."""

    def __init__(self, make: Callable[[Fields], _T]) -> None:
        """Make something of the fields of a block, by a function without side effects."""
        self._make = make
        self._kept: dict[bytes, _T] = {}

    def get(self, block: bytes) -> _T | None:
        """What was made of it before."""
        return self._kept.get(block)

    def add(self, block: bytes, fields: Fields, *, keep: bool) -> _T:
        """Make it."""
        made = self._make(fields)
        if keep and len(block) <= _KEPT_LENGTH:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[block] = made
        return made


class Decoder:
    """Reads the blocks of one connection, each in its turn."""

    def __init__(self) -> None:
        """Allow the table that peers have until they know our settings; one that keeps it is read all the same."""
        self._decoder = hpack.Decoder(MAX_LIST)
        #: Whether a block's meaning depends on nothing but the block.
        self._pure = False

    def read(self, block: bytes, known: Known[_T]) -> _T:
        """Read a block. Raises ConnectionBroken: after that no other can be read."""
        if self._pure:
            found = known.get(block)
            if found is not None:
                return found
        try:
            fields = tuple(_field(one) for one in self._decoder.decode(block, raw=True))
        except hpack.OversizedHeaderListError:
            raise ConnectionBroken(Code.ENHANCE_YOUR_CALM, "the header list is too long") from None
        except hpack.HPACKError as error:
            raise ConnectionBroken(Code.COMPRESSION_ERROR, f"header fields cannot be read: {error}") from None
        # The block that shrinks the table may refer to it before: the ones after it cannot.
        keep, self._pure = self._pure, self._decoder.header_table_size == 0
        return known.add(block, fields, keep=keep)


def _field(one: HeaderTuple) -> Field:
    return bytes(one[0]), bytes(one[1]), isinstance(one, NeverIndexedHeaderTuple)
