"""HTTP/2 frames as bytes, RFC 9113 section 6, and the errors that end a stream or a connection."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_LENGTH = 9
LARGEST_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_SIZE = 16_384
LARGEST_FRAME_SIZE = (1 << 24) - 1


class FrameType(IntEnum):
    """Types of HTTP/2 frames: RFC 9113, section 6."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20


class SettingId(IntEnum):
    """Identifier of a setting."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Error code of a stream or a connection."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def code_of(number: int) -> ErrorCode:
    """Return the error code with this number; INTERNAL_ERROR for an unknown one (RFC 9113 section 7)."""
    return ErrorCode(number) if number <= max(ErrorCode) else ErrorCode.INTERNAL_ERROR


class Http2ConnectionError(Exception):
    """The peer violated the protocol: the connection must end."""

    def __init__(self, code: ErrorCode, sentence: str) -> None:
        self.code = code
        super().__init__(sentence)


#: Frame types of the connection as a whole, RFC 9113 sections 6.5, 6.7 and 6.8.
_CONNECTION_FRAME_TYPES = frozenset({FrameType.SETTINGS, FrameType.PING, FrameType.GOAWAY})
#: Lengths of frame types with a fixed length.
_FIXED_LENGTHS: Mapping[int, int] = {FrameType.RST_STREAM: 4, FrameType.PING: 8, FrameType.WINDOW_UPDATE: 4}

_HEADER = struct.Struct(">HBBBL")
_UINT32 = struct.Struct(">L")
_SETTING = struct.Struct(">HL")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return the bytes of a frame: a header of nine bytes, and the payload."""
    length = len(payload)
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def read_preface(buffer: bytes) -> int:
    """Return the length of the preface of a client; 0 while it is incomplete. Raises Http2ConnectionError."""
    if not PREFACE.startswith(buffer[: len(PREFACE)]):
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "the peer does not speak HTTP/2")
    return len(PREFACE) if len(buffer) >= len(PREFACE) else 0


def read_header(buffer: bytes | bytearray, at: int) -> tuple[int, int, int, int]:
    """Return the header of a frame: length, kind, flags, stream."""
    high, low, kind, flags, stream = _HEADER.unpack_from(buffer, at)
    return high << 8 | low, kind, flags, stream & 0x7FFF_FFFF


def check_control_frame(kind: int, flags: int, number: int, length: int) -> None:
    """Check the stream number and the length of a control frame. Raises Http2ConnectionError.

    DATA, HEADERS, CONTINUATION and PRIORITY have their own rules: a wrong length may affect one stream only.
    """
    if kind in _CONNECTION_FRAME_TYPES and number:
        raise Http2ConnectionError(
            ErrorCode.PROTOCOL_ERROR, f"{FrameType(kind).name} must not have a stream number"
        )
    expected_length = _FIXED_LENGTHS.get(kind, length)
    if kind == FrameType.SETTINGS and flags & ACK:
        expected_length = 0
    if length != expected_length:
        name = FrameType(kind).name
        raise Http2ConnectionError(
            ErrorCode.FRAME_SIZE_ERROR, f"{name} has {length} bytes instead of {expected_length}"
        )


def settings(values: Mapping[SettingId, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(
        FrameType.SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items())
    )


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return the settings of a SETTINGS payload, in order. Raises Http2ConnectionError for an invalid value."""
    if len(payload) % _SETTING.size:
        raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS frame is truncated")
    values: list[tuple[int, int]] = list(_SETTING.iter_unpack(payload))
    for key, value in values:
        if key == SettingId.ENABLE_PUSH and value > 1:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH cannot be {value}")
        if key == SettingId.INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise Http2ConnectionError(
                ErrorCode.FLOW_CONTROL_ERROR, f"an initial window of {value} bytes is not allowed"
            )
        if key == SettingId.MAX_FRAME_SIZE and not DEFAULT_FRAME_SIZE <= value <= LARGEST_FRAME_SIZE:
            raise Http2ConnectionError(
                ErrorCode.PROTOCOL_ERROR, f"a maximum frame size of {value} bytes is not allowed"
            )
    return values


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream, _UINT32.pack(increment))


def rst_stream(stream: int, code: ErrorCode) -> bytes:
    """Return a RST_STREAM frame."""
    return frame(FrameType.RST_STREAM, 0, stream, _UINT32.pack(code))


def goaway(last: int, code: ErrorCode, reason: str = "") -> bytes:
    """Return a GOAWAY frame."""
    return frame(FrameType.GOAWAY, 0, 0, _UINT32.pack(last) + _UINT32.pack(code) + reason.encode())


def read_uint32(payload: bytes, at: int = 0) -> int:
    """Return the four-byte number at a position. Raises Http2ConnectionError when it is truncated."""
    if len(payload) < at + 4:
        raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "a frame is truncated")
    number: int = _UINT32.unpack_from(payload, at)[0]
    return number


def strip_padding(payload: bytes, flags: int, *, priority: bool = False) -> bytes:
    """Return a payload without its padding, and without the priority of HEADERS. Raises Http2ConnectionError."""
    start, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "a padded frame is truncated")
        start, end = 1, end - payload[0]
    if priority and flags & PRIORITY:
        start += 5
    if start > end:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[start:end]


def read_dependency(payload: bytes, flags: int) -> int:
    """Return the dependency in HEADERS with a priority, or in PRIORITY without flags. Raises Http2ConnectionError."""
    return read_uint32(payload, 1 if flags & PADDED else 0) & LARGEST_WINDOW
