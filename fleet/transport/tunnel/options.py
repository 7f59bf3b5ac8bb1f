"""gRPC options of what carries tunnels; a channel or server has them beside `fleet.transport.channels`' own."""

from __future__ import annotations

from fleet.transport.channels import DeadPeer, GrpcOptions

#: Other peers choose the size of what they send; larger than this is refused with RESOURCE_EXHAUSTED.
MOST_MESSAGE = 64 * 1024 * 1024


def server_options(dead_peer: DeadPeer | None = None) -> GrpcOptions:
    """Options of a server; with `dead_peer` it pings its clients. Go's clients take any number of pings."""
    options: GrpcOptions = [("grpc.max_receive_message_length", MOST_MESSAGE)]
    if dead_peer is not None:
        options += [
            ("grpc.keepalive_time_ms", max(int(dead_peer.ping_after * 1000), 1)),
            ("grpc.http2.max_pings_without_data", 0),
            # keepalive_timeout_ms alone does not end a frozen peer's connection.
            ("grpc.http2.ping_timeout_ms", max(int(dead_peer.answer_within * 1000), 1)),
        ]
    return options


def channel_options() -> GrpcOptions:
    """Options of a channel."""
    return [("grpc.max_receive_message_length", MOST_MESSAGE)]
