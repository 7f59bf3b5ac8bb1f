"""HTTP/2 connections and streams: both ends are ours, or one end is bytes of the test."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.transport.http2 import frames
from fleet.transport.http2.fields import encode, plain
from fleet.transport.http2.frames import ErrorCode, FrameType, SettingId
from fleet.transport.http2.options import ConnectionOptions
from tests.fakes.http2_ends import HEAD, RESPONSE, TRAILERS, Endpoint, code_of_goaway, data, headers
from tests.fakes.waiting import eventually


async def test_call_and_response(server: Endpoint) -> None:
    """Head, data and end arrive; head, data and trailers are sent; then the stream is removed."""
    server.receive(headers(1), data(1, b"ab"), data(1, b"c", end=True))
    (recorder,) = server.recorders
    recorder.stream.send_headers(RESPONSE)
    recorder.stream.send_data(b"d")
    recorder.stream.send_headers(TRAILERS, end=True)

    assert recorder.events == [("headers", False), (b"ab", False), (b"c", True)]
    kinds = [(kind, flags) for kind, flags, _, _ in server.transport.frames()]
    assert kinds == [
        (FrameType.HEADERS, frames.END_HEADERS),
        (FrameType.DATA, 0),
        (FrameType.HEADERS, frames.END_HEADERS | frames.END_STREAM),
    ]
    assert server.connection.stream_count == 0


@pytest.mark.parametrize("is_reset", [False, True], ids=["ended", "reset"])
async def test_ended_call_needs_no_garbage_collector(
    server: Endpoint, client: Endpoint, *, is_reset: bool
) -> None:
    """A gateway's two streams of a call refer to each other, and ten objects of each call would wait for it."""
    client.receive_settings()
    gc.disable()
    try:
        server.receive(headers(1), data(1, b"ab", end=True))
        (inward,) = server.recorders
        outward = client.open()
        inward.stream.credit_to(outward.stream)
        outward.stream.credit_to(inward.stream)
        outward.stream.send_data(b"ab", end=True)
        if is_reset:
            client.receive(frames.rst_stream(1, ErrorCode.CANCEL))
            inward.stream.reset(ErrorCode.CANCEL)
        else:
            client.receive(headers(1, block=RESPONSE), headers(1, block=TRAILERS, end=True))
            inward.stream.send_headers(TRAILERS, end=True)
        recorder_refs = [weakref.ref(inward), weakref.ref(outward)]
        server.recorders.clear()
        del inward, outward
        assert [recorder_ref() for recorder_ref in recorder_refs] == [None, None]
    finally:
        gc.enable()


async def test_bytes_may_arrive_in_any_pieces(server: Endpoint) -> None:
    for byte in headers(1) + data(1, b"abc", end=True):
        server.receive(bytes([byte]))

    assert server.recorders[0].events == [("headers", False), (b"abc", True)]


async def test_headers_with_continuation(server: Endpoint) -> None:
    """Another frame between the parts of a header block ends the connection."""
    server.receive(headers(1, block=HEAD[:2], is_complete=False))
    server.receive(frames.frame(FrameType.CONTINUATION, frames.END_HEADERS, 1, HEAD[2:]))
    assert len(server.recorders) == 1

    server.receive(headers(3, block=HEAD[:2], is_complete=False), data(1, b"x"))
    assert code_of_goaway(server) is ErrorCode.PROTOCOL_ERROR
    assert server.recorders[0].events[-1] == "a header block is interrupted by another frame"


async def test_long_headers_are_split(client: Endpoint) -> None:
    """No frame is longer than the peer's limit."""
    client.connection.open(encode(plain(*((b"x", bytes(1000)) for _ in range(40)))))

    lengths = [(kind, len(payload)) for kind, _, _, payload in client.transport.frames()]
    assert [kind for kind, _ in lengths] == [
        FrameType.HEADERS,
        FrameType.CONTINUATION,
        FrameType.CONTINUATION,
    ]
    assert max(length for _, length in lengths) == frames.DEFAULT_FRAME_SIZE


