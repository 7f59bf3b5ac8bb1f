"""gRPC on HTTP/2: statuses, timeouts, messages. Pure.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md and http-grpc-status-mapping.md.
"""

from __future__ import annotations

import math
import re
from enum import IntEnum


class Status(IntEnum):
    """gRPC status code of a call."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @classmethod
    def read(cls, text: bytes) -> Status:
        """Return the status of a `grpc-status` value; UNKNOWN if it is not one."""
        number = int(text) if re.fullmatch(rb"[0-9]{1,2}", text) else int(cls.UNKNOWN)
        return cls(number) if number <= cls.UNAUTHENTICATED else cls.UNKNOWN


#: gRPC status by HTTP status, for a response without `grpc-status`.
_STATUS_BY_HTTP_STATUS = {
    400: Status.INTERNAL,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.UNIMPLEMENTED,
    429: Status.UNAVAILABLE,
    502: Status.UNAVAILABLE,
    503: Status.UNAVAILABLE,
    504: Status.UNAVAILABLE,
}
#: gRPC status by the error code of RST_STREAM.
_STATUS_BY_RESET_CODE = {
    7: Status.UNAVAILABLE,
    8: Status.CANCELLED,
    11: Status.RESOURCE_EXHAUSTED,
    12: Status.PERMISSION_DENIED,
}
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_PLAIN_BYTES = frozenset(range(0x20, 0x7F)) - {0x25}
#: Bytes before each message: compressed flag and length.
PREFIX_LENGTH = 5


def of_http(status: int) -> Status:
    """Return the gRPC status of an HTTP response that is not gRPC's."""
    return _STATUS_BY_HTTP_STATUS.get(status, Status.UNKNOWN)


def of_reset(code: int) -> Status:
    """Return the gRPC status of a call whose stream was reset."""
    return _STATUS_BY_RESET_CODE.get(code, Status.INTERNAL)


def read_timeout(text: bytes) -> float | None:
    """Return a `grpc-timeout` value in seconds; None if it is not one."""
    match = _TIMEOUT.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2]]


def write_timeout(seconds: float) -> bytes:
    """Return seconds as a `grpc-timeout` value, rounded up, in the finest unit that fits eight digits."""
    micros = math.ceil(seconds * 1_000_000)
    if micros < 100_000_000:
        return b"%du" % max(micros, 0)
    for unit in (b"m", b"S", b"M"):
        number = -int(-seconds // _UNITS[unit])
        if number < 100_000_000:
            return b"%d%s" % (number, unit)
    return b"%dH" % min(-int(-seconds // 3600), 99_999_999)


def write_message(text: str) -> bytes:
    """Return text as a `grpc-message` value: percent-encoded UTF-8."""
    return b"".join(
        bytes([byte]) if byte in _PLAIN_BYTES else b"%%%02X" % byte for byte in text.encode(errors="replace")
    )


def read_message(text: bytes) -> str:
    """Return the text of a `grpc-message` value; bytes that are not percent-encoded stay."""
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), text)
    return raw.decode(errors="replace")


class MessageCounter:
    """Counts the messages of one direction of a call, independent of the chunks in which bytes arrive."""

    __slots__ = ("_prefix", "_remaining_bytes", "has_bytes", "message_count")

    def __init__(self) -> None:
        self._remaining_bytes = 0
        self._prefix = b""
        #: True once any byte arrived.
        self.has_bytes = False
        #: Count of complete messages.
        self.message_count = 0

    @property
    def is_between_messages(self) -> bool:
        """Return whether the current position is between two messages."""
        return not self._remaining_bytes and not self._prefix

    @property
    def has_several(self) -> bool:
        """Return whether a second message began: this direction is a stream."""
        return self.message_count > 1 or (self.message_count == 1 and not self.is_between_messages)

    def feed(self, chunk: bytes) -> int:
        """Count bytes; return the length of the longest message that begins in them."""
        offset, size, longest = 0, len(chunk), 0
        if size >= PREFIX_LENGTH and not self._remaining_bytes and not self._prefix:
            length = int.from_bytes(chunk[1:PREFIX_LENGTH])
            if length == size - PREFIX_LENGTH:  # most chunks are one whole message
                self.has_bytes = True
                self.message_count += 1
                return length
        self.has_bytes = self.has_bytes or size > 0
        while offset < size:
            if self._remaining_bytes:
                consumed_size = min(self._remaining_bytes, size - offset)
                self._remaining_bytes -= consumed_size
                offset += consumed_size
                self.message_count += not self._remaining_bytes
                continue
            missing_size = PREFIX_LENGTH - len(self._prefix)
            self._prefix += chunk[offset : offset + missing_size]
            offset += missing_size
            if len(self._prefix) == PREFIX_LENGTH:
                self._remaining_bytes = int.from_bytes(self._prefix[1:])
                longest = max(longest, self._remaining_bytes)
                self._prefix = b""
                self.message_count += not self._remaining_bytes
        return longest
