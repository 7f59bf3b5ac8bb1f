"""What a peer must not do, by the sections of RFC 9113: the connection ends, or the stream alone."""

from __future__ import annotations

import pytest

from fleet.transport.http2 import frames
from fleet.transport.http2.fields import NO_TABLE, HeaderFields, encode, plain
from fleet.transport.http2.frames import Code, Setting, Type
from fleet.transport.http2.options import ConnectionOptions
from tests.fakes.http2_ends import (
    HEAD,
    REQUEST,
    RESPONSE,
    TRAILERS,
    End,
    code_of_goaway,
    data,
    headers,
    resets,
)

ACKNOWLEDGED = frames.frame(Type.SETTINGS, frames.ACK, 0)


def priority(number: int, depends_on: int) -> bytes:
    return frames.frame(Type.PRIORITY, 0, number, depends_on.to_bytes(4, "big") + b"\x0f")


def request(*more: tuple[bytes, bytes]) -> bytes:
    return encode((*REQUEST, *plain(*more)))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frames.frame(Type.SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
        (frames.frame(Type.SETTINGS, frames.ACK, 0, bytes(6)), Code.FRAME_SIZE_ERROR),
        (frames.settings({Setting.ENABLE_PUSH: 2}), Code.PROTOCOL_ERROR),
        (frames.settings({Setting.MAX_FRAME_SIZE: 1 << 24}), Code.PROTOCOL_ERROR),
        (frames.frame(Type.PING, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
        (frames.frame(Type.PING, frames.ACK, 0, bytes(9)), Code.FRAME_SIZE_ERROR),
        (frames.frame(Type.GOAWAY, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
        (frames.frame(Type.GOAWAY, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
        (frames.frame(Type.RST_STREAM, 0, 7, bytes(5)), Code.FRAME_SIZE_ERROR),
        (frames.frame(Type.RST_STREAM, 0, 0, bytes(4)), Code.PROTOCOL_ERROR),
        (frames.rst_stream(9, Code.CANCEL), Code.PROTOCOL_ERROR),
        (frames.frame(Type.WINDOW_UPDATE, 0, 0, bytes(3)), Code.FRAME_SIZE_ERROR),
        (frames.window_update(9, 1), Code.PROTOCOL_ERROR),
        (priority(0, 3), Code.PROTOCOL_ERROR),
        (priority(9, 9), Code.PROTOCOL_ERROR),
        (data(0, b"x"), Code.PROTOCOL_ERROR),
        (headers(0), Code.PROTOCOL_ERROR),
        (headers(8), Code.PROTOCOL_ERROR),
        (headers(5), Code.PROTOCOL_ERROR),
        (frames.frame(Type.DATA, frames.PADDED, 7, b"\6Test"), Code.PROTOCOL_ERROR),
        (frames.frame(Type.DATA, frames.PADDED, 1, b"\6Test"), Code.PROTOCOL_ERROR),
        (frames.frame(Type.HEADERS, frames.PADDED | frames.END_HEADERS, 9, b"\6Test"), Code.PROTOCOL_ERROR),
        (headers(9, last=False) + frames.frame(0x16, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
        (headers(9, last=False) + priority(9, 7), Code.PROTOCOL_ERROR),
        (
            headers(9, last=False) + frames.frame(Type.CONTINUATION, frames.END_HEADERS, 0),
            Code.PROTOCOL_ERROR,
        ),
        (headers(9) + frames.frame(Type.CONTINUATION, frames.END_HEADERS, 9, HEAD), Code.PROTOCOL_ERROR),
        (data(1, b"x"), Code.STREAM_CLOSED),
        (headers(1, end=True), Code.STREAM_CLOSED),
    ],
)
async def test_what_ends_the_connection(server: End, sent: bytes, code: Code) -> None:
    """A server with stream 7 open, and stream 1 closed by the ends of both sides."""
    server.get(headers(1, end=True))
    server.heard[0].stream.send_headers(RESPONSE, end=True)
    server.get(headers(7))
    server.get(sent)

    assert code_of_goaway(server) is code
    assert server.connection.is_ended


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (priority(7, 7), Code.PROTOCOL_ERROR),
        (frames.frame(Type.PRIORITY, 0, 7, bytes(4)), Code.FRAME_SIZE_ERROR),
        (frames.window_update(7, 0), Code.PROTOCOL_ERROR),
        (frames.window_update(7, frames.LARGEST_WINDOW), Code.FLOW_CONTROL_ERROR),
        (headers(7), Code.PROTOCOL_ERROR),
        (headers(7, end=True), Code.PROTOCOL_ERROR),
        (headers(7, end=True) * 2, Code.PROTOCOL_ERROR),
        (data(7, b"x", end=True) + data(7, b"y"), Code.STREAM_CLOSED),
        (data(7, b"x", end=True) + headers(7, end=True, block=TRAILERS), Code.STREAM_CLOSED),
        (headers(7, end=True, block=encode(plain((b"X-Big", b"1")))), Code.PROTOCOL_ERROR),
    ],
)
async def test_what_ends_a_stream(server: End, sent: bytes, code: Code) -> None:
    """The listener is told, and other streams go on."""
    server.get(headers(5), headers(7))
    server.get(sent, data(5, b"on"))

    assert resets(server) == [(7, code)]
    assert server.heard[1].seen[-1] is code
    assert server.heard[0].seen[-1] == (b"on", False)
    assert not server.connection.is_ended


@pytest.mark.parametrize(
    "block",
    [
        encode(plain((b":method", b"POST"), (b":scheme", b"http"))),
        encode(plain((b":method", b"POST"), (b":scheme", b"http"), (b":path", b""))),
        request((b":path", b"/")),
        request((b"connection", b"close")),
        request((b"X-Big", b"1")),
        request((b"te", b"gzip")),
        RESPONSE,
        TRAILERS,
    ],
)
async def test_malformed_request_is_never_begun(server: End, block: bytes) -> None:
    """Nobody is told of it, what follows of it is passed over, and the next one is well."""
    server.get(headers(1, block=block), data(1, b"x"), headers(3))

    assert resets(server) == [(1, Code.PROTOCOL_ERROR)]
    assert [heard.stream.number for heard in server.heard] == [3]


async def test_request_that_depends_on_itself(server: End) -> None:
    """The first frame of a stream is its last."""
    flags = frames.PRIORITY | frames.END_HEADERS
    server.get(frames.frame(Type.HEADERS, flags, 1, b"\0\0\0\1\x0f" + HEAD), headers(3))
    server.get(frames.frame(Type.HEADERS, flags, 5, b"\0\0\0\3\x0f" + HEAD))

    assert resets(server) == [(1, Code.PROTOCOL_ERROR)]
    assert [heard.stream.number for heard in server.heard] == [3, 5]


@pytest.mark.parametrize(
    ("body", "right"),
    [
        (data(1, b"ab") + data(1, b"cd", end=True), True),
        (data(1, b"abcd") + data(1, b"", end=True), True),
        (data(1, b"abcd") + headers(1, end=True, block=TRAILERS), True),
        (data(1, b"abcde"), False),
        (data(1, b"abc") + data(1, b"de", end=True), False),
        (data(1, b"abc", end=True), False),
        (data(1, b"abc") + headers(1, end=True, block=TRAILERS), False),
        (headers(1, end=True, block=TRAILERS), False),
    ],
)
async def test_body_has_its_content_length(server: End, body: bytes, right: bool) -> None:
    """RFC 9113 section 8.1.1; padding does not count."""
    server.get(headers(1, block=request((b"content-length", b"4"))), body)

    assert resets(server) == ([] if right else [(1, Code.PROTOCOL_ERROR)])


async def test_request_without_the_body_of_its_length(server: End) -> None:
    """The head is the end."""
    server.get(headers(1, end=True, block=request((b"content-length", b"4"))))

    assert resets(server) == [(1, Code.PROTOCOL_ERROR)]
    assert server.heard[0].seen == [Code.PROTOCOL_ERROR]


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (headers(1, block=RESPONSE) + headers(1, end=True, block=TRAILERS), []),
        (headers(1, block=TRAILERS), [Code.PROTOCOL_ERROR]),
        (headers(1, block=HEAD), [Code.PROTOCOL_ERROR]),
        (headers(1, block=RESPONSE) * 2, [Code.PROTOCOL_ERROR]),
        (headers(1, block=RESPONSE) + headers(1, block=RESPONSE, end=True), [Code.PROTOCOL_ERROR]),
        (headers(1, block=RESPONSE, end=True) + data(1, b"x"), [Code.STREAM_CLOSED]),
    ],
)
async def test_malformed_response_is_not_passed_on(client: End, answer: bytes, seen: list[Code]) -> None:
    """A gateway's backends are read as strictly as its callers."""
    heard = client.open()
    client.get(answer)

    assert [one for one in heard.seen if isinstance(one, Code)] == seen
    assert [code for _, code in resets(client)] == seen
    assert not client.connection.is_ended


async def test_interim_response_is_passed_over(client: End) -> None:
    """103 comes before the head; as an end it is malformed."""
    first, second = client.open(), client.open()
    early = encode(plain((b":status", b"103"), (b"link", b"</a>"), (b"content-length", b"9")))
    client.get(headers(1, block=early), headers(1, block=RESPONSE), data(1, b"x"))
    client.get(headers(3, block=early, end=True))

    assert first.seen == [("headers", False), (b"x", False)]
    assert second.seen == [Code.PROTOCOL_ERROR]


async def test_late_frames_of_a_backend_never_end_its_connection(client: End) -> None:
    """After our reset they are passed over; after its own end they are answered."""
    first, second = client.open(), client.open()
    first.stream.reset(Code.CANCEL)
    second.stream.send_data(b"", end=True)
    client.get(headers(3, end=True, block=RESPONSE))
    client.wire.frames()
    client.get(headers(1, block=RESPONSE), data(1, b"x"), frames.rst_stream(1, Code.CANCEL))
    assert resets(client) == []

    client.get(data(3, b"x"))
    assert resets(client) == [(3, Code.STREAM_CLOSED)]
    assert not client.connection.is_ended


async def test_setting_that_makes_a_window_too_large(server: End) -> None:
    """RFC 9113 section 6.9.2."""
    server.get(headers(1), frames.window_update(1, frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW))
    server.get(frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW}))
    assert not server.connection.is_ended

    server.get(frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW + 1}))
    assert code_of_goaway(server) is Code.FLOW_CONTROL_ERROR


