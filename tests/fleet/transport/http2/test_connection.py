"""Connections and streams: both ends are ours, or one end is bytes of the test."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.transport.http2 import frames
from fleet.transport.http2.fields import encode, plain
from fleet.transport.http2.frames import Code, Setting, Type
from fleet.transport.http2.options import ConnectionOptions
from tests.fakes.http2_ends import HEAD, RESPONSE, TRAILERS, End, code_of_goaway, data, headers
from tests.fakes.waiting import eventually


async def test_call_and_answer(server: End) -> None:
    """Head, data and end in; head, data and trailers out; then the stream is forgotten."""
    server.get(headers(1), data(1, b"ab"), data(1, b"c", end=True))
    (heard,) = server.heard
    heard.stream.send_headers(RESPONSE)
    heard.stream.send_data(b"d")
    heard.stream.send_headers(TRAILERS, end=True)

    assert heard.seen == [("headers", False), (b"ab", False), (b"c", True)]
    kinds = [(kind, flags) for kind, flags, _, _ in server.wire.frames()]
    assert kinds == [
        (Type.HEADERS, frames.END_HEADERS),
        (Type.DATA, 0),
        (Type.HEADERS, frames.END_HEADERS | frames.END_STREAM),
    ]
    assert server.connection.streams == 0


async def test_bytes_may_come_in_any_pieces(server: End) -> None:
    """One at a time."""
    for one in headers(1) + data(1, b"abc", end=True):
        server.get(bytes([one]))

    assert server.heard[0].seen == [("headers", False), (b"abc", True)]


async def test_headers_in_pieces(server: End) -> None:
    """CONTINUATION; something between its pieces breaks the connection."""
    server.get(headers(1, block=HEAD[:2], last=False))
    server.get(frames.frame(Type.CONTINUATION, frames.END_HEADERS, 1, HEAD[2:]))
    assert len(server.heard) == 1

    server.get(headers(3, block=HEAD[:2], last=False), data(1, b"x"))
    assert code_of_goaway(server) is Code.PROTOCOL_ERROR
    assert server.heard[0].seen[-1] == "a header block is interrupted by another frame"


async def test_long_headers_go_in_pieces(client: End) -> None:
    """No frame is longer than the peer's limit."""
    client.connection.open(encode(plain(*((b"x", bytes(1000)) for _ in range(40)))))

    lengths = [(kind, len(payload)) for kind, _, _, payload in client.wire.frames()]
    assert [kind for kind, _ in lengths] == [Type.HEADERS, Type.CONTINUATION, Type.CONTINUATION]
    assert max(length for _, length in lengths) == frames.DEFAULT_FRAME


async def test_windows_hold_data_back(client: End) -> None:
    """Not more than the stream's window, nor the connection's; trailers come after the data."""
    client.get(frames.settings({Setting.INITIAL_WINDOW_SIZE: 10}))
    heard = client.open()
    client.wire.frames()
    heard.stream.send_data(b"x" * 25, end=True)
    assert [len(payload) for *_, payload in client.wire.frames()] == [10]

    client.get(frames.window_update(1, 10))
    assert [len(payload) for *_, payload in client.wire.frames()] == [10]
    client.get(frames.settings({Setting.INITIAL_WINDOW_SIZE: 15}), frames.window_update(0, 1))
    sent = [(kind, flags) for kind, flags, _, payload in client.wire.frames() if kind == Type.DATA]

    assert sent == [(Type.DATA, frames.END_STREAM)]


async def test_slow_peer_holds_data_back(client: End) -> None:
    """While the transport is full nothing is added to it."""
    heard = client.open()
    client.wire.frames()
    client.connection.pause_writing()
    heard.stream.send_data(b"abc")
    heard.stream.send_headers(TRAILERS, end=True)
    assert client.wire.frames() == []

    client.connection.resume_writing()
    assert [kind for kind, *_ in client.wire.frames()] == [Type.DATA, Type.HEADERS]


