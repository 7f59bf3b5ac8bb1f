"""Rules of RFC 9113 for the peer: a violation ends the connection, or only the stream."""

from __future__ import annotations

import pytest

from fleet.transport.http2 import frames
from fleet.transport.http2.fields import ZERO_TABLE_SIZE_UPDATE, HeaderFields, encode, plain
from fleet.transport.http2.frames import ErrorCode, FrameType, SettingId
from fleet.transport.http2.options import ConnectionOptions
from tests.fakes.http2_ends import (
    HEAD,
    REQUEST,
    RESPONSE,
    TRAILERS,
    Endpoint,
    code_of_goaway,
    data,
    headers,
    sent_resets,
)

SETTINGS_ACK = frames.frame(FrameType.SETTINGS, frames.ACK, 0)


def priority(number: int, depends_on: int) -> bytes:
    return frames.frame(FrameType.PRIORITY, 0, number, depends_on.to_bytes(4, "big") + b"\x0f")


def request(*extra_fields: tuple[bytes, bytes]) -> bytes:
    return encode((*REQUEST, *plain(*extra_fields)))


@pytest.mark.parametrize(
    ("peer_frames", "code"),
    [
        (frames.frame(FrameType.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.SETTINGS, frames.ACK, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.settings({SettingId.ENABLE_PUSH: 2}), ErrorCode.PROTOCOL_ERROR),
        (frames.settings({SettingId.MAX_FRAME_SIZE: 1 << 24}), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.PING, frames.ACK, 0, bytes(9)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(FrameType.GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.GOAWAY, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(FrameType.RST_STREAM, 0, 7, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(FrameType.RST_STREAM, 0, 0, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frames.rst_stream(9, ErrorCode.CANCEL), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.WINDOW_UPDATE, 0, 0, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.window_update(9, 1), ErrorCode.PROTOCOL_ERROR),
        (priority(0, 3), ErrorCode.PROTOCOL_ERROR),
        (priority(9, 9), ErrorCode.PROTOCOL_ERROR),
        (data(0, b"x"), ErrorCode.PROTOCOL_ERROR),
        (headers(0), ErrorCode.PROTOCOL_ERROR),
        (headers(8), ErrorCode.PROTOCOL_ERROR),
        (headers(5), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.DATA, frames.PADDED, 7, b"\6Test"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.DATA, frames.PADDED, 1, b"\6Test"), ErrorCode.PROTOCOL_ERROR),
        (
            frames.frame(FrameType.HEADERS, frames.PADDED | frames.END_HEADERS, 9, b"\6Test"),
            ErrorCode.PROTOCOL_ERROR,
        ),
        (headers(9, is_complete=False) + frames.frame(0x16, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (headers(9, is_complete=False) + priority(9, 7), ErrorCode.PROTOCOL_ERROR),
        (
            headers(9, is_complete=False) + frames.frame(FrameType.CONTINUATION, frames.END_HEADERS, 0),
            ErrorCode.PROTOCOL_ERROR,
        ),
        (
            headers(9) + frames.frame(FrameType.CONTINUATION, frames.END_HEADERS, 9, HEAD),
            ErrorCode.PROTOCOL_ERROR,
        ),
        (data(1, b"x"), ErrorCode.STREAM_CLOSED),
        (headers(1, end=True), ErrorCode.STREAM_CLOSED),
    ],
)
async def test_violations_that_end_the_connection(
    server: Endpoint, peer_frames: bytes, code: ErrorCode
) -> None:
    """Stream 7 is open, and stream 1 was ended by both sides."""
    server.receive(headers(1, end=True))
    server.recorders[0].stream.send_headers(RESPONSE, end=True)
    server.receive(headers(7))
    server.receive(peer_frames)

    assert code_of_goaway(server) is code
    assert server.connection.is_ended


@pytest.mark.parametrize(
    ("peer_frames", "code"),
    [
        (priority(7, 7), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.PRIORITY, 0, 7, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.window_update(7, 0), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(7, frames.LARGEST_WINDOW), ErrorCode.FLOW_CONTROL_ERROR),
        (headers(7), ErrorCode.PROTOCOL_ERROR),
        (headers(7, end=True), ErrorCode.PROTOCOL_ERROR),
        (headers(7, end=True) * 2, ErrorCode.PROTOCOL_ERROR),
        (data(7, b"x", end=True) + data(7, b"y"), ErrorCode.STREAM_CLOSED),
        (data(7, b"x", end=True) + headers(7, end=True, block=TRAILERS), ErrorCode.STREAM_CLOSED),
        (headers(7, end=True, block=encode(plain((b"X-Big", b"1")))), ErrorCode.PROTOCOL_ERROR),
    ],
)
async def test_violations_that_end_a_stream(server: Endpoint, peer_frames: bytes, code: ErrorCode) -> None:
    """The listener gets the code, and other streams continue."""
    server.receive(headers(5), headers(7))
    server.receive(peer_frames, data(5, b"on"))

    assert sent_resets(server) == [(7, code)]
    assert server.recorders[1].events[-1] is code
    assert server.recorders[0].events[-1] == (b"on", False)
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
async def test_malformed_request_starts_no_stream(server: Endpoint, block: bytes) -> None:
    """Its other frames are ignored, and the next request is accepted."""
    server.receive(headers(1, block=block), data(1, b"x"), headers(3))

    assert sent_resets(server) == [(1, ErrorCode.PROTOCOL_ERROR)]
    assert [recorder.stream.number for recorder in server.recorders] == [3]


async def test_request_that_depends_on_itself_is_refused(server: Endpoint) -> None:
    flags = frames.PRIORITY | frames.END_HEADERS
    server.receive(frames.frame(FrameType.HEADERS, flags, 1, b"\0\0\0\1\x0f" + HEAD), headers(3))
    server.receive(frames.frame(FrameType.HEADERS, flags, 5, b"\0\0\0\3\x0f" + HEAD))

    assert sent_resets(server) == [(1, ErrorCode.PROTOCOL_ERROR)]
    assert [recorder.stream.number for recorder in server.recorders] == [3, 5]


@pytest.mark.parametrize(
    ("body", "is_valid"),
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
async def test_body_must_match_its_content_length(server: Endpoint, body: bytes, is_valid: bool) -> None:
    """RFC 9113, section 8.1.1; padding does not count."""
    server.receive(headers(1, block=request((b"content-length", b"4"))), body)

    assert sent_resets(server) == ([] if is_valid else [(1, ErrorCode.PROTOCOL_ERROR)])


async def test_request_without_its_body_is_refused(server: Endpoint) -> None:
    """The headers end the stream, but have a content length."""
    server.receive(headers(1, end=True, block=request((b"content-length", b"4"))))

    assert sent_resets(server) == [(1, ErrorCode.PROTOCOL_ERROR)]
    assert server.recorders[0].events == [ErrorCode.PROTOCOL_ERROR]


@pytest.mark.parametrize(
    ("response", "expected_codes"),
    [
        (headers(1, block=RESPONSE) + headers(1, end=True, block=TRAILERS), []),
        (headers(1, block=TRAILERS), [ErrorCode.PROTOCOL_ERROR]),
        (headers(1, block=HEAD), [ErrorCode.PROTOCOL_ERROR]),
        (headers(1, block=RESPONSE) * 2, [ErrorCode.PROTOCOL_ERROR]),
        (headers(1, block=RESPONSE) + headers(1, block=RESPONSE, end=True), [ErrorCode.PROTOCOL_ERROR]),
        (headers(1, block=RESPONSE, end=True) + data(1, b"x"), [ErrorCode.STREAM_CLOSED]),
    ],
)
async def test_malformed_response_is_not_forwarded(
    client: Endpoint, response: bytes, expected_codes: list[ErrorCode]
) -> None:
    """A gateway checks its backends as strictly as its clients."""
    recorder = client.open()
    client.receive(response)

    assert [event for event in recorder.events if isinstance(event, ErrorCode)] == expected_codes
    assert [code for _, code in sent_resets(client)] == expected_codes
    assert not client.connection.is_ended


async def test_interim_response_is_ignored(client: Endpoint) -> None:
    """Status 103 may come before the response; with END_STREAM it is malformed."""
    first, second = client.open(), client.open()
    early_hints = encode(plain((b":status", b"103"), (b"link", b"</a>"), (b"content-length", b"9")))
    client.receive(headers(1, block=early_hints), headers(1, block=RESPONSE), data(1, b"x"))
    client.receive(headers(3, block=early_hints, end=True))

    assert first.events == [("headers", False), (b"x", False)]
    assert second.events == [ErrorCode.PROTOCOL_ERROR]


async def test_late_frames_of_a_backend_do_not_end_its_connection(client: Endpoint) -> None:
    """After our reset they are ignored; after the backend's own end they get a reset."""
    first, second = client.open(), client.open()
    first.stream.reset(ErrorCode.CANCEL)
    second.stream.send_data(b"", end=True)
    client.receive(headers(3, end=True, block=RESPONSE))
    client.transport.frames()
    client.receive(headers(1, block=RESPONSE), data(1, b"x"), frames.rst_stream(1, ErrorCode.CANCEL))
    assert sent_resets(client) == []

    client.receive(data(3, b"x"))
    assert sent_resets(client) == [(3, ErrorCode.STREAM_CLOSED)]
    assert not client.connection.is_ended


async def test_setting_that_overflows_a_window_ends_the_connection(server: Endpoint) -> None:
    """RFC 9113, section 6.9.2."""
    server.receive(headers(1), frames.window_update(1, frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW))
    server.receive(frames.settings({SettingId.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW}))
    assert not server.connection.is_ended

    server.receive(frames.settings({SettingId.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW + 1}))
    assert code_of_goaway(server) is ErrorCode.FLOW_CONTROL_ERROR


async def test_header_table_after_the_acknowledgement_ends_the_connection(server: Endpoint) -> None:
    """Before the acknowledgement of our settings the default size is allowed."""
    server.receive(
        headers(1, block=b"\x3f\xe1\x1f" + HEAD),
        SETTINGS_ACK,
        headers(3, block=ZERO_TABLE_SIZE_UPDATE + HEAD),
    )
    assert len(server.recorders) == 2

    server.receive(headers(5, block=b"\x21" + HEAD))
    assert code_of_goaway(server) is ErrorCode.COMPRESSION_ERROR


async def test_first_block_disables_the_header_table(client: Endpoint) -> None:
    """It does so once, as strict peers expect."""
    client.open()
    client.open()
    blocks = [payload for kind, _, _, payload in client.transport.frames() if kind == FrameType.HEADERS]

    assert blocks == [ZERO_TABLE_SIZE_UPDATE + HEAD, HEAD]


def long_list(size: int) -> HeaderFields:
    return plain(*((b"x-%d" % number, b"y" * 1000) for number in range(size // 1000)))


async def test_long_header_list_ends_its_stream(server: Endpoint) -> None:
    """As a request and as trailers; the connection continues, as there is no header table."""
    server.receive(SETTINGS_ACK, headers(1))
    too_long = long_list(64_000)  # over the limit with 32 bytes per field
    server.receive(
        headers(1, end=True, block=encode(too_long)),
        headers(3, block=encode((*REQUEST, *too_long))),
        headers(5),
    )

    assert sent_resets(server) == [(1, ErrorCode.ENHANCE_YOUR_CALM), (3, ErrorCode.ENHANCE_YOUR_CALM)]
    assert [recorder.stream.number for recorder in server.recorders] == [1, 5]
    assert server.recorders[0].events[-1] is ErrorCode.ENHANCE_YOUR_CALM


async def test_header_list_limit_is_an_option() -> None:
    """A gateway allows longer lists of its backends, and announces that in its settings."""
    client = Endpoint(
        server=False, options=ConnectionOptions(max_header_list_size=1024 * 1024, max_frame_size=1024 * 1024)
    )
    client.receive_settings()
    client.receive(SETTINGS_ACK)
    (settings,) = (payload for kind, _, _, payload in client.first_frames if kind == FrameType.SETTINGS)
    assert dict(frames.read_settings(settings))[SettingId.MAX_HEADER_LIST_SIZE] == 1024 * 1024
    recorder = client.open()
    client.receive(headers(1, end=True, block=RESPONSE + encode(long_list(900_000))))

    assert recorder.events == [("headers", True)]


async def test_pings_without_data_end_the_connection(server: Endpoint) -> None:
    """The reason is the one that gRPC clients know; pings after data do not count."""
    ping = frames.frame(FrameType.PING, 0, 0, bytes(8))
    server.receive(headers(1))
    server.recorders[0].stream.send_headers(RESPONSE)
    for _ in range(500):
        server.recorders[0].stream.send_data(b"x")
        server.receive(ping)
    assert not server.connection.is_ended

    for _ in range(500):
        server.receive(ping)
    assert server.end_reasons == ["too_many_pings"]


@pytest.mark.parametrize(
    "peer_frames",
    [
        frames.settings({}),
        priority(1, 0),
        data(1, b""),
        frames.frame(0x16, 0, 0, b"x"),
        frames.frame(FrameType.DATA, frames.PADDED, 1, b"\0"),
    ],
)
async def test_frames_without_effect_end_the_connection(server: Endpoint, peer_frames: bytes) -> None:
    """They cost the server work; no listener gets them."""
    server.receive(headers(1))
    for _ in range(500):
        server.receive(peer_frames)

    assert code_of_goaway(server) is ErrorCode.ENHANCE_YOUR_CALM
    assert server.recorders[0].events == [("headers", False), server.end_reasons[0]]


async def test_resets_that_the_peer_provokes_are_counted(server: Endpoint) -> None:
    """CVE-2025-8671: a flood of resets that the server sends."""
    for number in range(1, 4001, 2):
        server.receive(headers(number), frames.window_update(number, 0))

    assert server.end_reasons == ["too many streams were reset"]