async def test_table_that_grows_again_breaks_the_connection(server: End) -> None:
    """We allow none once our settings are acknowledged; before that it may have the size of the standard."""
    server.get(headers(1, block=b"\x3f\xe1\x1f" + HEAD), ACKNOWLEDGED, headers(3, block=NO_TABLE + HEAD))
    assert len(server.heard) == 2

    server.get(headers(5, block=b"\x21" + HEAD))
    assert code_of_goaway(server) is Code.COMPRESSION_ERROR


async def test_first_block_says_that_we_use_no_table(client: End) -> None:
    """Once: a strict peer that allows none waits for it."""
    client.open()
    client.open()
    blocks = [payload for kind, _, _, payload in client.wire.frames() if kind == Type.HEADERS]

    assert blocks == [NO_TABLE + HEAD, HEAD]


def long_list(size: int) -> HeaderFields:
    return plain(*((b"x-%d" % number, b"y" * 1000) for number in range(size // 1000)))


async def test_long_header_list_ends_its_stream(server: End) -> None:
    """Of a new stream, and as trailers; its connection goes on, for no table depends on it."""
    server.get(ACKNOWLEDGED, headers(1))
    too_long = long_list(64_000)  # with 32 bytes a field it is more than is allowed
    server.get(
        headers(1, end=True, block=encode(too_long)),
        headers(3, block=encode((*REQUEST, *too_long))),
        headers(5),
    )

    assert resets(server) == [(1, Code.ENHANCE_YOUR_CALM), (3, Code.ENHANCE_YOUR_CALM)]
    assert [heard.stream.number for heard in server.heard] == [1, 5]
    assert server.heard[0].seen[-1] is Code.ENHANCE_YOUR_CALM


async def test_longer_header_lists_may_be_allowed() -> None:
    """Of backends; it is said in the settings."""
    client = End(server=False, options=ConnectionOptions(header_list=1024 * 1024, frame=1024 * 1024))
    client.settle()
    client.get(ACKNOWLEDGED)
    (settings,) = (payload for kind, _, _, payload in client.greeting if kind == Type.SETTINGS)
    assert dict(frames.read_settings(settings))[Setting.MAX_HEADER_LIST_SIZE] == 1024 * 1024
    heard = client.open()
    client.get(headers(1, end=True, block=RESPONSE + encode(long_list(900_000))))

    assert heard.seen == [("headers", True)]


async def test_pings_without_data_end_the_connection(server: End) -> None:
    """With the words that gRPC clients know; pings after data are free."""
    ping = frames.frame(Type.PING, 0, 0, bytes(8))
    server.get(headers(1))
    server.heard[0].stream.send_headers(RESPONSE)
    for _ in range(500):
        server.heard[0].stream.send_data(b"x")
        server.get(ping)
    assert not server.connection.is_ended

    for _ in range(500):
        server.get(ping)
    assert server.ends == ["too_many_pings"]


@pytest.mark.parametrize(
    "sent",
    [
        frames.settings({}),
        priority(1, 0),
        data(1, b""),
        frames.frame(0x16, 0, 0, b"x"),
        frames.frame(Type.DATA, frames.PADDED, 1, b"\0"),
    ],
)
async def test_frames_that_move_nothing_end_the_connection(server: End, sent: bytes) -> None:
    """They cost us work, and the caller nothing; no listener is told of them."""
    server.get(headers(1))
    for _ in range(500):
        server.get(sent)

    assert code_of_goaway(server) is Code.ENHANCE_YOUR_CALM
    assert server.heard[0].seen == [("headers", False), server.ends[0]]


async def test_streams_that_a_caller_has_us_reset_are_counted(server: End) -> None:
    """CVE-2025-8671: a flood of resets in which the server sends them."""
    for number in range(1, 4001, 2):
        server.get(headers(number), frames.window_update(number, 0))

    assert server.ends == ["too many streams were reset"]
