"""Limits for the peer of a connection, and the timing of its liveness pings."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.transport.http2.fields import LONGEST_HEADER_LIST


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Options of one connection. Bytes, seconds."""

    #: Received and not yet forwarded bytes of one stream: bounds the memory of a stream with a slow receiver.
    stream_window: int = 256 * 1024
    #: The same for all streams together; each stream has its own limit.
    connection_window: int = 16 * 1024 * 1024
    max_frame_size: int = 64 * 1024
    #: A header list, counted as in RFC 9113 section 6.5.2; a longer one ends its stream.
    max_header_list_size: int = LONGEST_HEADER_LIST
    #: Maximum concurrent calls.
    max_concurrent_streams: int = 1_000
    #: Silence with open calls after which the peer is pinged, and time for its answer.
    ping_after: float = 10.0
    answer_within: float = 5.0
    #: Minimum time between two pings without data in between.
    ping_interval_without_data: float = 0.0