async def test_reader_that_passes_nothing_on_stops_the_peer(server: End) -> None:
    """The stream's window is opened only by `consumed`, and by whoever sends those bytes on."""
    window = server.connection.stream_window
    server.get(headers(1), *(data(1, bytes(16_384)) for _ in range(window // 16_384)))
    (heard,) = server.heard
    assert [frame for frame in server.wire.frames() if frame[2] == 1] == []

    heard.stream.release_window(window // 2)
    assert [(kind, number) for kind, _, number, _ in server.wire.frames()] == [(Type.WINDOW_UPDATE, 1)]
    server.get(data(1, bytes(window // 2 // 2)), data(1, bytes(window // 2 // 2)), data(1, b"x"))
    assert heard.seen[-1] is Code.FLOW_CONTROL_ERROR
    assert (Type.RST_STREAM, 1) in [(kind, number) for kind, _, number, _ in server.wire.frames()]


async def test_credit_goes_to_where_bytes_came_from(server: End, client: End) -> None:
    """A gateway's two streams: what one sends on, the other may read anew."""
    window = server.connection.stream_window
    client.settle(INITIAL_WINDOW_SIZE=window)
    client.get(frames.window_update(0, window))
    server.get(headers(1))
    out = client.open().stream
    out.credit_to(server.heard[0].stream)
    server.get(*(data(1, bytes(16_384)) for _ in range(window // 2 // 16_384)))
    server.wire.frames()

    out.send_data(bytes(16_384) * (window // 2 // 16_384))

    assert [kind for kind, *_ in server.wire.frames()] == [Type.WINDOW_UPDATE]


async def test_reset_both_ways(server: End) -> None:
    """The peer's is told; ours is sent; what was on its way is passed over."""
    server.get(headers(1), headers(3), frames.rst_stream(1, Code.CANCEL))
    assert server.heard[0].seen[-1] is Code.CANCEL

    server.heard[1].stream.reset(Code.INTERNAL_ERROR)
    server.get(data(3, b"late"), frames.window_update(3, 1), frames.rst_stream(3, Code.CANCEL), headers(3))
    assert [kind for kind, *_ in server.wire.frames()] == [Type.RST_STREAM]
    assert server.heard[1].seen == [("headers", False)]
    assert not server.connection.is_ended


async def test_too_many_streams_are_refused() -> None:
    """Those there are go on."""
    server = End(server=True, options=ConnectionOptions(streams=1))
    server.settle()
    server.get(headers(1), headers(3))

    assert len(server.heard) == 1
    assert [(kind, number, payload) for kind, _, number, payload in server.wire.frames()] == [
        (Type.RST_STREAM, 3, b"\0\0\0\7")
    ]


async def test_flood_of_resets_ends_the_connection(server: End) -> None:
    """CVE-2023-44487."""
    for number in range(1, 4001, 2):
        server.get(headers(number), frames.rst_stream(number, Code.CANCEL))

    assert server.connection.is_ended
    assert code_of_goaway(server) is Code.ENHANCE_YOUR_CALM


async def test_resets_after_the_deadline_of_a_call_are_no_flood(server: End) -> None:
    """Whoever is in a hurry resets every call at its deadline, before the answer or behind it."""
    for number in range(1, 4801, 4):
        server.get(headers(number))
        server.heard[-1].stream.deadline_at = 0.0
        server.get(frames.rst_stream(number, Code.CANCEL), headers(number + 2, end=True))
        server.heard[-1].stream.send_headers(b"", end=True)
        server.get(frames.rst_stream(number + 2, Code.CANCEL))

    assert not server.connection.is_ended


async def test_flood_of_resets_of_one_ended_stream_ends_the_connection(server: End) -> None:
    """No stream is begun for them."""
    server.get(headers(1, end=True))
    server.heard[0].stream.send_headers(b"", end=True)
    for _ in range(2000):
        server.get(frames.rst_stream(1, Code.CANCEL))

    assert code_of_goaway(server) is Code.ENHANCE_YOUR_CALM


async def test_flood_of_continuations_ends_the_connection(server: End) -> None:
    """CVE-2024-27316, with long pieces or empty ones."""
    server.get(headers(1, block=b"", last=False))
    for _ in range(3000):
        server.get(frames.frame(Type.CONTINUATION, 0, 1, b""))

    assert code_of_goaway(server) is Code.ENHANCE_YOUR_CALM


async def test_pings_are_answered_until_nobody_reads(server: End) -> None:
    """A peer that asks and does not read is cut off."""
    ping = frames.frame(Type.PING, 0, 0, b"12345678")
    server.get(ping)
    assert server.wire.frames() == [(Type.PING, frames.ACK, 0, b"12345678")]

    server.wire.unsent = 1 << 30
    server.get(ping)
    assert server.connection.is_ended


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (data(9, b"x"), Code.PROTOCOL_ERROR),
        (headers(2), Code.PROTOCOL_ERROR),
        (frames.frame(Type.PUSH_PROMISE, 0, 1, b""), Code.PROTOCOL_ERROR),
        (frames.frame(Type.CONTINUATION, 0, 1, b""), Code.PROTOCOL_ERROR),
        (frames.frame(Type.PING, 0, 0, b"short"), Code.FRAME_SIZE_ERROR),
        (frames.window_update(0, 0), Code.PROTOCOL_ERROR),
        (frames.window_update(0, frames.LARGEST_WINDOW), Code.FLOW_CONTROL_ERROR),
        (frames.settings({Setting.MAX_FRAME_SIZE: 1}), Code.PROTOCOL_ERROR),
        (frames.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}), Code.FLOW_CONTROL_ERROR),
        (frames.frame(Type.SETTINGS, 0, 0, b"abc"), Code.FRAME_SIZE_ERROR),
        (b"\xff\xff\xff\0\0\0\0\0\0", Code.FRAME_SIZE_ERROR),
        (headers(1, block=b"\xff\xff\xff\xff\xff"), Code.COMPRESSION_ERROR),
    ],
)
async def test_broken_protocol_ends_the_connection(server: End, sent: bytes, code: Code) -> None:
    """With GOAWAY and the reason; all streams are told."""
    server.get(headers(7))
    server.get(sent)

    assert code_of_goaway(server) is code
    assert server.wire.closed
    assert len(server.ends) == 1
    assert server.heard[0].seen[-1] == server.ends[0]
    server.get(headers(9))
    assert len(server.heard) == 1


async def test_unknown_frames_and_settings_are_passed_over(server: End) -> None:
    """RFC 9113, section 5.5."""
    server.get(
        frames.frame(0xF0, 0xFF, 9, b"what"),
        frames.frame(Type.SETTINGS, 0, 0, b"\0\x63\0\0\0\1"),
        frames.frame(Type.PRIORITY, 0, 1, bytes(5)),
    )

    assert not server.connection.is_ended


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"])
async def test_caller_that_speaks_something_else(sent: bytes) -> None:
    """It is closed."""
    end = End(server=True)
    end.connection._preface = True
    end.get(sent)

    assert end.ends == ["the peer does not speak HTTP/2"]


async def test_goaway_of_a_server(client: End) -> None:
    """Calls it did not take may go elsewhere; the others go on; then the connection ends."""
    first, second = client.open(), client.open()
    client.get(frames.goaway(1, Code.NO_ERROR, "max_age"))

    assert second.seen == [Code.REFUSED_STREAM]
    assert first.seen == []
    assert not client.connection.can_open
    client.get(headers(1, end=True, block=RESPONSE))
    first.stream.send_data(b"", end=True)
    assert client.ends == ["the peer sent GOAWAY: max_age"]


async def test_limit_of_a_servers_streams(client: End) -> None:
    """Not one more."""
    client.get(frames.settings({Setting.MAX_CONCURRENT_STREAMS: 1}))
    assert client.connection.can_open
    heard = client.open()
    assert not client.connection.can_open
    heard.stream.reset(Code.CANCEL)
    assert client.connection.can_open


async def test_retired_server_ends_after_its_last_call(server: End) -> None:
    """What a caller began before it knew is still served."""
    server.get(headers(1, end=True))
    server.connection.retire()
    server.get(headers(3, end=True))
    for heard in server.heard:
        assert not server.connection.is_ended
        heard.stream.send_headers(TRAILERS, end=True)

    assert server.connection.is_ended


async def test_loss_is_told_to_every_stream(client: End) -> None:
    """With why."""
    heard = client.open()
    client.connection.connection_lost(ConnectionResetError("reset by peer"))

    assert heard.seen == ["reset by peer"]
    assert client.ends == ["reset by peer"]


async def test_frozen_peer_is_noticed() -> None:
    """Silence, a ping, silence."""
    client = End(server=False, options=ConnectionOptions(ping_after=0.02, answer_within=0.02))
    client.settle()
    heard = client.open()

    await eventually(lambda: client.connection.is_ended)
    assert heard.seen == ["no answer to a ping within 0.02 s"]


async def test_peer_that_answers_pings_stays() -> None:
    """However long a call takes."""
    client = End(server=False, options=ConnectionOptions(ping_after=0.0, answer_within=3600.0))
    client.settle()
    client.open()
    for _ in range(3):
        client.wire.frames()
        client.connection._liveness._check()
        (ping,) = [payload for kind, _, _, payload in client.wire.frames() if kind == Type.PING]
        client.get(frames.frame(Type.PING, frames.ACK, 0, ping))

    assert not client.connection.is_ended
    client.connection.close()


_FRAMES = st.builds(
    frames.frame,
    st.integers(0, 12),
    st.integers(0, 255),
    st.one_of(st.integers(0, 9), st.integers(0, (1 << 31) - 1)),
    st.one_of(st.binary(max_size=40), st.just(HEAD)),
)


@given(st.lists(_FRAMES, max_size=30), st.booleans(), st.binary(max_size=20))
def test_no_bytes_break_more_than_their_connection(sent: list[bytes], server: bool, tail: bytes) -> None:
    """Whatever strangers send, the connection goes on or ends with one reason, and every stream is told."""

    async def feed() -> None:
        end = End(server=server)
        end.settle()
        if not server:
            end.open()
        end.get(*sent, tail)

        assert len(end.ends) == end.connection.is_ended
        if end.connection.is_ended:
            assert end.connection.streams == 0
        end.connection.close()

    asyncio.run(feed())
