"""Header blocks, RFC 7541, without dynamic tables.

We ask peers for a table of size 0 and use none ourselves. A block then always has the same meaning, so the result of
decoding is cached: calls of one client to one method repeat the same block. That costs some two hundred bytes a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import hpack
from hpack.struct import HeaderTuple, NeverIndexedHeaderTuple

from fleet.transport.http2 import messages
from fleet.transport.http2.frames import ErrorCode, Http2ConnectionError
from fleet.transport.http2.messages import HeaderField, HeaderListValidity

HeaderFields = tuple[HeaderField, ...]

#: Maximum bytes of a header list, counted as in RFC 9113 section 6.5.2.
LONGEST_HEADER_LIST = 64 * 1024
#: Beginning of the first block of a connection: its encoder uses no table (RFC 7541 section 6.3). A peer that asked for
#: a smaller table than the default may expect it.
ZERO_TABLE_SIZE_UPDATE = b"\x20"
#: Maximum number of cached blocks, and maximum bytes of each.
_MOST_CACHED_BLOCKS, _LONGEST_CACHED_BLOCK = 1024, 2048

_STATIC_INDEXES = {
    (b":method", b"POST"): 3,
    (b":scheme", b"http"): 6,
    (b":scheme", b"https"): 7,
    (b":status", b"200"): 8,
}

#: Least integer that does not fit a prefix of seven bits, and the bytes of those that do.
_LONG = 127
_SHORT_LENGTHS = tuple(bytes([number]) for number in range(_LONG))

_T = TypeVar("_T")


class HeaderListTooLongError(Exception):
    """A header list over the limit: its stream must end, but the connection may continue."""


def encode(fields: Iterable[HeaderField]) -> bytes:
    """Return the block of header fields."""
    return b"".join(_encode_field(*field) for field in fields)


def plain(*pairs: tuple[bytes, bytes]) -> HeaderFields:
    """Return fields, none of them sensitive."""
    return tuple((name, value, False) for name, value in pairs)


def _encode_field(name: bytes, value: bytes, is_sensitive: bool) -> bytes:
    index = _STATIC_INDEXES.get((name, value))
    if index is not None:
        return bytes([0x80 | index])
    return encode_name(name, is_sensitive=is_sensitive) + encode_text(value)


def encode_name(name: bytes, *, is_sensitive: bool = False) -> bytes:
    """Return the beginning of a field without an index: `encode_text` of the value follows. RFC 7541 section 6.2."""
    return (b"\x10" if is_sensitive else b"\x00") + encode_text(name)


def encode_text(text: bytes) -> bytes:
    """Return a text with its length, and no Huffman coding: RFC 7541 section 5.2."""
    size = len(text)
    return (_SHORT_LENGTHS[size] if size < _LONG else _encode_length(size)) + text


def _encode_length(number: int) -> bytes:
    """Return an integer of at least 127 with a prefix of seven bits, RFC 7541 section 5.1."""
    encoded = bytearray([127])
    number -= 127
    while number >= 128:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class HeaderBlockCache(Generic[_T]):
    """Cache of the values made of blocks, with their validity; cleared completely when it is full."""

    def __init__(self, make: Callable[[HeaderFields], _T]) -> None:
        """Use `make`, a function without side effects, to make a value of the fields of a block."""
        self._make = make
        self._entries: dict[bytes, tuple[_T, HeaderListValidity]] = {}

    def get(self, block: bytes) -> tuple[_T, HeaderListValidity] | None:
        """Return the cached value of a block; None without one."""
        return self._entries.get(block)

    def add(self, block: bytes, fields: HeaderFields, *, keep: bool) -> tuple[_T, HeaderListValidity]:
        """Make the value of a block, and cache it if `keep`."""
        entry = self._make(fields), messages.validate_header_list(fields)
        if keep and len(block) <= _LONGEST_CACHED_BLOCK:
            if len(self._entries) >= _MOST_CACHED_BLOCKS:
                self._entries.clear()
            self._entries[block] = entry
        return entry


class HeaderBlockDecoder:
    """Decodes the blocks of one connection, in order."""

    def __init__(self, longest_list: int = LONGEST_HEADER_LIST) -> None:
        """Allow a dynamic table until the peer knows our settings; a header list has at most `longest_list` bytes."""
        self._decoder = hpack.Decoder(longest_list)
        self._longest_list = longest_list
        #: True once the meaning of a block depends on that block only.
        self._is_stateless = False

    def on_settings_ack(self) -> None:
        """Allow no dynamic table from now on: the peer knows our settings.

        A peer that never used its table need not announce the change. One that still uses it breaks the connection.
        """
        self._decoder.header_table_size = self._decoder.max_allowed_table_size = 0
        self._is_stateless = True

    def decode(self, block: bytes, cache: HeaderBlockCache[_T]) -> tuple[_T, HeaderListValidity]:
        """Return the value of a block.

        Raises HeaderListTooLongError, or Http2ConnectionError: then no other block can be decoded.
        """
        if self._is_stateless:
            entry = cache.get(block)
            if entry is not None:
                return entry
        try:
            fields = tuple(_to_field(header) for header in self._decoder.decode(block, raw=True))
        except hpack.OversizedHeaderListError:
            sentence = f"sent a header list longer than {self._longest_list} bytes"
            if self._is_stateless:
                raise HeaderListTooLongError(sentence) from None
            # The unread rest of the block could have changed the table.
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, sentence) from None
        except hpack.HPACKError as error:
            raise Http2ConnectionError(
                ErrorCode.COMPRESSION_ERROR, f"cannot decode header fields: {error}"
            ) from None
        # The block that shrinks the table may refer to it first; the blocks after it cannot.
        keep, self._is_stateless = self._is_stateless, self._decoder.header_table_size == 0
        return cache.add(block, fields, keep=keep)


def _to_field(header: HeaderTuple) -> HeaderField:
    return bytes(header[0]), bytes(header[1]), isinstance(header, NeverIndexedHeaderTuple)