async def test_windows_limit_data(client: Endpoint) -> None:
    """At most the stream's and the connection's window is sent; trailers follow the data."""
    client.receive(frames.settings({SettingId.INITIAL_WINDOW_SIZE: 10}))
    recorder = client.open()
    client.transport.frames()
    recorder.stream.send_data(b"x" * 25, end=True)
    assert [len(payload) for *_, payload in client.transport.frames()] == [10]

    client.receive(frames.window_update(1, 10))
    assert [len(payload) for *_, payload in client.transport.frames()] == [10]
    client.receive(frames.settings({SettingId.INITIAL_WINDOW_SIZE: 15}), frames.window_update(0, 1))
    data_frames = [
        (kind, flags) for kind, flags, _, payload in client.transport.frames() if kind == FrameType.DATA
    ]

    assert data_frames == [(FrameType.DATA, frames.END_STREAM)]


async def test_full_transport_pauses_sending(client: Endpoint) -> None:
    """Nothing is written while the transport is full."""
    recorder = client.open()
    client.transport.frames()
    client.connection.pause_writing()
    recorder.stream.send_data(b"abc")
    recorder.stream.send_headers(TRAILERS, end=True)
    assert client.transport.frames() == []

    client.connection.resume_writing()
    assert [kind for kind, *_ in client.transport.frames()] == [FrameType.DATA, FrameType.HEADERS]


