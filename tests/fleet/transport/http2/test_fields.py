"""Header fields on the wire, against the `hpack` package."""

from __future__ import annotations

from collections.abc import Callable

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.transport.http2.fields import (
    MAX_LIST,
    NO_TABLE,
    BlockCache,
    Decoder,
    HeaderFields,
    HeaderListTooLongError,
    encode,
    plain,
)
from fleet.transport.http2.frames import Code, ConnectionBrokenError


def same(fields: HeaderFields) -> HeaderFields:
    return fields


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=300), st.booleans())))
def test_what_we_write_others_read(fields: list[tuple[bytes, bytes, bool]]) -> None:
    """Every length; a secret one stays secret."""
    read = hpack.Decoder(max_header_list_size=1 << 24).decode(encode(fields), raw=True)

    assert [(bytes(one[0]), bytes(one[1]), not one.indexable) for one in read] == fields


def test_common_fields_are_short() -> None:
    """The static table knows them."""
    assert (
        encode(plain((b":method", b"POST"), (b":scheme", b"http"), (b":status", b"200"))) == b"\x83\x86\x88"
    )


@pytest.fixture
def counted() -> tuple[list[HeaderFields], Callable[[HeaderFields], HeaderFields]]:
    made: list[HeaderFields] = []

    def make(fields: HeaderFields) -> HeaderFields:
        made.append(fields)
        return fields

    return made, make


def test_same_block_is_read_once_without_a_table(
    counted: tuple[list[HeaderFields], Callable[[HeaderFields], HeaderFields]],
) -> None:
    """Once the peer gave up its table, the same bytes are the same fields."""
    made, make = counted
    known, decoder, encoder = BlockCache(make), Decoder(), hpack.Encoder()
    encoder.header_table_size = 0
    fields = [(b":path", b"/a.B/C"), (b"x", b"y")]

    blocks = [encoder.encode(fields) for _ in range(4)]
    read = [decoder.read(block, known)[0] for block in blocks]

    assert read == [plain(*fields)] * 4
    # The block that shrinks the table, the first one after it, and none since.
    assert len(made) == 2


def test_blocks_with_a_table_are_read_each_time(
    counted: tuple[list[HeaderFields], Callable[[HeaderFields], HeaderFields]],
) -> None:
    """A peer that keeps its table is read all the same: the same bytes may mean something else."""
    made, make = counted
    known, decoder, encoder = BlockCache(make), Decoder(), hpack.Encoder()

    for value in (b"1", b"2", b"1", b"1"):
        assert decoder.read(encoder.encode([(b"x", value)]), known)[0] == plain((b"x", value))

    assert len(made) == 4


def test_blocks_in_memory_are_bounded() -> None:
    """Strangers may send as many as they like."""
    known, decoder, encoder = BlockCache(same), Decoder(), hpack.Encoder()
    encoder.header_table_size = 0

    for number in range(3000):
        decoder.read(encoder.encode([(b"x", str(number).encode())]), known)

    assert len(known._entries) <= 1024


@pytest.mark.parametrize("block", [b"\xff\xff\xff\xff\xff\xff", b"\xc6", b"\x40\x05ab", b"\x80"])
def test_nonsense_breaks_the_connection(block: bytes) -> None:
    """The table's state would be lost."""
    with pytest.raises(ConnectionBrokenError):
        Decoder().read(block, BlockCache(same))


def test_list_that_is_too_long_breaks_the_connection() -> None:
    """A bomb."""
    with pytest.raises(ConnectionBrokenError):
        Decoder().read(encode(plain((b"x", b"y" * MAX_LIST))), BlockCache(same))


def test_list_that_is_too_long_is_passed_over() -> None:
    """Once no table can depend on it, the blocks after it are read."""
    decoder, known = Decoder(), BlockCache(same)
    decoder.settings_acknowledged()
    with pytest.raises(HeaderListTooLongError, match="longer than 65536 bytes"):
        decoder.read(encode(plain((b"x", b"y" * MAX_LIST))), known)

    assert decoder.read(encode(plain((b"x", b"y"))), known)[0] == plain((b"x", b"y"))


def test_limit_of_a_list() -> None:
    """It can be another one."""
    fields = plain((b"x", b"y" * MAX_LIST))

    assert Decoder(2 * MAX_LIST).read(encode(fields), BlockCache(same))[0] == fields


def test_table_after_our_settings_are_acknowledged() -> None:
    """A peer that did not use it may say nothing, or that it has none; every other use breaks the connection."""
    encoder, decoder, known = hpack.Encoder(), Decoder(), BlockCache(same)
    first, second = (encoder.encode([(b"x", b"y")]) for _ in range(2))
    decoder.read(first, known)
    decoder.settings_acknowledged()
    fields = plain((b"x", b"y"))
    assert decoder.read(encode(fields), known)[0] == fields
    assert decoder.read(NO_TABLE + encode(fields), known)[0] == fields

    for block in (second, b"\x21" + encode(fields)):
        with pytest.raises(ConnectionBrokenError) as caught:
            decoder.read(block, known)
        assert caught.value.code is Code.COMPRESSION_ERROR
