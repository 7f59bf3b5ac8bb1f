"""One HTTP/2 connection, RFC 9113, of client or server, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from fleet.transport.http2 import fields, floods, frames, header_blocks
from fleet.transport.http2.fields import HeaderBlockCache, HeaderBlockDecoder, HeaderListTooLongError
from fleet.transport.http2.frames import ErrorCode, FrameType, Http2ConnectionError, SettingId
from fleet.transport.http2.header_blocks import HeaderBlockAssembler
from fleet.transport.http2.liveness import Liveness
from fleet.transport.http2.messages import HeaderListValidity
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream
from fleet.transport.http2.stream_numbers import StreamNumbers

#: Flags of HEADERS that make its payload more, or less, than a header block.
_COMPLETE_MASK = frames.END_HEADERS | frames.PADDED | frames.PRIORITY
# Reading an attribute of an enum is a lookup by name, and each frame is compared with most of these.
_DATA, _HEADERS, _CONTINUATION = int(FrameType.DATA), int(FrameType.HEADERS), int(FrameType.CONTINUATION)
_WINDOW_UPDATE, _SETTINGS = int(FrameType.WINDOW_UPDATE), int(FrameType.SETTINGS)


class Http2Connection(asyncio.Protocol):
    """Reads and writes frames; calls the listeners of its streams, `on_stream` for new ones, and `on_end` once."""

    def __init__(
        self,
        cache: HeaderBlockCache[Any],
        options: ConnectionOptions,
        *,
        on_stream: Callable[[Stream, Any], None] | None = None,
        on_ready: Callable[[Http2Connection], None] | None = None,
        on_retire: Callable[[Http2Connection], None] | None = None,
        on_end: Callable[[Http2Connection, str], None] | None = None,
    ) -> None:
        """Act as a server if `on_stream` is given, else as a client."""
        self._cache = cache
        self._options = options
        self._on_stream = on_stream
        self._on_ready = on_ready
        self._on_retire = on_retire
        self._on_end = on_end
        self._decoder = HeaderBlockDecoder(options.max_header_list_size)
        self._has_written_block = False
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._unread = b""
        self._unsent: list[bytes] = []
        self._awaits_preface = on_stream is not None
        self._has_settings = False
        self._streams: dict[int, Stream] = {}
        self._blocked_streams: dict[int, Stream] = {}
        self._numbers = StreamNumbers(is_server=on_stream is not None)
        self._header_blocks = HeaderBlockAssembler(options.max_header_list_size)
        self._bytes_since_window_update = 0
        self._reset_budget = floods.ResetBudget(self._loop.time)
        self._idle_frame_budget = floods.IdleFrameBudget(self._loop.time)
        self._liveness = Liveness(
            options.ping_after,
            options.answer_within,
            options.ping_interval_without_data,
            has_calls=lambda: bool(self._streams) and not self.is_ended,
            send=self.write,
            on_dead_peer=self._on_dead_peer,
        )
        self._initial_send_window = frames.DEFAULT_WINDOW
        self._peer_max_streams = 100 if on_stream is None else 0
        self._end_reason = ""
        #: Bytes that may be sent on all streams together.
        self.send_window = frames.DEFAULT_WINDOW
        #: Total bytes the peer has allowed; minus `send_window`, it is the number of bytes sent.
        self._granted_bytes = frames.DEFAULT_WINDOW
        self.peer_max_frame_size = frames.DEFAULT_FRAME_SIZE
        self.stream_window = options.stream_window
        #: The peer reads too slowly: data is queued.
        self.is_paused = False
        #: The connection takes no new streams; existing ones continue.
        self.is_retired = False
        self.is_ended = False

    # Methods for the user of the connection.

    @property
    def stream_count(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    @property
    def can_open(self) -> bool:
        """Return whether `open` may be called."""
        return (
            self._has_settings
            and not self.is_retired
            and not self.is_ended
            and len(self._streams) < self._peer_max_streams
        )

    def open(self, block: bytes, *, end: bool = False) -> Stream:
        """Open a stream with its headers, as a client."""
        number = self._numbers.next()
        stream = self._new_stream(number)
        if number > frames.LARGEST_WINDOW - 2:
            self._retire()
        stream.send_headers(block, end=end)
        self._liveness.watch()
        return stream

    def retire(self) -> None:
        """Take no new streams, and close after the last one."""
        if self.is_retired or self.is_ended:
            return
        if self._on_stream is not None:
            # The peer may still open streams before it reads this: those are served, RFC 9113 section 6.8.
            self.write(frames.goaway(frames.LARGEST_WINDOW, ErrorCode.NO_ERROR, "the server is closing"))
        self._retire()

    def close(self, reason: str = "the connection was closed") -> None:
        """Close at once, with all streams."""
        self._end(ErrorCode.NO_ERROR, reason)

    # Methods for streams.

    def write(self, data: bytes) -> None:
        """Queue frames; all frames of one turn of the loop are sent together: a system call costs more than a frame."""
        if self._transport is None or self.is_ended:
            return
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent.append(data)

    def flush(self) -> None:
        """Send the queued frames."""
        if self._unsent and self._transport is not None:
            data = b"".join(self._unsent)
            self._unsent.clear()
            self._transport.write(data)

    def write_headers(self, number: int, block: bytes, *, end: bool) -> None:
        """Send a header list."""
        if not self._has_written_block:
            self._has_written_block = True
            block = fields.ZERO_TABLE_SIZE_UPDATE + block
        self.write(header_blocks.encode_frames(number, block, self.peer_max_frame_size, end=end))

    def write_reset(self, number: int, code: ErrorCode) -> None:
        """Reset a stream."""
        self._numbers.reset(number, is_local=True)
        self.write(frames.rst_stream(number, code))

    def count_fault(self) -> None:
        """Count a stream that a client broke. Raises Http2ConnectionError when there are too many."""
        if self._on_stream is not None:
            self._reset_budget.count()

    def count_idle_frame(self) -> None:
        """Count a client's frame without effect. Raises Http2ConnectionError when there are too many."""
        if self._on_stream is not None:
            self._idle_frame_budget.count_other_frame()

    def add_blocked_stream(self, stream: Stream) -> None:
        """Flush this stream when there is a window again."""
        self._blocked_streams[stream.number] = stream

    def remove_stream(self, stream: Stream) -> None:
        """Remove a closed stream."""
        if self._streams.pop(stream.number, None) is not None:
            self._reset_budget.record_ended_stream()
        self._blocked_streams.pop(stream.number, None)
        if self.is_retired and not self._streams and not self.is_ended:
            self._end(ErrorCode.NO_ERROR, self._end_reason or "the last call of a retired connection ended")

    # Methods for the event loop.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports have no class of asyncio's
        options = self._options
        own_settings = {
            SettingId.HEADER_TABLE_SIZE: 0,
            SettingId.INITIAL_WINDOW_SIZE: options.stream_window,
            SettingId.MAX_FRAME_SIZE: options.max_frame_size,
            SettingId.MAX_HEADER_LIST_SIZE: options.max_header_list_size,
        }
        if self._on_stream is None:
            own_settings[SettingId.ENABLE_PUSH] = 0
        else:
            own_settings[SettingId.MAX_CONCURRENT_STREAMS] = options.max_concurrent_streams
        preface = b"" if self._on_stream else frames.PREFACE
        window_frame = frames.window_update(0, options.connection_window - frames.DEFAULT_WINDOW)
        self.write(preface + frames.settings(own_settings) + window_frame)

    @override
    def data_received(self, data: bytes) -> None:
        if self.is_ended:
            return
        self._liveness.record_activity()
        buffer = self._unread + data if self._unread else data
        at, size = 0, len(buffer)
        try:
            if self._awaits_preface:
                at = frames.read_preface(buffer)
                self._awaits_preface = at == 0
            while size - at >= frames.HEADER_LENGTH and not self._awaits_preface and not self.is_ended:
                length, kind, flags, number = frames.read_header(buffer, at)
                if length > self._options.max_frame_size:
                    # Text of another protocol reads as a huge frame.
                    reason = "a frame is too long" if self._has_settings else "the peer does not speak HTTP/2"
                    raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, reason)
                begin = at + frames.HEADER_LENGTH
                if begin + length > size:
                    break
                at = begin + length
                self._on_frame(kind, flags, number, buffer[begin:at])
            self._unread = buffer[at:]
        except Http2ConnectionError as error:
            self._end(error.code, str(error))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None, self._end_reason or (str(exc) if exc else "the peer closed the connection"))

    @override
    def pause_writing(self) -> None:
        self.is_paused = True

    @override
    def resume_writing(self) -> None:
        self.is_paused = False
        self._flush_blocked()

    # Frames.

    def _on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if not self._has_settings and kind != _SETTINGS:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "no HTTP/2: no SETTINGS came first")
        if self._header_blocks.pieces:  # most frames come between blocks: the check is cheaper than a call
            self._header_blocks.check_order(kind, number)
        if kind == _DATA:
            self._on_data(number, flags, payload)
        elif kind == _HEADERS:
            if flags & _COMPLETE_MASK == frames.END_HEADERS:  # most blocks are one plain frame
                self._on_header_block(number, payload, flags & frames.END_STREAM != 0)
            elif (header_block := self._header_blocks.add_headers(number, flags, payload)) is not None:
                self._on_header_block(*header_block)
        elif kind == _CONTINUATION:
            header_block = self._header_blocks.add_continuation(flags, payload)
            if header_block is not None:
                self._on_header_block(*header_block)
        elif kind == _WINDOW_UPDATE and len(payload) == 4:
            self._on_window_update(number, frames.read_uint32(payload) & frames.LARGEST_WINDOW)
        else:
            self._on_control_frame(kind, flags, number, payload)

    def _on_control_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        frames.check_control_frame(kind, flags, number, len(payload))
        match kind:
            case FrameType.RST_STREAM:
                self._on_rst_stream(number, frames.code_of(frames.read_uint32(payload)))
            case FrameType.SETTINGS:
                self._on_settings(flags, payload)
            case FrameType.PUSH_PROMISE:
                raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "server push is disabled")
            case FrameType.PING:
                self._on_ping(flags, payload)
            case FrameType.GOAWAY:
                self._on_goaway(payload)
            case FrameType.PRIORITY:
                self._on_priority(number, payload)
            case _:
                self.count_idle_frame()

    def _on_data(self, number: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        self._bytes_since_window_update += size
        if self._bytes_since_window_update > self._options.connection_window:
            raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "data exceeds the connection's window")
        if self._bytes_since_window_update >= self._options.connection_window // 2:
            # Each stream has its own limit; this window only bounds the data of one read.
            self.write(frames.window_update(0, self._bytes_since_window_update))
            self._bytes_since_window_update = 0
        data = frames.strip_padding(payload, flags) if flags & frames.PADDED else payload
        stream = self._streams.get(number)
        if stream is None:
            self._on_late_frame(number)
            return
        self._liveness.has_data_since_ping = True
        stream.receive_data(data, size, end=bool(flags & frames.END_STREAM))

    def _on_header_block(self, number: int, block: bytes, end: bool, dependency: int = 0) -> None:
        self._liveness.has_data_since_ping = True
        stream = self._streams.get(number)
        is_request = stream is None and self._on_stream is not None and number > self._numbers.last_opened
        if is_request:
            self._numbers.open(number)
        try:
            head, validity = self._decoder.decode(block, self._cache)
        except HeaderListTooLongError as error:
            self._fail_stream(number, ErrorCode.ENHANCE_YOUR_CALM, str(error))
            return
        if dependency and dependency == number:
            self._fail_stream(number, ErrorCode.PROTOCOL_ERROR, "made a stream depend on itself")
        elif is_request:
            self._begin_request(number, head, validity, end=end)
        elif stream is None:
            self._on_late_frame(number)
        else:
            stream.receive_headers(head, validity, end=end)

    def _begin_request(self, number: int, head: Any, validity: HeaderListValidity, *, end: bool) -> None:
        assert self._on_stream is not None
        if validity.request_fault:
            self._fail_stream(number, ErrorCode.PROTOCOL_ERROR, validity.request_fault)
            return
        if len(self._streams) >= self._options.max_concurrent_streams:
            self.write_reset(number, ErrorCode.REFUSED_STREAM)
            return
        stream = self._new_stream(number)
        self._on_stream(stream, head)
        self._liveness.watch()
        if stream.listener is not None:
            stream.receive_headers(head, validity, end=end)

    def _new_stream(self, number: int) -> Stream:
        is_server = self._on_stream is not None
        stream = Stream(self, number, self._initial_send_window, self.stream_window, is_server=is_server)
        self._streams[number] = stream
        return stream

    def _on_late_frame(self, number: int) -> None:
        """Process HEADERS or DATA on a stream that has ended."""
        if self._numbers.needs_reset(number):
            self.count_fault()
            self.write_reset(number, ErrorCode.STREAM_CLOSED)

    def _on_rst_stream(self, number: int, code: ErrorCode) -> None:
        stream = self._streams.get(number)
        if stream is None:
            self._numbers.check_not_idle(number)
        if self._on_stream is not None:
            self._reset_budget.count_client_reset(None if stream is None else stream.deadline_at)
        if stream is None:
            return
        self._numbers.reset(number, is_local=False)
        listener = stream.drop()
        if listener is not None:
            listener.on_reset(code, "")

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            self._decoder.on_settings_ack()
            return
        values = frames.read_settings(payload)
        for key, value in values:
            match key:
                case SettingId.INITIAL_WINDOW_SIZE:
                    self._set_initial_send_window(value)
                case SettingId.MAX_FRAME_SIZE:
                    self.peer_max_frame_size = min(value, frames.DEFAULT_FRAME_SIZE * 4)
                case SettingId.MAX_CONCURRENT_STREAMS:
                    self._peer_max_streams = value
        self._respond(frames.frame(FrameType.SETTINGS, frames.ACK, 0))
        first, self._has_settings = not self._has_settings, True
        if not first:
            self.count_idle_frame()
        elif self._on_stream is None and SettingId.MAX_CONCURRENT_STREAMS not in dict(values):
            self._peer_max_streams = frames.LARGEST_WINDOW
        if first and self._on_ready is not None:
            self._on_ready(self)
        self._flush_blocked()

    def _set_initial_send_window(self, size: int) -> None:
        for stream in self._streams.values():
            stream.send_window += size - self._initial_send_window
            if stream.send_window > frames.LARGEST_WINDOW:
                raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "a window is too large")
        self._initial_send_window = size

    def _on_ping(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            self._liveness.record_ping_ack()
            return
        if self._on_stream is not None:
            self._idle_frame_budget.count_ping(self._granted_bytes - self.send_window)
        self._respond(frames.frame(FrameType.PING, frames.ACK, 0, payload))

    def _respond(self, data: bytes) -> None:
        unsent = self._transport.get_write_buffer_size() if self._transport else 0
        floods.check_unsent(unsent, len(self._unsent))
        self.write(data)

    def _on_goaway(self, payload: bytes) -> None:
        last = frames.read_uint32(payload) & frames.LARGEST_WINDOW
        debug_text = (
            payload[8:].decode("ascii", "replace")[:100]
            or frames.code_of(frames.read_uint32(payload, 4)).name
        )
        self._end_reason = f"the peer sent GOAWAY: {debug_text}"
        if self._on_stream is not None:
            return  # a client that sends GOAWAY ends its own streams
        self._retire()
        for number in [number for number in self._streams if number > last]:
            listener = self._streams[number].drop()
            if listener is not None:
                listener.on_reset(ErrorCode.REFUSED_STREAM, self._end_reason)

    def _on_window_update(self, number: int, increment: int) -> None:
        if number == 0:
            if increment == 0:
                raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0 bytes")
            self.send_window += increment
            self._granted_bytes += increment
            if self.send_window > frames.LARGEST_WINDOW:
                raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "connection window too large")
            self._flush_blocked()
            return
        if increment == 0:
            self._fail_stream(number, ErrorCode.PROTOCOL_ERROR, "sent WINDOW_UPDATE of 0 bytes")
            return
        stream = self._streams.get(number)
        if stream is None:
            self._numbers.check_not_idle(number)
            return
        stream.send_window += increment
        if stream.send_window > frames.LARGEST_WINDOW:
            stream.fail(ErrorCode.FLOW_CONTROL_ERROR, "made a window too large")
        elif stream.has_pending_data:
            stream.flush()

    def _on_priority(self, number: int, payload: bytes) -> None:
        if number == 0:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "PRIORITY without a stream")
        if len(payload) != 5:
            self._fail_stream(number, ErrorCode.FRAME_SIZE_ERROR, "sent PRIORITY with a wrong length")
        elif frames.read_dependency(payload, 0) == number:
            self._fail_stream(number, ErrorCode.PROTOCOL_ERROR, "made a stream depend on itself")
        self.count_idle_frame()

    def _fail_stream(self, number: int, code: ErrorCode, reason: str) -> None:
        """Reset a stream, whatever its state; for one that was never opened, raise Http2ConnectionError."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.fail(code, reason)
        elif self._numbers.is_idle(number):
            raise Http2ConnectionError(code, reason)
        else:
            self.count_fault()
            self.write_reset(number, code)

    # Shutdown.

    def _flush_blocked(self) -> None:
        blocked_streams, self._blocked_streams = self._blocked_streams, {}
        for stream in blocked_streams.values():
            stream.flush()

    def _retire(self) -> None:
        if self.is_retired:
            return
        self.is_retired = True
        if self._on_retire is not None:
            self._on_retire(self)
        if not self._streams:
            self._end(ErrorCode.NO_ERROR, self._end_reason or "the last call of a retired connection ended")

    def _end(self, code: ErrorCode | None, reason: str) -> None:
        """Close the connection, with a GOAWAY unless it is lost (`code` None)."""
        if self.is_ended:
            return
        if code is not None:
            self.write(frames.goaway(max(self._numbers.last_opened, 0), code, reason if code else ""))
        if code is None:
            self._unsent.clear()  # the peer is gone
        self.flush()
        self.is_ended = self.is_retired = True
        self._unread = b""
        self._liveness.stop()
        if self._transport is not None:
            self._transport.close()
        for stream in list(self._streams.values()):
            listener = stream.drop()
            if listener is not None:
                listener.on_lost(reason)
        if self._on_end is not None:
            self._on_end(self, reason)

    def _on_dead_peer(self, reason: str) -> None:
        self._end(ErrorCode.NO_ERROR, reason)
        if self._transport is not None:
            self._transport.abort()