async def test_window_opens_only_after_release(server: Endpoint) -> None:
    """The peer may not send more until the receiver releases the bytes."""
    window = server.connection.stream_window
    server.receive(headers(1), *(data(1, bytes(16_384)) for _ in range(window // 16_384)))
    (recorder,) = server.recorders
    assert [frame for frame in server.transport.frames() if frame[2] == 1] == []

    recorder.stream.release_window(window // 2)
    assert [(kind, number) for kind, _, number, _ in server.transport.frames()] == [
        (FrameType.WINDOW_UPDATE, 1)
    ]
    server.receive(data(1, bytes(window // 2 // 2)), data(1, bytes(window // 2 // 2)), data(1, b"x"))
    assert recorder.events[-1] is ErrorCode.FLOW_CONTROL_ERROR
    assert (FrameType.RST_STREAM, 1) in [(kind, number) for kind, _, number, _ in server.transport.frames()]


async def test_credit_goes_to_the_source_stream(server: Endpoint, client: Endpoint) -> None:
    """In a gateway, bytes sent on one stream open the window of the stream they came from."""
    window = server.connection.stream_window
    client.receive_settings(INITIAL_WINDOW_SIZE=window)
    client.receive(frames.window_update(0, window))
    server.receive(headers(1))
    outgoing_stream = client.open().stream
    outgoing_stream.credit_to(server.recorders[0].stream)
    server.receive(*(data(1, bytes(16_384)) for _ in range(window // 2 // 16_384)))
    server.transport.frames()

    outgoing_stream.send_data(bytes(16_384) * (window // 2 // 16_384))

    assert [kind for kind, *_ in server.transport.frames()] == [FrameType.WINDOW_UPDATE]


async def test_reset_from_either_end(server: Endpoint) -> None:
    """The peer's reset is reported; ours is sent, and later frames of the stream are ignored."""
    server.receive(headers(1), headers(3), frames.rst_stream(1, ErrorCode.CANCEL))
    assert server.recorders[0].events[-1] is ErrorCode.CANCEL

    server.recorders[1].stream.reset(ErrorCode.INTERNAL_ERROR)
    server.receive(
        data(3, b"late"), frames.window_update(3, 1), frames.rst_stream(3, ErrorCode.CANCEL), headers(3)
    )
    assert [kind for kind, *_ in server.transport.frames()] == [FrameType.RST_STREAM]
    assert server.recorders[1].events == [("headers", False)]
    assert not server.connection.is_ended


async def test_too_many_streams_are_refused() -> None:
    """Existing streams continue."""
    server = Endpoint(server=True, options=ConnectionOptions(max_concurrent_streams=1))
    server.receive_settings()
    server.receive(headers(1), headers(3))

    assert len(server.recorders) == 1
    assert [(kind, number, payload) for kind, _, number, payload in server.transport.frames()] == [
        (FrameType.RST_STREAM, 3, b"\0\0\0\7")
    ]


async def test_flood_of_resets_ends_the_connection(server: Endpoint) -> None:
    """CVE-2023-44487."""
    for number in range(1, 4001, 2):
        server.receive(headers(number), frames.rst_stream(number, ErrorCode.CANCEL))

    assert server.connection.is_ended
    assert code_of_goaway(server) is ErrorCode.ENHANCE_YOUR_CALM


async def test_resets_after_the_deadline_of_a_call_are_no_flood(server: Endpoint) -> None:
    """Clients reset every call at its deadline, before or after the response."""
    for number in range(1, 4801, 4):
        server.receive(headers(number))
        server.recorders[-1].stream.deadline_at = 0.0
        server.receive(frames.rst_stream(number, ErrorCode.CANCEL), headers(number + 2, end=True))
        server.recorders[-1].stream.send_headers(b"", end=True)
        server.receive(frames.rst_stream(number + 2, ErrorCode.CANCEL))

    assert not server.connection.is_ended


async def test_flood_of_resets_of_one_ended_stream_ends_the_connection(server: Endpoint) -> None:
    """They begin no stream."""
    server.receive(headers(1, end=True))
    server.recorders[0].stream.send_headers(b"", end=True)
    for _ in range(2000):
        server.receive(frames.rst_stream(1, ErrorCode.CANCEL))

    assert code_of_goaway(server) is ErrorCode.ENHANCE_YOUR_CALM


async def test_flood_of_continuations_ends_the_connection(server: Endpoint) -> None:
    """CVE-2024-27316, with empty parts."""
    server.receive(headers(1, block=b"", is_complete=False))
    for _ in range(3000):
        server.receive(frames.frame(FrameType.CONTINUATION, 0, 1, b""))

    assert code_of_goaway(server) is ErrorCode.ENHANCE_YOUR_CALM


async def test_pings_are_answered_while_the_peer_reads(server: Endpoint) -> None:
    """A peer that sends pings and does not read is disconnected."""
    ping = frames.frame(FrameType.PING, 0, 0, b"12345678")
    server.receive(ping)
    assert server.transport.frames() == [(FrameType.PING, frames.ACK, 0, b"12345678")]

    server.transport.unsent_size = 1 << 30
    server.receive(ping)
    assert server.connection.is_ended


@pytest.mark.parametrize(
    ("peer_frames", "code"),
    [
        (data(9, b"x"), ErrorCode.PROTOCOL_ERROR),
        (headers(2), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.PUSH_PROMISE, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.CONTINUATION, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(FrameType.PING, 0, 0, b"short"), ErrorCode.FRAME_SIZE_ERROR),
        (frames.window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(0, frames.LARGEST_WINDOW), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.settings({SettingId.MAX_FRAME_SIZE: 1}), ErrorCode.PROTOCOL_ERROR),
        (frames.settings({SettingId.INITIAL_WINDOW_SIZE: 1 << 31}), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.frame(FrameType.SETTINGS, 0, 0, b"abc"), ErrorCode.FRAME_SIZE_ERROR),
        (b"\xff\xff\xff\0\0\0\0\0\0", ErrorCode.FRAME_SIZE_ERROR),
        (headers(1, block=b"\xff\xff\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
    ],
)
async def test_broken_protocol_ends_the_connection(
    server: Endpoint, peer_frames: bytes, code: ErrorCode
) -> None:
    """GOAWAY has the error code; every stream gets the reason."""
    server.receive(headers(7))
    server.receive(peer_frames)

    assert code_of_goaway(server) is code
    assert server.transport.is_closed
    assert len(server.end_reasons) == 1
    assert server.recorders[0].events[-1] == server.end_reasons[0]
    server.receive(headers(9))
    assert len(server.recorders) == 1


async def test_unknown_frames_and_settings_are_ignored(server: Endpoint) -> None:
    """RFC 9113, section 5.5."""
    server.receive(
        frames.frame(0xF0, 0xFF, 9, b"what"),
        frames.frame(FrameType.SETTINGS, 0, 0, b"\0\x63\0\0\0\1"),
        frames.frame(FrameType.PRIORITY, 0, 1, bytes(5)),
    )

    assert not server.connection.is_ended


@pytest.mark.parametrize("peer_frames", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"])
async def test_peer_without_http2_is_disconnected(peer_frames: bytes) -> None:
    endpoint = Endpoint(server=True)
    endpoint.connection._awaits_preface = True
    endpoint.receive(peer_frames)

    assert endpoint.end_reasons == ["the peer does not speak HTTP/2"]


async def test_goaway_of_a_server(client: Endpoint) -> None:
    """Calls that the server did not accept may be retried; the others continue, then the connection ends."""
    first, second = client.open(), client.open()
    client.receive(frames.goaway(1, ErrorCode.NO_ERROR, "max_age"))

    assert second.events == [ErrorCode.REFUSED_STREAM]
    assert first.events == []
    assert not client.connection.can_open
    client.receive(headers(1, end=True, block=RESPONSE))
    first.stream.send_data(b"", end=True)
    assert client.end_reasons == ["the peer sent GOAWAY: max_age"]


async def test_servers_stream_limit_is_kept(client: Endpoint) -> None:
    client.receive(frames.settings({SettingId.MAX_CONCURRENT_STREAMS: 1}))
    assert client.connection.can_open
    recorder = client.open()
    assert not client.connection.can_open
    recorder.stream.reset(ErrorCode.CANCEL)
    assert client.connection.can_open


async def test_retired_server_ends_after_its_last_call(server: Endpoint) -> None:
    """Calls that began before the client got GOAWAY are served."""
    server.receive(headers(1, end=True))
    server.connection.retire()
    server.receive(headers(3, end=True))
    for recorder in server.recorders:
        assert not server.connection.is_ended
        recorder.stream.send_headers(TRAILERS, end=True)

    assert server.connection.is_ended


async def test_loss_is_reported_to_every_stream(client: Endpoint) -> None:
    recorder = client.open()
    client.connection.connection_lost(ConnectionResetError("reset by peer"))

    assert recorder.events == ["reset by peer"]
    assert client.end_reasons == ["reset by peer"]


async def test_frozen_peer_is_detected() -> None:
    """Silence, a ping, and silence again end the connection."""
    client = Endpoint(server=False, options=ConnectionOptions(ping_after=0.02, answer_within=0.02))
    client.receive_settings()
    recorder = client.open()

    await eventually(lambda: client.connection.is_ended)
    assert recorder.events == ["no answer to a ping within 0.02 s"]


async def test_peer_that_answers_pings_stays_connected() -> None:
    """However long a call takes."""
    client = Endpoint(server=False, options=ConnectionOptions(ping_after=0.0, answer_within=3600.0))
    client.receive_settings()
    client.open()
    for _ in range(3):
        client.transport.frames()
        client.connection._liveness._check()
        (ping,) = [payload for kind, _, _, payload in client.transport.frames() if kind == FrameType.PING]
        client.receive(frames.frame(FrameType.PING, frames.ACK, 0, ping))

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
def test_any_bytes_end_at_most_their_connection(
    peer_frames: list[bytes], is_server: bool, tail: bytes
) -> None:
    """The connection continues, or ends with one reason that every stream gets."""

    async def receive_frames() -> None:
        endpoint = Endpoint(server=is_server)
        endpoint.receive_settings()
        if not is_server:
            endpoint.open()
        endpoint.receive(*peer_frames, tail)

        assert len(endpoint.end_reasons) == endpoint.connection.is_ended
        if endpoint.connection.is_ended:
            assert endpoint.connection.stream_count == 0
        endpoint.connection.close()

    asyncio.run(receive_frames())
