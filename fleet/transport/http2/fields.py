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

from fleet.transport.http2 import messages
from fleet.transport.http2.frames import Code, ConnectionBrokenError
from fleet.transport.http2.messages import Field, Shape

HeaderFields = tuple[Field, ...]

#: A whole list may be so long, bytes as RFC 9113 section 6.5.2 counts them.
MAX_LIST = 64 * 1024
#: What begins the first block of a connection: its encoder uses no table (RFC 7541 section 6.3). A peer that asked for
#: a smaller table than the default may wait for it.
NO_TABLE = b"\x20"
#: Blocks in memory, and the longest that is kept there.
_CACHE_SIZE, _LONGEST_CACHED = 1024, 2048

_STATIC = {
    (b":method", b"POST"): 3,
    (b":scheme", b"http"): 6,
    (b":scheme", b"https"): 7,
    (b":status", b"200"): 8,
}

_T = TypeVar("_T")


class HeaderListTooLongError(Exception):
    """A header list over the limit: its stream must end, and the connection goes on."""


def encode(fields: Iterable[Field]) -> bytes:
    """Write a block."""
    return b"".join(_encode_field(*field) for field in fields)


def plain(*pairs: tuple[bytes, bytes]) -> HeaderFields:
    """Fields of which nothing is secret."""
    return tuple((name, value, False) for name, value in pairs)


def _encode_field(name: bytes, value: bytes, secret: bool) -> bytes:
    index = _STATIC.get((name, value))
    if index is not None:
        return bytes([0x80 | index])
    prefix = b"\x10" if secret else b"\x00"
    return b"".join((prefix, _length(len(name)), name, _length(len(value)), value))


def _length(number: int) -> bytes:
    """Write an integer with a prefix of seven bits and no Huffman coding, RFC 7541 section 5.1."""
    if number < 127:
        return bytes([number])
    encoded = bytearray([127])
    number -= 127
    while number >= 128:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class BlockCache(Generic[_T]):
    """What was made of blocks, with their shapes; forgotten altogether when it is too much."""

    def __init__(self, make: Callable[[HeaderFields], _T]) -> None:
        """Make something of the fields of a block, by a function without side effects."""
        self._make = make
        self._entries: dict[bytes, tuple[_T, Shape]] = {}

    def get(self, block: bytes) -> tuple[_T, Shape] | None:
        """What was made of it before."""
        return self._entries.get(block)

    def add(self, block: bytes, fields: HeaderFields, *, keep: bool) -> tuple[_T, Shape]:
        """Make it."""
        entry = self._make(fields), messages.shape(fields)
        if keep and len(block) <= _LONGEST_CACHED:
            if len(self._entries) >= _CACHE_SIZE:
                self._entries.clear()
            self._entries[block] = entry
        return entry


class Decoder:
    """Reads the blocks of one connection, each in its turn."""

    def __init__(self, longest: int = MAX_LIST) -> None:
        """Allow the table that peers have until they know our settings; a header list has `longest` bytes at most."""
        self._decoder = hpack.Decoder(longest)
        self._longest = longest
        #: Whether a block's meaning depends on nothing but the block.
        self._pure = False

    def settings_acknowledged(self) -> None:
        """Allow no table from now on: the peer knows our settings.

        A peer that never used its table need not say that it shrinks. One that refers to it breaks the connection.
        """
        self._decoder.header_table_size = self._decoder.max_allowed_table_size = 0
        self._pure = True

    def read(self, block: bytes, cache: BlockCache[_T]) -> tuple[_T, Shape]:
        """Read a block. Raises ListTooLong, or ConnectionBroken: after that no other block can be read."""
        if self._pure:
            entry = cache.get(block)
            if entry is not None:
                return entry
        try:
            fields = tuple(_field(header) for header in self._decoder.decode(block, raw=True))
        except hpack.OversizedHeaderListError:
            sentence = f"sent a header list of more than {self._longest} bytes"
            if self._pure:
                raise HeaderListTooLongError(sentence) from None
            # The rest of the block, which is not read, could have changed the table.
            raise ConnectionBrokenError(Code.ENHANCE_YOUR_CALM, sentence) from None
        except hpack.HPACKError as error:
            raise ConnectionBrokenError(Code.COMPRESSION_ERROR, f"header fields cannot be read: {error}") from None
        # The block that shrinks the table may refer to it before: the ones after it cannot.
        keep, self._pure = self._pure, self._decoder.header_table_size == 0
        return cache.add(block, fields, keep=keep)


def _field(header: HeaderTuple) -> Field:
    return bytes(header[0]), bytes(header[1]), isinstance(header, NeverIndexedHeaderTuple)
