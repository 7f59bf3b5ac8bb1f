"""Encoding of header fields, compared with the `hpack` package."""

from __future__ import annotations

from collections.abc import Callable

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.transport.http2.fields import (
    LONGEST_HEADER_LIST,
    ZERO_TABLE_SIZE_UPDATE,
    HeaderBlockCache,
    HeaderBlockDecoder,
    HeaderFields,
    HeaderListTooLongError,
    encode,
    plain,
)
from fleet.transport.http2.frames import ErrorCode, Http2ConnectionError


def identity(fields: HeaderFields) -> HeaderFields:
    return fields


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=300), st.booleans())))
def test_encoded_fields_are_read_by_hpack(fields: list[tuple[bytes, bytes, bool]]) -> None:
    """Fields of any length; sensitive ones stay sensitive."""
    decoded_fields = hpack.Decoder(max_header_list_size=1 << 24).decode(encode(fields), raw=True)

    assert [(bytes(field[0]), bytes(field[1]), not field.indexable) for field in decoded_fields] == fields


def test_common_fields_are_short() -> None:
    """The static table contains them."""
    assert (
        encode(plain((b":method", b"POST"), (b":scheme", b"http"), (b":status", b"200"))) == b"\x83\x86\x88"
    )


@pytest.fixture
def counted_factory() -> tuple[list[HeaderFields], Callable[[HeaderFields], HeaderFields]]:
    field_lists: list[HeaderFields] = []

    def record_fields(fields: HeaderFields) -> HeaderFields:
        field_lists.append(fields)
        return fields

    return field_lists, record_fields


def test_equal_blocks_are_decoded_once_without_a_table(
    counted_factory: tuple[list[HeaderFields], Callable[[HeaderFields], HeaderFields]],
) -> None:
    """Without a header table, equal bytes are equal fields."""
    field_lists, record_fields = counted_factory
    cache, decoder, encoder = HeaderBlockCache(record_fields), HeaderBlockDecoder(), hpack.Encoder()
    encoder.header_table_size = 0
    fields = [(b":path", b"/a.B/C"), (b"x", b"y")]

    blocks = [encoder.encode(fields) for _ in range(4)]
    decoded_fields = [decoder.decode(block, cache)[0] for block in blocks]

    assert decoded_fields == [plain(*fields)] * 4
    # The block that disables the table, and the first one after it.
    assert len(field_lists) == 2


def test_blocks_with_a_table_are_decoded_each_time(
    counted_factory: tuple[list[HeaderFields], Callable[[HeaderFields], HeaderFields]],
) -> None:
    """With a header table, equal bytes may be different fields."""
    field_lists, record_fields = counted_factory
    cache, decoder, encoder = HeaderBlockCache(record_fields), HeaderBlockDecoder(), hpack.Encoder()

    for value in (b"1", b"2", b"1", b"1"):
        assert decoder.decode(encoder.encode([(b"x", value)]), cache)[0] == plain((b"x", value))

    assert len(field_lists) == 4


def test_block_cache_is_bounded() -> None:
    cache, decoder, encoder = HeaderBlockCache(identity), HeaderBlockDecoder(), hpack.Encoder()
    encoder.header_table_size = 0

    for number in range(3000):
        decoder.decode(encoder.encode([(b"x", str(number).encode())]), cache)

    assert len(cache._entries) <= 1024


@pytest.mark.parametrize("block", [b"\xff\xff\xff\xff\xff\xff", b"\xc6", b"\x40\x05ab", b"\x80"])
def test_invalid_block_ends_the_connection(block: bytes) -> None:
    """The state of the header table would be lost."""
    with pytest.raises(Http2ConnectionError):
        HeaderBlockDecoder().decode(block, HeaderBlockCache(identity))


def test_long_list_with_a_table_ends_the_connection() -> None:
    with pytest.raises(Http2ConnectionError):
        HeaderBlockDecoder().decode(
            encode(plain((b"x", b"y" * LONGEST_HEADER_LIST))), HeaderBlockCache(identity)
        )


def test_long_list_without_a_table_is_skipped() -> None:
    """Later blocks are still decoded."""
    decoder, cache = HeaderBlockDecoder(), HeaderBlockCache(identity)
    decoder.on_settings_ack()
    with pytest.raises(HeaderListTooLongError, match="longer than 65536 bytes"):
        decoder.decode(encode(plain((b"x", b"y" * LONGEST_HEADER_LIST))), cache)

    assert decoder.decode(encode(plain((b"x", b"y"))), cache)[0] == plain((b"x", b"y"))


def test_list_limit_is_an_option() -> None:
    fields = plain((b"x", b"y" * LONGEST_HEADER_LIST))

    assert (
        HeaderBlockDecoder(2 * LONGEST_HEADER_LIST).decode(encode(fields), HeaderBlockCache(identity))[0]
        == fields
    )


def test_table_after_our_settings_are_acknowledged() -> None:
    """The peer may use no table, or say that it has none; other uses end the connection."""
    encoder, decoder, cache = hpack.Encoder(), HeaderBlockDecoder(), HeaderBlockCache(identity)
    first, second = (encoder.encode([(b"x", b"y")]) for _ in range(2))
    decoder.decode(first, cache)
    decoder.on_settings_ack()
    fields = plain((b"x", b"y"))
    assert decoder.decode(encode(fields), cache)[0] == fields
    assert decoder.decode(ZERO_TABLE_SIZE_UPDATE + encode(fields), cache)[0] == fields

    for block in (second, b"\x21" + encode(fields)):
        with pytest.raises(Http2ConnectionError) as caught:
            decoder.decode(block, cache)
        assert caught.value.code is ErrorCode.COMPRESSION_ERROR
