"""What a connection lets its peer do, and when it tests whether the peer is alive."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.transport.http2.fields import MAX_LIST


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options of one connection. Bytes, seconds."""

    #: Of one stream, on the way and not passed on yet: bounds the memory of a stream whose other end reads slowly.
    stream_window: int = 256 * 1024
    #: Of all streams; streams hold back by themselves.
    connection_window: int = 16 * 1024 * 1024
    frame: int = 64 * 1024
    #: A header list, as RFC 9113 section 6.5.2 counts it; a longer one ends its stream.
    header_list: int = MAX_LIST
    #: Calls of one connection at a time.
    streams: int = 1_000
    #: Silence, with calls open, after which the peer is pinged, and how long its answer may take.
    ping_after: float = 10.0
    answer_within: float = 5.0
    #: The least time between two pings without data in between.
    ping_without_data: float = 0.0
